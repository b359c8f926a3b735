"""The marker: what it measures, what it refuses, how failures reach pytest."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from facts import reasons_in, says, verdicts_in

from pytest_torchprof.limits.seen import ForbiddenMatches, MatchesSeen, NumberSeen
from pytest_torchprof.reasons.devices import NoGpuSeen
from pytest_torchprof.reasons.testing import BodyUnrepeatable
from pytest_torchprof.report.account import NotJudgedOnCpu


def test_the_body_of_a_marked_test_is_called_warmup_plus_steps_times(run_tests):
    result = run_tests(
        """
        calls = []
        @pytest.mark.torchprof(device="cpu", warmup=2, steps=4)
        def test_body():
            calls.append(1)
            torch.add(x, x)

        def test_count():
            assert len(calls) == 6
        """.replace("\n        ", "\n")
    )
    result.assert_outcomes(passed=2)


def test_a_limit_that_holds_passes_and_the_table_shows_the_numbers(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_two():
    torch.add(torch.mm(x, x), x)
"""
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*torchprof: *torch *", "*test_it.py::test_two * 2 *passed*"])


def test_all_missed_limits_are_listed_with_the_kernels_and_their_operators(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=1, forbid_kernels="aten::mm", kernels="aten::sin")
def test_two():
    torch.add(torch.mm(x, x), x)
""",
        "--torchprof-report=out.json",
    )
    result.assert_outcomes(failed=1)
    seen = {one.limit: (*one.seen, one.in_step.step, one.in_step.steps) for one in verdicts_in(Path("out.json"))}
    number, forbidden, wanted = seen["max_kernels"][0], seen["forbid_kernels"][0], seen["kernels"][0]
    assert seen == {
        "max_kernels": (NumberSeen("kernels", 2, beyond=1, on_gpu=False), 1, 5),
        "forbid_kernels": (ForbiddenMatches(1, "kernel", "aten::mm"), 1, 5),
        "kernels": (MatchesSeen(0, "kernel", "aten::sin", least=1, most=None), 1, 5),
    }
    result.stdout.fnmatch_lines(
        [
            "*3 limits missed*",
            f"*max_kernels=1*{number}*",
            "*1 x *mm *aten::mm*",
            f"*forbid_kernels=aten::mm*{forbidden}*",
            "*1 x gemm fp32 nn mm * [um]s  aten::mm *",
            f"*kernels=aten::sin*{wanted}*",
            "*do: *",
            "*recording: .torchprof*test_it.test_two.*.json.gz*",
        ],
        consecutive=False,
    )
    assert "pytest_torchprof/" not in result.stdout.str()
    assert "plugin.py" not in result.stdout.str()


def test_the_tests_own_failure_wins(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_fails():
    torch.add(x, x)
    assert 1 == 2, "mine"
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: mine*"])
    result.stdout.no_fnmatch_line("*limit*missed*")


def test_the_first_exception_stops_the_measured_code_at_once(run_tests):
    result = run_tests(
        """
calls = []
@pytest.mark.torchprof(device="cpu")
def test_raises():
    calls.append(1)
    raise ValueError("mine")

def test_count():
    assert len(calls) == 1
"""
    )
    result.assert_outcomes(failed=1, passed=1)


def test_xfail_hides_a_missed_limit(run_tests):
    result = run_tests(
        """
@pytest.mark.xfail(raises=AssertionError, strict=True)
@pytest.mark.torchprof(device="cpu", max_kernels=0, min_kernels=0)
def test_expected():
    torch.add(x, x)
"""
    )
    result.assert_outcomes(xfailed=1)


@pytest.mark.parametrize("xfail", ["xfail", "xfail(strict=True)", "xfail(raises=Exception)"])
def test_xfail_never_hides_that_nothing_was_measured(run_tests, xfail):
    result = run_tests(
        f"""
@pytest.mark.{xfail}
@pytest.mark.torchprof(device="cpu", max_launches=0)
def test_unmeasurable():
    torch.add(x, x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_launches=0*not measured: *[[]needs-gpu]*"])


def test_strict_xfail_of_a_test_that_keeps_its_limits_fails_as_always(run_tests):
    result = run_tests(
        """
@pytest.mark.xfail(strict=True)
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_kept():
    torch.add(x, x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*"])


def test_a_step_without_work_is_not_measured_unless_the_test_says_so(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_nothing():
    pass

@pytest.mark.torchprof(device="cpu", max_kernels=5, min_kernels=0)
def test_nothing_is_meant():
    pass
"""
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*max_kernels=5*not measured: *min_kernels=0*[[]nothing-ran]*"])


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ("max_kernel=5", "unknown keyword 'max_kernel'; did you mean 'max_kernels'?"),
        ("max_kernels='5'", "max_kernels='5': expected"),
        ("max_kernels=True", "max_kernels=True: expected"),
        ("max_gpu_time='5 parsec'", "max_gpu_time='5 parsec': expected"),
        ("min_gpu_utilization=2", "min_gpu_utilization=2: expected"),
        ("kernels=[]", "kernels=[]: expected"),
        ("kernels={'a': (3, 1)}", "(low, high), got (3, 1) [bad-value]"),
        ("kernels=['re:(']", "re:("),
        ("fused=[['add'], 3]", "fused="),
        ("forbid='implicit-sink'", "'implicit-sink' is no finding; did you mean 'implicit-sync'?"),
        ("steps=0", "from 1 [bad-value]"),
        ("device='tpu'", "device='tpu': expected auto, cpu, cuda or cuda:N"),
        ("record='everything'", "of stacks, modules, memory [bad-value]"),
        ("tolerance=0.1", "tolerance=0.1: expected"),
        ("tolerance={'time': 0}", '"time": expected'),
        ("tolerance={'kernels': -1}", '"kernels": expected'),
        ("tolerance={'tiem': 0.1}", "unknown tolerance 'tiem'; did you mean 'time'?"),
        ("tolerance={'time': 0.1, 'cache': 'warm'}", 'expected "hot" or "cold"'),
        ("names='normal'", "names='normal': expected exact"),
        ("5", "got 5; write e.g. max_kernels=5 [positional-argument]"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_collection(run_tests, keywords, words):
    result = run_tests(f"@pytest.mark.torchprof({keywords})\ndef test_a(): raise SystemExit('must not run')\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str() + result.stdout.str()
    assert "test_it.py::test_a" in result.stderr.str() + result.stdout.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_markers_on_module_class_function_and_parameter_are_merged_and_the_nearest_wins(run_tests, pytester):
    result = run_tests(
        """
pytestmark = pytest.mark.torchprof(device="cpu", max_kernels=0, steps=2)

@pytest.mark.torchprof(max_kernels=1)
class TestBlock:
    @pytest.mark.torchprof(warmup=1)
    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.torchprof(max_kernels=2))])
    def test_merged(self, n):
        for _ in range(n):
            torch.add(x, x)

    def test_too_many(self):
        torch.add(torch.add(x, x), x)
""",
        "--torchprof-report=report.json",
    )
    result.assert_outcomes(passed=2, failed=1)
    report = json.loads((pytester.path / "report.json").read_text())
    expected = [[limit["expected"] for limit in entry["limits"]] for entry in report["results"]]
    assert expected == [["1"], ["2"], ["1"]]


@pytest.mark.parametrize(
    "source",
    [
        """
@pytest.mark.torchprof(max_kernels=1)
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_it():
    torch.add(torch.add(x, x), x)
""",
        """
class Base:
    pytestmark = pytest.mark.torchprof(device="cpu", max_kernels=1)

@pytest.mark.torchprof(max_kernels=1)
@pytest.mark.torchprof(max_kernels=2)
class TestIt(Base):
    def test_it(self):
        torch.add(torch.add(x, x), x)
""",
        """
pytestmark = [pytest.mark.torchprof(max_kernels=2), pytest.mark.torchprof(device="cpu", max_kernels=1)]

def test_it():
    torch.add(torch.add(x, x), x)
""",
    ],
)
def test_of_several_markers_in_one_place_the_one_wins_that_is_the_closest_to_pytest(run_tests, pytester, source):
    pytester.makeconftest(
        "def pytest_collection_modifyitems(items):\n"
        "    print('closest', [item.get_closest_marker('torchprof').kwargs['max_kernels'] for item in items])\n"
    )
    result = run_tests(source, "-s")
    result.assert_outcomes(passed=1)
    if "Base" not in source:  # pytest takes a base class for the closest.
        result.stdout.fnmatch_lines(["*closest [[]2[]]*"])


def test_a_marked_test_that_asks_for_the_fixture_and_measures_nothing_is_not_measured(run_tests):
    result = run_tests(
        """
@pytest.fixture
def through(torchprof):
    return torchprof

@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_direct(torchprof):
    pass

@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_through_another_fixture(through):
    pass
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*not measured: *[[]nothing-measured]*"])


def test_a_unittest_method_is_measured_like_any_other(run_tests):
    result = run_tests(
        """
import unittest
class TestOld(unittest.TestCase):
    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_kept(self):
        torch.add(x, x)

    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_missed(self):
        torch.add(torch.add(x, x), x)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=1*2 kernels*"])


def test_without_a_gpu_limits_on_kernels_are_not_judged_and_the_test_is_skipped(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests(
        """
@pytest.mark.torchprof(max_kernels=1, max_launches=1)
def test_unjudged():
    torch.add(torch.add(x, x), x)
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*SKIPPED*body passed; {NotJudgedOnCpu(('max_kernels', 'max_launches'))}*"])


def test_without_a_gpu_what_the_cpu_can_answer_fails_the_test(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests(
        """
@torch.compile(backend="eager")
def broken(a):
    a = a + 1
    torch._dynamo.graph_break()
    return a + 1

@pytest.mark.torchprof(max_kernels=1, max_graph_breaks=0)
def test_broken(torchprof):
    profile = torchprof(broken, x)
    assert profile.kernels.count == 1
""",
        "-rs",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_graph_breaks=0*1 graph break*"])


def test_the_body_of_an_async_test_is_not_measured_and_says_what_to_do(run_tests):
    result = run_tests(
        """
@pytest.mark.xfail
@pytest.mark.torchprof(device="cpu", max_kernels=1)
async def test_async():
    torch.sin(x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["not measured: test_it.py::test_async is async*", "*torchprof.measure*unrepeatable-body*"]
    )


BODIES_CALLED_ONCE = {
    "async": "async def test_it():\n    torch.sin(x)",
    "hypothesis": "@hypothesis.given(strategies.integers(1, 2))\ndef test_it(k):\n    torch.sin(x)",
}


@pytest.mark.parametrize("body", BODIES_CALLED_ONCE.values(), ids=BODIES_CALLED_ONCE)
def test_a_body_that_cannot_be_repeated_has_a_row_in_what_the_run_reports(run_tests, pytester, monkeypatch, body):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    marker = '@pytest.mark.torchprof(device="cpu", max_kernels=1)'
    imports = "import hypothesis\nfrom hypothesis import strategies\n" if "hypothesis" in body else ""
    result = run_tests(f"{imports}{marker}\n{body}\n", "--torchprof-report=r.json", "--torchprof-report=r.md")
    result.assert_outcomes(failed=1)
    (row,) = json.loads((pytester.path / "r.json").read_text())["results"]
    assert (row["nodeid"], row["outcome"]) == ("test_it.py::test_it", "not measured")
    assert row["reason"]["reason"] == BodyUnrepeatable.__struct_config__.tag
    assert "test_it.py::test_it" in (pytester.path / "r.md").read_text()
    result.stdout.fnmatch_lines(["1 not measured", "::error file=test_it.py*unrepeatable-body*"])


SKIPS_IN_A_STEP = {
    "marker": """
        @pytest.mark.torchprof(device="cpu", max_kernels=1)
        def test_it():
            torch.sin(x)
            pytest.skip("late")
        """,
    "unittest": """
        import unittest

        class TestIt(unittest.TestCase):
            @pytest.mark.torchprof(device="cpu", max_kernels=1)
            def test_it(self):
                torch.sin(x)
                self.skipTest("late")
        """,
    "measure": """
        def test_it(torchprof):
            with torchprof.measure("part", max_kernels=1) as m:
                for _ in m.steps():
                    torch.sin(x)
                    pytest.skip("late")
        """,
    "call": """
        def test_it(torchprof):
            def step():
                torch.sin(x)
                pytest.skip("late")
            torchprof(step)
        """,
}


@pytest.mark.parametrize("body", SKIPS_IN_A_STEP.values(), ids=SKIPS_IN_A_STEP)
def test_a_step_that_skips_is_skipped_in_all_that_the_run_reports(run_tests, pytester, monkeypatch, body):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run_tests(dedent(body), "--torchprof-device=cpu", "--torchprof-report=r.json")
    result.assert_outcomes(skipped=1)
    (row,) = json.loads((pytester.path / "r.json").read_text())["results"]
    assert row["outcome"] == "skipped"
    result.stdout.fnmatch_lines(["1 not judged"])
    result.stdout.no_fnmatch_line("::error*")


def test_a_device_that_is_not_there_is_not_measured(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests(
        """
@pytest.mark.xfail
@pytest.mark.torchprof(device="cuda", max_kernels=1)
def test_cuda():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_cpu():
    torch.sin(x)
""",
        "--torchprof-report=out.json",
    )
    result.assert_outcomes(failed=1, passed=1)
    (reason,) = reasons_in(Path("out.json"))
    assert says(reason, NoGpuSeen, asked="cuda")
    assert f"not measured: {reason}" in " ".join(result.stdout.str().split())


def test_a_refused_marker_is_an_error_of_its_test_under_xdist(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernel=1)
def test_typo(): torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_fine(): torch.sin(x)
""",
        "-n",
        "1",
    )
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*unknown keyword 'max_kernel'; did you mean 'max_kernels'?*"])


def test_class_and_static_methods_are_measured_as_any_test(run_tests):
    result = run_tests("""
class TestIt:
    @classmethod
    @pytest.mark.torchprof(device="cpu", max_kernels=0, min_kernels=0)
    def test_class(cls):
        torch.sin(x)

    @staticmethod
    @pytest.mark.torchprof(device="cpu", max_kernels=1)
    def test_static():
        torch.sin(x)
""")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*max_kernels=0*1 kernel*"])


def test_a_marker_that_is_added_while_the_test_is_set_up_counts(run_tests):
    result = run_tests(
        """
@pytest.fixture(autouse=True)
def strict(request):
    request.applymarker(pytest.mark.torchprof(device="cpu", max_kernels=0, min_kernels=0))

def test_plain():
    torch.sin(x)

@pytest.mark.torchprof(max_kernels=5)
def test_marked():
    torch.sin(x)
"""
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*max_kernels=0*1 kernel*"])


def test_a_marker_that_a_hook_puts_first_is_the_nearest_whatever_equals_it(run_tests, pytester):
    pytester.makeconftest("""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.torchprof(max_kernels=1), append=False)
""")
    result = run_tests("""
@pytest.mark.torchprof(max_kernels=1)
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_twice():
    torch.add(torch.add(x, x), x)
""")
    result.assert_outcomes(failed=1)


def test_a_marker_that_a_hook_adds_before_the_setup_counts(run_tests, pytester):
    pytester.makeconftest("""
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.add_marker(pytest.mark.torchprof(device="cpu", max_kernels=0, min_kernels=0))
""")
    source = "def test_plain():\n    torch.sin(x)\n"
    marked = "@cpu\ndef test_marked():\n    torch.sin(x)\n"
    for failed, more in ((1, ""), (2, marked)):
        result = run_tests(source + more)
        result.assert_outcomes(failed=failed)
        result.stdout.fnmatch_lines(["*max_kernels=0*1 kernel*"])


IN_THE_BODY = """
strict = pytest.mark.torchprof(device="cpu", max_kernels=0)

def test_plain(request):
    request.applymarker(strict)
    torch.sin(x)

@pytest.mark.xfail
def test_expected(request):
    request.applymarker(strict)

@cpu
def test_measured(request, torchprof):
    request.applymarker(strict)
    torchprof(torch.sin, x)
"""


AFTER_A_FIXTURE = """
@pytest.fixture
def measured(torchprof, request):
    torchprof(torch.sin, x)
    request.applymarker(pytest.mark.torchprof(device="cpu", max_kernels=0))

@cpu
def test_it(measured):
    pass
"""


def test_a_marker_that_is_added_after_a_fixture_measured_is_too_late_and_no_pass(run_tests, pytester):
    result = run_tests(AFTER_A_FIXTURE, "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*[[]late-marker]*"])
    assert 'name="torchprof.outcome" value="not measured"' in (pytester.path / "junit.xml").read_text()


def test_a_marker_that_is_added_in_the_body_is_too_late_and_no_pass(run_tests):
    result = run_tests(IN_THE_BODY)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*test_it.py::test_plain: *[[]late-marker]*"])
    result.stdout.fnmatch_lines(["test_it.py::test_measured * not measured"])
    result.stdout.no_fnmatch_line("*refuse_late_marker*")
    run_tests(IN_THE_BODY, "--torchprof=off").assert_outcomes(passed=2, xpassed=1)


def test_a_marker_of_the_set_up_that_cannot_be_used_is_no_expected_failure(run_tests):
    result = run_tests("""
@pytest.fixture(autouse=True)
def odd(request):
    request.applymarker(pytest.mark.torchprof(max_kernel=1))

@pytest.mark.xfail
def test_expected():
    torch.sin(x)

@cpu
def test_marked():
    torch.sin(x)
""")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*[[]unknown-keyword]*"])


def test_a_marker_that_a_hook_adds_around_the_call_is_too_late_and_no_pass(run_tests, pytester):
    pytester.makeconftest("""
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    item.add_marker(pytest.mark.torchprof(device="cpu", max_kernels=0))
    return (yield)
""")
    result = run_tests(
        "def test_plain():\n    torch.sin(x)\n\n@pytest.mark.xfail\ndef test_expected():\n    torch.sin(x)\n"
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*[[]late-marker]*"])


@pytest.mark.any_torch
def test_ranks_that_come_after_collection_are_too_late_and_no_pass(run_tests):
    source = """
@pytest.fixture
def ranked(request):
    request.node.add_marker(pytest.mark.torchprof(ranks=2))

@pytest.mark.torchprof(device="cpu", max_kernels=9)
def test_marked(ranked):
    torch.sin(x)

def test_plain(ranked):
    torch.sin(x)
"""
    result = run_tests(source)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*test_marked: *ranks=2*late-marker*"])
    # Nor is a job of another number of ranks the one that is asked for.
    other = source.replace("ranks=2))", "ranks=3), append=False)").replace("max_kernels=9", "max_kernels=9, ranks=1")
    result = run_tests(other)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*test_marked: *ranks=3*late-marker*"])
    run_tests(source, "--torchprof=off").assert_outcomes(passed=2)


def test_a_doctest_in_a_marked_module_is_none_of_ours(run_tests):
    result = run_tests(
        '''
pytestmark = pytest.mark.torchprof(device="cpu", max_kernels=1)

def helper():
    """
    >>> helper()
    """
''',
        "--doctest-modules",
    )
    result.assert_outcomes(passed=1)


def test_a_recording_that_cannot_be_kept_hides_no_verdict(run_tests, pytester):
    (pytester.path / ".torchprof").write_text("in the way")
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_missed():
    torch.sin(x)

@pytest.mark.xfail
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_nothing():
    pass
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*max_kernels=0*1 kernel*", "*[[]nothing-ran]*"])
    result.stdout.fnmatch_lines(["torchprof: the recording * cannot be kept: *"])


def test_names_out_of_the_code_reach_the_terminal_without_their_escapes(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_missed(torchprof):
    with torchprof.measure("a\\x1b[31m\\n::error::b") as m:
        for _ in m.steps():
            torch.sin(x)
"""
    )
    result.assert_outcomes(failed=1)
    assert "\x1b[31m" not in result.stdout.str()
    assert not [line for line in result.outlines if line.startswith("::error::")]


def test_a_marked_test_without_limits_that_runs_nothing_is_not_measured(run_tests):
    source = """
@cpu
def test_it():
    pass
"""
    result = run_tests(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *step 1 of 5; *min_kernels=0 [[]nothing-ran]"])
    run_tests(source.replace("@cpu", '@pytest.mark.torchprof(device="cpu", min_kernels=0)')).assert_outcomes(passed=1)


def test_a_selector_written_as_a_text_is_refused(run_tests):
    """As a text it is in no kernel's name, so that forbidding it would hold for ever."""
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", forbid_kernels="gemm(dtype='fp32')")
def test_it():
    torch.mm(x, x)
"""
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*quotes away*from pytest_torchprof import gemm [[]bad-pattern]*"])


def test_kernels_that_left_no_event_are_not_measured_for_that_reason_whatever_the_limit(run_tests):
    result = run_tests("""
from concurrent.futures import ThreadPoolExecutor

@pytest.mark.torchprof(device="cpu", min_kernels=1)
def test_elsewhere():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.mm, x, x).result()
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*min_kernels=1*not measured: *mm *", "*[[]other-thread]*"])

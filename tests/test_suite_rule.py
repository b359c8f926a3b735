"""Rules for a whole suite: which tests they reach, how they are measured, what comes of a miss, and what is said at the end."""

from __future__ import annotations

import json
import textwrap

import bare
import pytest
from facts import of_no_use, why_not

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.compiling import BegunUnseen
from pytest_torchprof.reasons.lines import CalledOnceByRule
from pytest_torchprof.reasons.run_options import SuiteAgainstCommit
from pytest_torchprof.reasons.whole_runs import RuleWithoutTest
from pytest_torchprof.report import Disuse
from pytest_torchprof.report.account import NotJudgedOnCpu
from pytest_torchprof.testing.suite_rules import folder_of, is_sampled, matches

pytestmark = pytest.mark.any_torch

READS = 'forbid_ops = ["aten::_local_scalar_dense"]\ndevice = "cpu"\n'


@pytest.fixture
def suite(pytester, run_tests):
    """Return a function that runs tests under rules, which are TOML."""

    def run(rules, source, *args, allow="", share="1"):
        toml = f'[tool.pytest.ini_options]\nminversion = "8.0"\n{textwrap.dedent(rules)}'
        (pytester.path / "pyproject.toml").write_text(toml)
        if allow:
            (pytester.path / "torchprof_allow.toml").write_text(textwrap.dedent(allow))
        return run_tests(textwrap.dedent(source), f"--torchprof-suite={share}", *args)

    return run


def rule(body=READS, tests="*"):
    return f'[tool.torchprof.limits."{tests}"]\n{body}'


READING = """
def test_reads():
    torch.mm(x, x).sum().item()

def test_reads_nothing():
    torch.mm(x, x)
"""


def entries(**fields):
    return "[[allow]]\n" + "".join(f'{name} = "{value}"\n' for name, value in fields.items()) + "\n"


# ----------------------------------------------------------------------------------------------- which tests it reaches


@pytest.mark.parametrize(
    ("pattern", "nodeid", "reached"),
    [
        ("*", "tests/test_a.py::test_one", True),
        ("tests/*", "tests/unit/test_a.py::test_one", True),
        ("tests/*", "other/test_a.py::test_one", False),
        ("tests", "tests/unit/test_a.py::test_one", True),
        ("tests", "tests_slow/test_a.py::test_one", False),
        ("tests/test_a.py", "tests/test_a.py::TestIt::test_one", True),
        ("tests/test_a.py::test_one", "tests/test_a.py::test_one[2]", True),
        ("tests/test_a.py::test_one", "tests/test_a.py::test_one_more", False),
        ("tests/test_a.py::test_one[2]", "tests/test_a.py::test_one[2]", True),
        ("tests/test_a.py::test_one[?]", "tests/test_a.py::test_one[2]", True),
        ("tests/test_a.py::test_one[?]", "tests/test_a.py::test_one2", False),
        ("*::test_decode*", "tests/test_a.py::test_decode_long", True),
    ],
)
def test_a_pattern_reaches_node_ids_as_they_are_written(pattern, nodeid, reached):
    assert matches(pattern, nodeid) is reached


@pytest.mark.parametrize(
    ("pattern", "below"),
    [
        ("*", ""),
        ("tests/*", "tests"),
        ("tests/unit/test_a*", "tests/unit"),
        ("tests/test_a.py::test_*", "tests/test_a.py"),
    ],
)
def test_the_folder_of_a_pattern_holds_all_that_it_can_reach(pattern, below):
    assert folder_of(pattern) == below


def test_without_the_option_no_test_is_measured(suite, pytester, run_tests):
    suite(rule(), READING)
    run_tests(READING).assert_outcomes(passed=2)


def test_a_failure_names_its_rule_and_where_exceptions_stand(suite):
    result = suite(rule(tests="*reads"), READING)
    result.stdout.fnmatch_lines(['*pyproject.toml: [[]tool.torchprof.limits."*reads"]*torchprof_allow.toml*'])


def test_exceptions_are_named_where_the_list_has_any_for_the_limit(suite):
    named = "*exceptions*torchprof_allow.toml*"
    suite(rule(), READING).stdout.fnmatch_lines([named])
    suite(rule('max_kernels = 0\ndevice = "cpu"\n'), READING).stdout.no_fnmatch_line(named)


READ = ForbiddenMatches(1, "operator", "aten::_local_scalar_dense")


def test_a_test_without_a_marker_fails_by_a_rule(suite):
    result = suite(rule(), READING)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*test_reads*", f"*{READ}"])


def test_a_failure_says_how_its_lines_are_recorded_and_then_has_them(suite):
    without = "\n".join(suite(rule(), READING).outlines)
    why, _, what_to_do = without.partition("  do: ")
    assert f"lines: not known: {CalledOnceByRule().sentence}" in why
    assert "stacks" not in why
    assert '  do: for the lines, write record = ["stacks"] into the rule\n' in what_to_do
    assert "do: at test_it.py:" not in without
    recorded = "\n".join(suite(rule(f'{READS}record = ["stacks"]\n'), READING).outlines)
    assert "1 x aten::_local_scalar_dense  test_it.py:" in recorded
    assert "do: at test_it.py:" in recorded
    assert "lines: not known" not in recorded


def test_a_rule_reaches_methods_of_unittest_and_each_parameter(suite):
    result = suite(
        rule(),
        """
        import unittest

        class TestIt(unittest.TestCase):
            def test_method(self):
                x.sum().item()

        @pytest.mark.parametrize("reads", [True, False])
        def test_parameter(reads):
            torch.mm(x, x)
            if reads:
                x.sum().item()
        """,
    )
    result.assert_outcomes(failed=2, passed=1)


def test_a_test_is_called_once_whatever_it_misses(suite):
    result = suite(
        rule(),
        """
        calls = []
        def test_reads():
            calls.append(1)
            x.sum().item()

        def test_count():
            x + x
            assert len(calls) == 1
        """,
        "--torchprof-steps=4",
        "-p", "no:randomly",
    )  # fmt: skip
    result.assert_outcomes(failed=1, passed=1)


def test_a_test_in_which_nothing_runs_is_not_measured_unless_the_rule_says_so(suite):
    source = "def test_empty():\n    pass\n"
    suite(rule(), source).stdout.fnmatch_lines(["*not measured*"])
    suite(rule(f"{READS}min_kernels = 0\n"), source).assert_outcomes(passed=1)


def test_what_cannot_be_measured_on_the_device_is_not_measured(suite):
    result = suite(rule('max_syncs = 0\ndevice = "cpu"\n'), READING)
    result.assert_outcomes(failed=2)
    warned = suite(rule('max_syncs = 0\ndevice = "cpu"\nmode = "warn"\n'), READING)
    warned.assert_outcomes(passed=2)
    warned.stdout.fnmatch_lines(["warned of:", "*test_reads: max_syncs=0: not measured*", "2 warned of"])


# ------------------------------------------------------------------------------------------------------------- the modes


def test_a_test_that_is_not_judged_without_a_gpu_is_skipped_at_its_own_line(suite, pytester):
    result = suite(rule("max_kernels = 3\n"), READING, "-rs")
    result.assert_outcomes(skipped=2)
    source = (pytester.path / "test_it.py").read_text()
    line = source[: source.index("def test_reads()")].count("\n") + 1
    result.stdout.fnmatch_lines([f"SKIPPED * test_it.py:{line}: *{NotJudgedOnCpu(('max_kernels',))}*"])


def test_a_rule_that_warns_fails_no_test_and_the_summary_says_which_missed_it(suite):
    result = suite(rule(f'{READS}mode = "warn"\n'), READING, "--torchprof-report=report.json")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["warned of:", "  test_it.py::test_reads: forbid_ops=*", "1 passed, 1 warned of"])


def test_the_report_has_what_was_warned_of(suite, pytester):
    suite(rule(f'{READS}mode = "warn"\n'), READING, "--torchprof-report=report.json")
    results = json.loads((pytester.path / "report.json").read_text())["results"]
    assert {own["nodeid"]: own["outcome"] for own in results} == {
        "test_it.py::test_reads": "warned",
        "test_it.py::test_reads_nothing": "passed",
    }
    assert [verdict["status"] for verdict in results[0]["limits"]] == ["missed"]


COMPILES = """
import sys

def breaks(x):
    torch.mm(x, x)
    torch._dynamo.graph_break()
    return x + 1

def test_compiles():
    assert "torch._inductor" not in sys.modules
    torch.compile(breaks, backend="eager")(x)
"""


OWN_OPERATOR = """
import torch

@torch.library.custom_op("mine::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2

def test_halves():
    half(torch.ones(4))
"""
ADDS = """
import torch

def test_adds():
    torch.ones(4) + 1
"""
NAMES_MODULES = """
import sys

def pytest_unconfigure():
    print("loaded:", *(name for name in sys.modules if name.startswith("pytest_torchprof.")))
"""


@pytest.fixture(scope="module")
def where_little_is_loaded(tmp_path_factory):
    """Return the folder and the result of a run by what its test does, in processes that have not imported the compiler."""
    forbids = rule('forbid_ops = ["aten::mm"]\ndevice = "cpu"\n')
    tests = {
        "compiles": (forbids, f"import torch\n\nx = torch.ones(4, 4)\n{COMPILES}"),
        "calls its operator": (forbids, OWN_OPERATOR),
        "adds": (rule(READS), ADDS),
    }
    runs = {}
    for what, (rules, source) in tests.items():
        folder = tmp_path_factory.mktemp("bare")
        (folder / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{rules}")
        (folder / "test_it.py").write_text(source)
        (folder / "conftest.py").write_text(NAMES_MODULES)
        report = ["--torchprof-report=r.json"] if what == "compiles" else []
        runs[what] = (folder, ["--torchprof-suite", "-s", *report])
    results = bare.run_pytests(*runs.values())
    return {what: (folder, result) for (what, (folder, _)), result in zip(runs.items(), results, strict=True)}


def test_a_rule_for_operators_neither_loads_the_compiler_nor_says_what_it_did(where_little_is_loaded):
    folder, result = where_little_is_loaded["compiles"]
    result.assert_outcomes(failed=1)
    (recording,) = (folder / "torchprof-recordings").glob("*.json*")
    profile = load(recording)
    assert dict(profile.steps[0].ops_that_ran)["aten::mm"] == 1
    assert isinstance(why_not(lambda: profile.expect(max_graph_breaks=5)), BegunUnseen)


def test_what_the_first_call_of_an_operator_imports_is_no_work_of_the_test(where_little_is_loaded):
    _, result = where_little_is_loaded["calls its operator"]
    result.assert_outcomes(passed=1)


def test_a_rule_that_every_test_keeps_to_loads_nothing_that_compares_commits_or_names_kernels(where_little_is_loaded):
    _, result = where_little_is_loaded["adds"]
    result.assert_outcomes(passed=1)
    (line,) = (line for line in result.outlines if line.startswith("loaded:"))
    loaded = {name.removeprefix("pytest_torchprof.") for name in line.split()[1:]}
    assert "recording.reader" in loaded
    assert loaded.isdisjoint({"against.git", "against.outcomes", "kernels.names.cutlass", "capture.torch_inductor"})


def test_a_rule_for_the_compiler_sees_what_the_only_call_compiles(suite):
    breaks = rule('max_graph_breaks = 0\ndevice = "cpu"\n')
    source = COMPILES.replace('assert "torch._inductor" not in sys.modules', "")
    result = suite(breaks, source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_graph_breaks=0*1*"])


def test_the_report_has_of_a_test_that_keeps_to_a_rule_its_verdicts_and_of_one_that_fails_all(suite, pytester):
    suite(rule(), READING, "--torchprof-report=r.json").assert_outcomes(failed=1, passed=1)
    results = json.loads((pytester.path / "r.json").read_text())["results"]
    reads, reads_nothing = sorted(results, key=lambda result: result["nodeid"])
    assert [verdict["status"] for verdict in reads_nothing["limits"]] == ["holds"]
    assert not reads_nothing["kernels"]
    assert reads["kernels"]


@pytest.mark.parametrize(
    "switch",
    [
        "torch._C._autograd._toggle_collection_dynamic({}, {{torch.profiler.ProfilerActivity.CPU}})",
        "torch.autograd.profiler._toggle_collection_dynamic({}, {{torch.profiler.ProfilerActivity.CPU}})",
        "torch.autograd._enable_record_function({})",
        "torch._C._autograd._enable_record_function({})",
    ],
)
def test_a_test_that_switches_the_profiler_s_collection_off_is_not_measured(suite, switch):
    result = suite(
        rule(),
        f"""
        def test_hides():
            torch.mm(x, x)
            {switch.format(False)}
            x.sum().item()
            {switch.format(True)}
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured*test_it.py:*another-profiler*"])


@pytest.mark.parametrize(("mode", "outcome"), [("warn", {"passed": 1}), ("fail", {"failed": 1})])
def test_a_test_that_uses_the_profiler_itself_is_not_measured(suite, mode, outcome):
    result = suite(
        rule(f'{READS}mode = "{mode}"\n'),
        """
        from torch.profiler import profile

        def test_profiles():
            with profile() as profiler:
                torch.mm(x, x)
            assert any(event.key == "aten::mm" for event in profiler.key_averages())
        """,
    )
    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(["*another-profiler*"])


def test_a_test_that_cannot_be_measured_runs_all_the_same_where_the_rule_warns(suite):
    result = suite(
        rule(f'{READS}mode = "warn"\n'),
        """
        hypothesis = pytest.importorskip("hypothesis")
        ran = []

        @hypothesis.given(hypothesis.strategies.integers())
        def test_any(n):
            ran.append(n)

        def test_it_ran():
            x + x
            assert ran
        """,
        "-p", "no:randomly",
    )  # fmt: skip
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_any: not measured*hypothesis*"])


def test_a_test_that_fails_skips_or_is_expected_to_fail_stays_what_it_is_where_the_rule_warns(suite):
    result = suite(
        rule(f'{READS}mode = "warn"\n'),
        """
        def test_fails():
            assert x.sum().item() < 0

        def test_skips():
            pytest.skip("not here")

        @pytest.mark.xfail
        def test_expected():
            assert x.sum().item() < 0
        """,
    )
    result.assert_outcomes(failed=1, skipped=1, xfailed=1)


@pytest.mark.parametrize("mode", ["fail", "warn"])
def test_a_test_that_skips_fails_or_is_expected_to_fail_is_counted_as_pytest_does(suite, pytester, mode):
    source = """
import unittest

def test_skips():
    torch.mm(x, x)
    pytest.skip("not here")

@pytest.mark.xfail
def test_xfails():
    torch.mm(x, x)
    assert False

def test_raises():
    raise ValueError("own")

class TestIt(unittest.TestCase):
    def test_skips(self):
        self.skipTest("not here")
"""
    result = suite(rule(f'{READS}mode = "{mode}"\n'), source, "--torchprof-report=report.json")
    result.assert_outcomes(skipped=2, xfailed=1, failed=1)
    rows = json.loads((pytester.path / "report.json").read_text())["results"]
    came = {row["nodeid"].partition("::")[2]: row["outcome"] for row in rows}
    skipped = {name: came.pop(name) for name in ("test_skips", "TestIt::test_skips")}
    assert set(skipped.values()) == {"skipped"}
    assert came == {"test_raises": "error", "test_xfails": "xfailed"}


def test_of_two_rules_each_has_its_mode(suite):
    result = suite(
        rule(f'{READS}mode = "warn"\n') + rule("max_kernels = 1\n", tests="test_it.py"),
        """
        def test_reads():
            x.sum().item()

        def test_launches():
            torch.mm(x, x).sum()
        """,
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: max_kernels*", "*test_reads: forbid_ops=*"])


# -------------------------------------------------------------------------------------------------- markers and fixtures


def test_of_each_limit_the_marker_s_holds_and_what_it_leaves_open_is_the_rule_s(suite):
    result = suite(
        rule(f"{READS}max_kernels = 1\n"),
        """
        @pytest.mark.torchprof(device="cpu", max_kernels=5)
        def test_may_launch_more():
            torch.mm(x, x) + x

        @pytest.mark.torchprof(device="cpu", max_kernels=5)
        def test_may_not_read():
            x.sum().item()
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: forbid_ops*"])


@pytest.mark.parametrize(
    ("limits", "outcomes"),
    [
        ("max_kernels = 0", {"failed": 1}),
        ("max_kernels = 9", {"skipped": 1}),
        ("ranges.inside.max_kernels = 0", {"failed": 1}),
        ('max_kernels = 0\nmode = "warn"', {"skipped": 1}),
    ],
)
def test_a_rule_for_the_cpu_is_judged_beside_a_marker_that_is_not_without_a_gpu(suite, limits, outcomes):
    source = """
@pytest.mark.torchprof(max_memcpys=3)
def test_multiplies():
    with torch.profiler.record_function("inside"):
        torch.mm(x, x)
"""
    result = suite(rule(f'device = "cpu"\n{limits}\n'), source, "-rs")
    result.assert_outcomes(**outcomes)
    if "skipped" in outcomes:
        result.stdout.fnmatch_lines(["*max_memcpys*"])
        result.stdout.no_fnmatch_line("SKIPPED*max_kernels*")
    if "warn" in limits:
        result.stdout.fnmatch_lines(["warned of:", "*test_multiplies: max_kernels=0*"])


def test_a_rule_for_the_cpu_judges_a_marker_s_test_whose_own_limits_need_no_gpu(suite):
    source = """
@pytest.mark.torchprof(max_graph_breaks=0)
def test_multiplies():
    torch.compile(torch.mm, backend="eager")(x, x)
"""
    suite(rule('device = "cpu"\nmax_kernels = 0\n'), source).assert_outcomes(failed=1)
    suite(rule('device = "cpu"\nmax_kernels = 9\n'), source).assert_outcomes(passed=1)


def test_a_marked_test_is_called_as_often_as_without_a_rule(suite):
    result = suite(
        rule("max_kernels = 1\n"),
        """
        calls = []
        @pytest.mark.torchprof(device="cpu", warmup=1, steps=2, max_kernels=5)
        def test_marked():
            calls.append(1)
            x + x

        @pytest.mark.torchprof(device="cpu", max_kernels=5)
        def test_count():
            x + x
            assert len(calls) == 3
        """,
        "-p", "no:randomly",
    )  # fmt: skip
    result.assert_outcomes(passed=2)


def test_a_rule_that_warns_takes_nothing_from_a_marker_s_limits(suite):
    result = suite(
        rule(f'{READS}mode = "warn"\n'),
        """
        @pytest.mark.torchprof(device="cpu", max_kernels=1)
        def test_both():
            (x + x).sum().item()
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 limit missed: max_kernels*"])


def test_what_the_fixture_measures_is_judged_by_the_rule_and_measuring_nothing_is_no_pass(suite):
    result = suite(
        rule(READS),
        """
        def test_measures(torchprof):
            torchprof(lambda: x.sum().item())

        def test_does_not(torchprof):
            pass
        """,
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*1 limit missed: forbid_ops*", "*nothing-measured*"])


# ------------------------------------------------------------------------------------------------------ the end of the run


def test_a_marker_s_own_limit_fails_its_test_whatever_a_rule_says_of_that_limit(suite):
    result = suite(
        rule(READS + 'mode = "warn"'),
        """
        @pytest.mark.torchprof(device="cpu", forbid_ops=["aten::_local_scalar_dense"])
        def test_it():
            torch.mm(x, x).sum().item()
        """,
    )
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("marker", ["", "@pytest.mark.torchprof(device='cpu', ranges={'b': {'max_kernels': 9}})"])
def test_limits_in_ranges_join_one_by_one(suite, marker):
    result = suite(
        rule('ranges.a.max_kernels = 0\ndevice = "cpu"\n')
        + rule('ranges.b.max_kernels = 9\ndevice = "cpu"\n', tests="*::test_it"),
        f"""
        {marker}
        def test_it():
            with torch.profiler.record_function("a"):
                torch.mm(x, x)
            with torch.profiler.record_function("b"):
                torch.mm(x, x)
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*max_kernels=0 in "a"*'])


@pytest.mark.parametrize(("mode", "outcomes"), [("warn", {"passed": 1}), ("fail", {"failed": 1})])
def test_a_rule_that_warns_does_not_fail_a_test_that_leaves_its_fixture_unused(suite, mode, outcomes):
    result = suite(rule(f'{READS}mode = "{mode}"'), "def test_it(torchprof):\n    torch.mm(x, x)\n")
    result.assert_outcomes(**outcomes)


RANGES = """
@pytest.mark.parametrize("name", ["decode", "decode_last", "prefill"])
def test_range(name):
    with torch.profiler.record_function(name):
        torch.mm(x, x)
"""


@pytest.mark.parametrize(
    ("tests", "rules", "failed", "passed"),
    [
        ("*decode*", {"decode*": 0}, 2, 0),
        ("*decode_last*", {"decode?last": 0}, 1, 0),
        ("*", {"*": 0}, 3, 0),
        ("*", {"*": 1}, 0, 3),
        ("*", {"*": 0, "decode": 1}, 2, 1),
        ("*", {"decode": 1, "*": 0}, 2, 1),
        ("*", {"*": 0, "decode*": 1}, 1, 2),
    ],
)
def test_a_pattern_stands_for_the_ranges_of_a_test_and_a_name_wins_over_it(suite, tests, rules, failed, passed):
    limits = "".join(f'ranges."{name}".max_kernels = {most}\n' for name, most in rules.items())
    result = suite(rule(f'device = "cpu"\n{limits}', tests=tests), RANGES, "-k", tests.strip("*"))
    result.assert_outcomes(failed=failed, passed=passed, deselected=3 - failed - passed)


def test_a_pattern_that_stands_for_no_range_of_a_test_is_not_measured(suite):
    result = suite(rule('device = "cpu"\nranges."step*".max_kernels = 9\n'), RANGES)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*not measured*"])


def test_a_pattern_of_a_rule_that_warns_warns_of_each_range(suite):
    result = suite(rule('device = "cpu"\nmode = "warn"\nranges."*".max_kernels = 0\n'), RANGES)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*3 warned of*"])


@pytest.mark.parametrize("marker", ["decode", "dec*"])
@pytest.mark.parametrize("ruled", ["decode", "d*"])
def test_a_marker_s_limit_in_a_range_fails_whatever_name_or_pattern_of_a_rule_warns(suite, marker, ruled):
    result = suite(
        rule(f'mode = "warn"\nranges."{ruled}".max_kernels = 9\n'),
        f"""
        @pytest.mark.torchprof(device="cpu", ranges={{"{marker}": {{"max_kernels": 0}}}})
        def test_range():
            with torch.profiler.record_function("decode"):
                torch.mm(x, x)
        """,
    )
    result.assert_outcomes(failed=1)


def test_with_testpaths_a_rule_for_what_is_outside_of_them_is_a_typo(pytester):
    toml = '[tool.pytest.ini_options]\ntestpaths = ["unit"]\n' + rule(tests="test/*")
    (pytester.path / "pyproject.toml").write_text(toml)
    (pytester.path / "unit").mkdir()
    (pytester.path / "unit" / "test_it.py").write_text("def test_it(): pass\n")
    result = pytester.runpytest_subprocess("--torchprof-suite")
    assert result.ret != pytest.ExitCode.OK
    assert f"[{RuleWithoutTest.CODE}]" in result.stdout.str()


def test_a_run_of_other_tests_says_that_no_rule_measured_one(suite):
    result = suite(rule(tests="other/*"), "def test_it():\n    torch.mm(x, x)\n", "test_it.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no test of this run is one that a rule*"])


def test_a_rule_that_reaches_no_test_fails_the_run_as_a_typo_would(suite):
    result = suite(rule() + rule(tests="tset_it.py"), "def test_one():\n    x + x\n")
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f'*"tset_it.py"*[[]{RuleWithoutTest.CODE}]'])


def test_a_rule_for_files_that_were_not_collected_is_no_typo(suite, pytester):
    pytester.makepyfile(test_other="def test_two(): pass")
    result = suite(rule() + rule(tests="test_other.py"), "def test_one():\n    x + x\n", "test_it.py")
    assert result.ret == 0


def test_a_doctest_that_a_rule_reaches_does_not_pass_unseen(suite, pytester):
    pytester.makefile(".txt", test_doc=">>> 1 + 1\n2\n")
    result = suite(rule(), "def test_one():\n    x + x\n")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_doc.txt::test_doc.txt*nothing-measured*"])
    warned = suite(rule(f'{READS}mode = "warn"\n'), "def test_one():\n    x + x\n")
    assert warned.ret == 0
    warned.stdout.fnmatch_lines(["*test_doc.txt::test_doc.txt*"])


def test_the_header_says_under_which_rules_the_run_is(suite):
    result = suite(rule(), READING, share="0.5")
    result.stdout.fnmatch_lines(["torchprof: 1 rule for the suite (pyproject.toml, 50% of the tests)"])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "*no rule in *pyproject.toml*"),
        (rule("max_kernel = 1\n"), '*"[*]"]: *max_kernel*max_kernels*'),
        (rule("max_kernels = -1\n"), "*max_kernels=-1*"),
        (rule('mode = "strict"\n'), "*mode = 'strict'*"),
        (rule('mode = "warn"\n'), "*has no limit*"),
        (rule("allow_syncs = ['aten::item']\n"), "*allow_syncs*max_syncs*"),
        ("[tool.torchprof]\nlimits = 3\n", "*is 3*"),
        (rule(f"{READS}steps = 0\n"), '*pyproject.toml: [[]*"[*]"]: steps=0*'),
        (rule('max_kernels = 1\ndevice = "gpu"\n', tests="of_no_test"), '*"of_no_test"]: device=*'),
        (rule() + rule().replace(".limits.", ".limit."), "*[[]tool.torchprof.limit]*[[]tool.torchprof.limits]*"),
        ("[tool.torchprof.limits]\nmax_syncs = 0\n", "*is 0*"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_at_once(suite, rules, message):
    result = suite(rules, READING)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    "limit",
    [
        """forbid_kernels = 'gemm(dtype="fp32")'""",
        """forbid_kernels = ['conv()', 'gemm()']""",
        """only_kernels = 'family("conv")'""",
        """kernels = {'gemm()' = 3}""",
        """ranges = {inside = {forbid_kernels = 'gemm()'}}""",
    ],
)
def test_selectors_in_a_rule_are_read_as_on_a_command_line(suite, limit):
    source = """
def test_multiplies():
    with torch.profiler.record_function("inside"):
        torch.mm(x, x)
"""
    result = suite(rule(f'device = "cpu"\n{limit}\n'), source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*only_kernels=family*" if "only" in limit else "*kernels=*gemm*"])


@pytest.mark.parametrize("value", ["'gemmm()'", "['gemmm()']", "{'gemmm()' = 1}", "'[gemm(dtype=\"fp32\")'"])
def test_a_selector_in_a_rule_that_is_none_is_refused_at_once(suite, value):
    result = suite(rule(f'device = "cpu"\nmin_kernels = 0\nkernels = {value}\n'), READING)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pyproject.toml*kernels*gemm*"])


def test_a_share_that_cannot_be_is_refused_by_the_name_under_which_it_stands(pytester):
    pytester.makeini("[pytest]\ntorchprof_suite = 2")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*torchprof_suite in *: *got '2'*"])
    result = pytester.runpytest_inprocess("--torchprof-suite=3")
    result.stderr.fnmatch_lines(["*--torchprof-suite: *got '3'*"])


def test_a_path_behind_the_option_is_not_taken_for_a_share(suite):
    result = suite(rule(), READING, share="tests")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--torchprof-suite=1*"])


# ---------------------------------------------------------------------------------------------------------- the allow list


ALLOWED = entries(test="test_it.py::test_reads", operator="aten::_local_scalar_dense", reason="shown to the user")

UNNEEDED = of_no_use(Disuse.UNNEEDED)


def test_what_the_list_allows_passes_in_the_tests_that_it_names(suite):
    source = READING + "\ndef test_reads_too():\n    x.sum().item()\n"
    result = suite(rule(), source, allow=ALLOWED)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED*test_reads_too*"])
    result.stdout.no_fnmatch_line(f"*{UNNEEDED}*")


def test_a_line_is_allowed_where_lines_are_recorded(suite):
    source = """
def test_reads():
    read()

def read():
    x.sum().item()
"""
    allow = entries(test="*", line="test_it.py", reason="the whole file may")
    suite(rule(f'{READS}record = ["stacks"]\n'), source, allow=allow).assert_outcomes(passed=1)
    other = entries(test="*", line="other.py", reason="not this one")
    suite(rule(f'{READS}record = ["stacks"]\n'), source, allow=other).assert_outcomes(failed=1)
    unknown = suite(rule(), source, allow=allow)
    unknown.assert_outcomes(failed=1)
    unknown.stdout.fnmatch_lines(["*not measured*"])


NOT_NEEDED = entries(test="*", operator="aten::nonzero", reason="it was there once")


def test_an_entry_that_no_test_needed_is_told_of(suite):
    result = suite(rule(), READING, allow=ALLOWED + NOT_NEEDED)
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"torchprof_allow.toml: {UNNEEDED}: aten::nonzero in *"])
    result.stdout.no_fnmatch_line(f"*{UNNEEDED}*_local_scalar_dense*")


@pytest.mark.parametrize(
    "words", ["-k nothing", "test_it.py::test_reads_nothing", "--deselect test_it.py::test_reads_nothing"]
)
def test_nothing_is_said_of_the_list_by_a_run_that_did_not_look_at_every_test(suite, words):
    result = suite(rule(), READING, *words.split(), allow=ALLOWED + NOT_NEEDED)
    result.assert_outcomes(passed=1, deselected=int(words.startswith("-")))
    result.stdout.no_fnmatch_line(f"*{UNNEEDED}*")


def test_nothing_is_said_of_the_list_by_a_run_that_samples(suite):
    result = suite(rule(), READING, allow=ALLOWED + NOT_NEEDED, share="0.999")
    result.stdout.no_fnmatch_line(f"*{UNNEEDED}*")


def test_nothing_is_said_of_an_entry_whose_test_was_skipped(suite):
    source = READING + "\ndef test_other():\n    pytest.skip('not today')\n"
    result = suite(rule(), source, allow=ALLOWED + NOT_NEEDED)
    result.stdout.no_fnmatch_line(f"*{UNNEEDED}*")


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        (entries(test="*", operator="aten::item"), "*reason*"),
        (entries(test="*", operator="aten::item", reason=" "), "*entry 1*no reason*"),
        (entries(test="*", operator="aten::item", range="a", reason="b"), "*exactly one*"),
        (entries(test="*", reason="b"), "*exactly one*"),
        (entries(test="*", line="aten::item", reason="b"), "*'aten::item'*"),
        (entries(test="*", opertor="aten::item", reason="b"), "*opertor*"),
        ("allow = [\n", "*cannot be read*"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_at_once(suite, allow, message):
    result = suite(rule(), READING, allow=allow)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_rules_and_a_comparison_with_a_commit_exclude_each_other(suite):
    result = suite(rule(), READING, "--torchprof-against=main")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(SuiteAgainstCommit()) in result.stderr.str()


def test_the_command_writes_the_list_from_a_report_and_leaves_what_is_there(suite, pytester, capsys):
    source = READING + "\n@pytest.mark.parametrize('n', [1, 2])\ndef test_many(n):\n    x.sum().item()\n"
    suite(rule(), source, "--torchprof-report=report.json", allow=ALLOWED)
    assert main(["allow", "--from", "report.json", "--reason", "there before"]) == 0
    text = (pytester.path / "torchprof_allow.toml").read_text()
    assert text.startswith(ALLOWED.rstrip())
    assert text.count("[[allow]]") == 2
    assert 'test = "test_it.py::test_many"' in text
    suite(rule(), source).assert_outcomes(passed=4)
    assert main(["allow", "--from", "report.json", "--reason", " "]) == 2


def test_the_command_leaves_out_what_a_marker_forbids_since_the_list_cannot_let_it_pass(suite, pytester, capsys):
    source = f"""{READING}
@pytest.mark.torchprof(device="cpu", forbid_ops=["aten::_local_scalar_dense"])
def test_may_not_read():
    x.sum().item()

@pytest.mark.torchprof(device="cpu", max_kernels=500)
def test_the_rule_forbids():
    x.sum().item()
"""
    suite(rule(), source, "--torchprof-report=report.json")
    main(["allow", "--from", "report.json", "--reason", "there before"])
    text = (pytester.path / "torchprof_allow.toml").read_text()
    assert "test_reads" in text
    assert "test_the_rule_forbids" in text
    assert "test_may_not_read" not in text
    printed = capsys.readouterr().out
    assert "test_it.py::test_may_not_read" in printed
    assert "allow_ops" in printed
    suite(rule(), source).assert_outcomes(passed=3, failed=1)


def test_by_line_the_command_names_the_tests_whose_lines_nobody_recorded(suite, pytester, capsys):
    suite(rule(), READING, "--torchprof-report=report.json")
    main(["allow", "--from", "report.json", "--reason", "there before", "--by", "line"])
    assert not (pytester.path / "torchprof_allow.toml").exists()
    printed = capsys.readouterr().out
    assert "test_it.py::test_reads," in printed
    assert "stacks" in printed


# ---------------------------------------------------------------------------------------------------------------- sampling


def test_the_same_tests_are_sampled_everywhere_and_a_larger_share_has_those_of_a_smaller_one():
    ids = [f"tests/test_a.py::test_{number}" for number in range(1000)]
    fifth = [own for own in ids if is_sampled(own, 0.2)]
    assert fifth[:3] == ["tests/test_a.py::test_10", "tests/test_a.py::test_20", "tests/test_a.py::test_24"]
    assert 150 < len(fifth) < 250
    assert {own for own in ids if is_sampled(own, 0.5)} > set(fifth)
    assert all(is_sampled(own, 1) for own in ids)


def test_a_sampled_run_measures_its_share_and_runs_all(suite, pytester):
    source = "@pytest.mark.parametrize('n', range(40))\ndef test_many(n):\n    x + x\n"
    result = suite(rule(), source, "--torchprof-report=report.json", share="0.2")
    result.assert_outcomes(passed=40)
    measured = {own["nodeid"] for own in json.loads((pytester.path / "report.json").read_text())["results"]}
    assert measured == {
        f"test_it.py::test_many[{n}]" for n in range(40) if is_sampled(f"test_it.py::test_many[{n}]", 0.2)
    }


# ------------------------------------------------------------------------------------------------- with others' machinery


def test_workers_measure_and_the_end_of_the_run_knows_it(suite):
    pytest.importorskip("xdist")
    result = suite(
        rule(f'{READS}mode = "warn"\n') + rule(tests="tset_it.py"), READING, "-n2", allow=ALLOWED + NOT_NEEDED
    )
    result.assert_outcomes(passed=2)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*aten::nonzero in *", f"*[[]{RuleWithoutTest.CODE}]"], consecutive=False)


def test_a_test_that_is_run_again_is_judged_again(suite):
    pytest.importorskip("pytest_rerunfailures")
    result = suite(
        rule(),
        """
        runs = []
        def test_reads_at_first():
            runs.append(1)
            torch.mm(x, x)
            if len(runs) == 1:
                x.sum().item()
        """,
        "--reruns=1",
    )
    result.assert_outcomes(passed=1)


def test_an_exception_of_an_operator_stands_in_a_marker_too(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", forbid_ops=["aten::item", "aten::_local_scalar_dense"], allow_ops="aten::item")
def test_half():
    x.sum().item()
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{READ}*"])
    result.stdout.no_fnmatch_line("*matches aten::item*")


MARKED = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_marked(torchprof):
    torchprof(torch.mm, x, x)
"""


def test_a_failure_of_a_test_that_asks_for_nothing_itself_says_where_it_stands(suite, pytester):
    result = suite(rule(), READING + MARKED)
    source = (pytester.path / "test_it.py").read_text().splitlines()
    at = source.index("def test_reads():") + 1
    assert [line for line in result.outlines if line.startswith("  test: ")] == [f"  test: test_it.py:{at}"]

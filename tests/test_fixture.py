"""The fixture: measured calls, measured blocks, and the Profile they return."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from facts import reasons_in

from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.asked_wrongly import OptionOfMarker
from pytest_torchprof.reasons.measuring import ReturnsWork, StepsLeft, StepsNotStarted
from pytest_torchprof.reasons.misuse import FixtureTooLate, LabelTwice, MeasuresInside
from pytest_torchprof.reasons.skips import LookedAtNumber, MeasuringIsOff
from pytest_torchprof.reasons.testing import NeverEntered
from pytest_torchprof.report.account import BodyFailed, NotJudgedOnCpu


def test_a_measured_call_returns_a_profile_with_the_result_of_the_last_call(run_tests):
    result = run_tests(
        """
@cpu
def test_call(torchprof):
    calls = []
    def fn(a, *, b):
        calls.append(1)
        return torch.add(a, b), len(calls)
    profile = torchprof(fn, x, b=x)
    assert len(calls) == 8
    assert profile.result[1] == 8
    assert profile.kernels.count == profile.kernels.matching("aten::add").count == 1
    assert len(profile.steps) == 5
"""
    )
    result.assert_outcomes(passed=1)


def test_blocks_have_labels_and_limits_of_their_own_beside_the_markers(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_phases(torchprof):
    with torchprof.measure("prefill") as m:
        for _ in m.steps():
            torch.add(torch.add(x, x), x)
    assert m.profile.kernels.count == 2
    with torchprof.measure("decode", max_kernels=1) as m:
        for _ in m.steps():
            torch.add(torch.add(x, x), x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*decode: 1 limit missed*", "*max_kernels=1*2 kernels*"])
    result.stdout.fnmatch_lines(["*test_phases (prefill) *passed*", "*test_phases (decode) *failed*"])
    result.stdout.no_fnmatch_line("*prefill: *missed*")


def test_what_the_profile_of_a_block_has_is_asked_of_the_profile(run_tests):
    result = run_tests(
        """
@cpu
def test_profile(torchprof):
    with torchprof.measure("a") as m:
        assert not hasattr(m, "kernels")
        for _ in m.steps():
            x + x
    with pytest.raises(AttributeError, match=r"m\\.profile\\.expect"):
        m.expect(max_kernels=1)
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        m.nothing
"""
    )
    result.assert_outcomes(passed=1)


def test_a_call_with_arguments_that_it_does_not_take_is_shown_one_that_is_right(run_tests):
    result = run_tests(
        """
from pytest_torchprof import TorchprofError

@cpu
def test_calls(torchprof):
    with pytest.raises(TorchprofError, match=r"write expect\\(max_kernels=5\\)"):
        torchprof(torch.add, x, x).expect({"max_kernels": 5})
    with pytest.raises(TorchprofError, match=r'write torchprof\\.measure\\("prefill"\\)'):
        torchprof.measure(name="decode")
"""
    )
    result.stdout.fnmatch_lines(["*test_calls*fixture-misuse*"])


def test_what_a_block_lacks_is_shown_at_the_line_of_the_test_alone(run_tests):
    result = run_tests(
        """
@cpu
def test_asked(torchprof):
    with torchprof.measure("a") as m:
        for _ in m.steps():
            x + x
    m.expect(max_kernels=1)
"""
    )
    result.stdout.fnmatch_lines(["*AttributeError: *m.profile.expect"])
    result.stdout.no_fnmatch_line("*block.py*")


def test_steps_yields_warmup_and_measured_calls(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_once(torchprof):
    calls = 0
    with torchprof.measure("a") as m:
        for _ in m.steps():
            calls += 1
            torch.add(x, x)
    assert calls == 1 and len(m.profile.steps) == 1
"""
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("pass", StepsNotStarted("'a'")),
        ("\n        for _ in m.steps(): break", StepsLeft("'a'", calls=1)),
        ("next(iter(m.steps()))", StepsLeft("'a'", calls=1)),
    ],
)
def test_a_block_that_does_not_run_its_steps_is_not_measured(run_tests, body, reason):
    result = run_tests(
        f"""
@pytest.mark.xfail
@cpu
def test_left(torchprof):
    with torchprof.measure("a") as m:
        {body}

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_the_next_one_is_measured_as_ever():
    torch.add(x, x)
""",
        "--torchprof-report=out.json",
    )
    result.assert_outcomes(failed=1, passed=1)
    assert reasons_in(Path("out.json")) == [reason]
    assert f"not measured: {reason.sentence}" in result.stdout.str()


def test_an_exception_inside_a_block_is_the_tests_own_failure_and_stops_the_profiler(run_tests):
    result = run_tests(
        """
@cpu
def test_raises(torchprof):
    with torchprof.measure("a") as m:
        for i, _ in enumerate(m.steps()):
            if i == 4:
                raise ValueError("mine")

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_the_next_one_is_measured_as_ever():
    torch.add(x, x)
"""
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*ValueError: mine*"])


def test_a_label_is_used_once_per_test_and_calls_without_one_are_numbered(run_tests):
    result = run_tests(
        """
@cpu
def test_twice(torchprof):
    torchprof(torch.add, x, x)
    torchprof(torch.add, x, x)

@cpu
def test_same_label(torchprof):
    for _ in range(2):
        with torchprof.measure("a") as m:
            for _ in m.steps():
                torch.add(x, x)
""",
        "--torchprof-report=out.json",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_twice *", "*test_twice (#2) *"])
    assert {*reasons_in(Path("out.json"))} == {LabelTwice("a", "test_it.py::test_same_label")}


def test_a_bad_limit_of_a_block_is_one_clear_error(run_tests):
    result = run_tests(
        """
@cpu
def test_typo(torchprof):
    with torchprof.measure("a", max_kernel=1) as m:
        for _ in m.steps():
            torch.add(x, x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UnknownLimit: 'max_kernel' is no limit; did you mean 'max_kernels'?*"])


def test_expect_is_the_same_check_and_shows_the_users_line(run_tests):
    result = run_tests(
        """
@cpu
def test_expect(torchprof):
    profile = torchprof(torch.add, x, x)
    profile.expect(max_kernels=1, kernels="aten::add")
    profile.expect(max_kernels=0, min_kernels=0)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*profile.expect(max_kernels=0, min_kernels=0)", "*LimitsMissed: 1 limit missed*"])
    assert "def raise_if_failed" not in result.stdout.str()


def test_an_unmarked_test_may_use_the_fixture(run_tests):
    result = run_tests(
        """
def test_plain(torchprof):
    profile = torchprof(torch.add, x, x)
    profile.expect(max_kernels=1)
""",
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(passed=1)


def test_the_command_line_wins_over_the_marker_for_device_warmup_and_steps(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cuda", warmup=7, steps=7)
def test_once(torchprof):
    assert torchprof.device == torch.device("cpu")
    calls = []
    torchprof(lambda: calls.append(torch.add(x, x)))
    assert len(calls) == 3
""",
        "--torchprof-device=cpu",
        "--torchprof-warmup=1",
        "--torchprof-steps=2",
    )
    result.assert_outcomes(passed=1)


def test_the_ini_file_gives_defaults_that_the_marker_wins_over(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_device = cpu\ntorchprof_steps = 2\ntorchprof_warmup = 1\n")
    result = run_tests(
        """
@pytest.mark.torchprof(steps=3)
def test_some(torchprof):
    calls = []
    torchprof(lambda: calls.append(torch.add(x, x)))
    assert len(calls) == 4
"""
    )
    result.assert_outcomes(passed=1)


def test_switched_off_the_test_runs_plainly_and_a_look_at_a_number_skips_the_rest(run_tests):
    result = run_tests(
        """
calls = []
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_body():
    calls.append(1)

def test_count():
    assert len(calls) == 1

@cpu
def test_result(torchprof):
    profile = torchprof(torch.add, x, x)
    assert profile.result.sum() == 128

@cpu
def test_number(torchprof):
    with torchprof.measure("a") as m:
        for _ in m.steps():
            torch.add(x, x)
    assert m.profile.kernels.count == 12345
""",
        "--torchprof=off",
        "-rs",
    )
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["torchprof: off*", f"*SKIPPED*{LookedAtNumber(MeasuringIsOff(), 'kernels')}*"])


def test_without_a_gpu_looking_at_a_number_skips_the_rest_of_the_test(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests(
        """
def test_number(torchprof):
    profile = torchprof(torch.add, x, x)
    assert profile.result.sum() == 128
    assert profile.compile.regions == 0
    assert profile.kernels.matching("gemm").count == 12345
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*SKIPPED*{NotJudgedOnCpu(('',))}*profile.kernels*"])


def test_limits_are_judged_when_an_imperative_skip_is_not_in_the_way(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_skips_itself(torchprof):
    torchprof(torch.add, x, x)
    pytest.skip("mine")
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*mine*"])


def test_kernels_that_are_not_to_be_seen_are_not_measured_never_a_smaller_number(run_tests, pytester):
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("Inductor needs a C++ compiler")
    source = """
@torch.compile
def fused(a):
    return (a @ a).sin() + 1

def test_compiles_before(): fused(x)

@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_breaks(torchprof):
    torchprof(fused, x)

@pytest.mark.torchprof(device="cpu", max_kernels=9)
def test_limit(torchprof):
    torchprof(fused, x)

@cpu
def test_look(torchprof):
    torchprof(fused, x).kernels
"""
    result = run_tests(source, "--torchprof-report=report.json")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*max_kernels=9*not measured: *", "*[[]compiled-before]*"])
    result.stdout.fnmatch_lines(["*NotMeasured: not measured: *", "*[[]compiled-before]*"])
    results = json.loads((pytester.path / "report.json").read_text())["results"]
    assert {entry["summary"]["kernels"] for entry in results} == {None}


def test_a_block_that_is_never_entered_is_not_measured(run_tests):
    result = run_tests(
        """
@cpu
def test_forgotten(torchprof):
    m = torchprof.measure("a", max_kernels=1)
"""
    )
    result.assert_outcomes(failed=1)
    assert NeverEntered("a").sentence in result.stdout.str()


def test_a_block_of_which_another_with_its_label_is_entered_hides_nothing_of_that(run_tests):
    result = run_tests(
        """
@cpu
def test_twice(torchprof):
    forgotten = torchprof.measure("a")
    with torchprof.measure("a", max_kernels=0) as m:
        for _ in m.steps():
            torch.sin(x)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=0*1 kernel*"])
    assert NeverEntered("a").sentence in result.stdout.str()


@pytest.mark.parametrize("function", ["async def f(): torch.sin(x)", "def f(): yield torch.sin(x)"])
def test_a_call_that_only_makes_a_coroutine_or_generator_is_not_measured(run_tests, function):
    result = run_tests(
        f"""
{function}

@pytest.mark.torchprof(device="cpu", min_kernels=0)
def test_object(torchprof):
    torchprof(f)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *<function f *[[]nothing-measured]*"])


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        ("lambda: stream()", "generator stream"),
        ("lambda: LATER", "coroutine later"),
        ("lambda: streamed_later()", "async generator streamed_later"),
        ("Stream()", "generator Stream.__call__"),
        ("lambda: [x, stream()]", "generator stream"),
        ("lambda: (LATER, 1)", "coroutine later"),
        ("lambda: collections.namedtuple('Pair', 'a b')(1, stream())", "generator stream"),
        ("lambda: map(torch.sin, [x])", "map object"),
        ("lambda: filter(torch.sin, [x])", "filter object"),
        ("lambda: itertools.starmap(torch.add, [(x, x)])", "starmap object"),
    ],
)
def test_a_call_that_returns_work_that_is_not_done_is_not_measured(run_tests, function, returned):
    result = run_tests(f"{WORK}\ndef test_later(torchprof):\n    torchprof({function})\n")
    result.assert_outcomes(failed=1)
    assert ReturnsWork(returned).sentence in result.stdout.str()


@pytest.mark.parametrize(
    "function",
    [
        "begun",
        "works_first",
        "lambda: list(stream())",
        "lambda: iter([x])",
        "lambda: range(2)",
        "lambda: Own()",
        "lambda: torch.nn.Linear(2, 2).parameters()",
    ],
)
def test_a_call_that_has_worked_or_returns_what_is_done_is_measured(run_tests, function):
    run_tests(f"{WORK}\ndef test_done(torchprof):\n    torchprof({function})\n").assert_outcomes(passed=1)


WORK = """
import collections.abc
import itertools

pytestmark = pytest.mark.torchprof(device="cpu", min_kernels=0)

def stream():
    yield torch.sin(x)

async def later():
    return torch.sin(x)

LATER = later()

def teardown_module():
    LATER.close()

async def streamed_later():
    yield torch.sin(x)

class Stream:
    def __call__(self):
        yield torch.sin(x)

class Own(collections.abc.Generator):
    def send(self, value):
        raise StopIteration

    def throw(self, *problem):
        raise StopIteration

def works_first():
    torch.sin(x)
    return stream()

def begun():
    streaming = stream()
    next(streaming)
    return streaming
"""


@pytest.mark.parametrize(
    "inner",
    ["torchprof(lambda: torchprof(torch.sin, x))", "torchprof(request.getfixturevalue('torchprof'), torch.sin, x)"],
)
def test_a_measurement_inside_another_is_refused_by_name(run_tests, inner):
    result = run_tests(f"@cpu\ndef test_nested(torchprof, request):\n    {inner}\n", "--torchprof-report=out.json")
    result.assert_outcomes(failed=1)
    inside = MeasuresInside("test_it.py::test_nested", of_body=False)
    assert inside in reasons_in(Path("out.json"))
    assert str(inside) in " ".join(result.stdout.str().split())


def test_one_that_was_refused_is_not_measured_although_nobody_heard_of_it(run_tests):
    result = run_tests(
        """
@cpu
def test_nested(torchprof):
    def both():
        with pytest.raises(pytest_torchprof.TorchprofError):
            torchprof(torch.sin, x)
        return torch.cos(x)
    torchprof(both)
"""
    )
    result.assert_outcomes(failed=1)
    inside = MeasuresInside("test_it.py::test_nested", of_body=False)
    assert f"torchprof(), refused: not measured: {inside.sentence}" in " ".join(result.stdout.str().split())


def test_options_of_the_marker_are_no_limits_of_a_block(run_tests):
    body = "@cpu\ndef test_a(torchprof):\n    with torchprof.measure('a', steps=4): pass\n"
    result = run_tests(body, "--torchprof-report=out.json")
    result.stdout.fnmatch_lines(["*'steps' is no limit* in the marker*unknown-keyword*"])
    assert reasons_in(Path("out.json")) == [OptionOfMarker("steps")]


def test_what_was_measured_before_a_test_failed_or_skipped_is_told_as_that(run_tests, pytester):
    result = run_tests(
        """
@cpu
def test_fails(torchprof):
    torchprof(torch.sin, x)
    assert False

@cpu
def test_skips(torchprof):
    torchprof(torch.sin, x)
    pytest.skip("mine")

@cpu
def test_expects(torchprof):
    torchprof(torch.sin, x).expect(max_kernels=0, min_kernels=0)
""",
        "--torchprof-report=report.json",
    )
    result.assert_outcomes(failed=2, skipped=1)
    results = json.loads((pytester.path / "report.json").read_text())["results"]
    assert [entry["outcome"] for entry in results] == ["failed", "skipped", "failed"]
    assert [bool(entry["recording"]) for entry in results] == [True, False, True]
    assert str(BodyFailed("AssertionError")) in results[0]["message"]


def test_a_skip_for_want_of_a_gpu_is_no_pass_in_the_report(run_tests, pytester):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    run_tests(
        "def test_a(torchprof):\n    torchprof(torch.sin, x).expect(max_kernels=0)\n", "--torchprof-report=r.json"
    )
    assert json.loads((pytester.path / "r.json").read_text())["results"][0]["outcome"] == "skipped"


def test_our_own_frames_are_not_shown_for_a_users_mistake(run_tests):
    result = run_tests(
        """
@cpu
def test_left(torchprof):
    with torchprof.measure("a") as m:
        for _ in m.steps():
            break
"""
    )
    result.stdout.fnmatch_lines([">*with torchprof.measure*"])
    assert "RunState" not in result.stdout.str()
    assert "def __exit__" not in result.stdout.str()


def test_the_fixture_asked_for_while_the_test_runs_is_an_error_that_says_how_to_ask(run_tests):
    result = run_tests(
        """
def test_it(request):
    request.getfixturevalue("torchprof")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([str(FixtureTooLate("test_it.py::test_it")).replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*KeyError*")


LATE = """
@pytest.fixture
def late(torchprof):
    torchprof(torch.add, x, x)
    yield
    torchprof(lambda: torch.add(torch.add(x, x), x))

@pytest.mark.torchprof(device="cpu", max_kernels=MOST)
def test_it(late):
    pass
"""


def test_what_a_fixture_measures_after_the_test_is_judged_too(run_tests):
    run_tests(LATE.replace("MOST", "2")).assert_outcomes(passed=1)
    result = run_tests(LATE.replace("MOST", "1"))
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["#2: 1 limit missed: max_kernels*", f"*max_kernels=1*{NumberSeen('kernels', 2)} in *"])


def test_what_a_fixture_measured_before_it_skipped_the_test_is_not_judged(run_tests):
    source = LATE.replace("MOST", "0").replace("    yield", "    pytest.skip('not today')\n    yield")
    run_tests(source).assert_outcomes(skipped=1)


def test_a_block_that_could_not_be_entered_is_not_forgotten(run_tests):
    result = run_tests(
        """
@cpu
def test_it(torchprof):
    torchprof(torch.add, x, x)
    try:
        with torchprof.measure("a", maxkernels=5): pass
    except pytest_torchprof.TorchprofError:
        pass
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["a: not measured: 'maxkernels' is no limit; did you mean 'max_kernels'?*"])


def test_a_test_that_catches_the_skip_of_a_look_is_skipped_all_the_same(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests("""
def test_it(torchprof):
    profile = torchprof(torch.sin, x)
    try:
        assert profile.launches < 3
    except BaseException:
        pass
""")
    result.assert_outcomes(skipped=1)
    run_tests("def test_it(torchprof):\n    torchprof(torch.sin, x)\n").assert_outcomes(passed=1)


def test_a_measurement_without_a_label_takes_none_that_is_in_use(run_tests):
    result = run_tests("""
@cpu
def test_it(torchprof):
    torchprof(torch.sin, x)
    with torchprof.measure("#3") as m:
        for _ in m.steps():
            torch.sin(x)
    torchprof(torch.sin, x)
""")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it (#3) *", "*::test_it (#4) *"])


@pytest.mark.parametrize("word", ["device='cpu'", "max_kernels=3"])
def test_a_keyword_of_the_marker_that_a_function_does_not_take_is_sent_there(run_tests, word):
    name = word.partition("=")[0]
    source = f"""
@pytest.mark.torchprof(device="cpu")
def test_it(torchprof):
    torchprof(lambda x: x + 1, torch.ones(8), {word})

@pytest.mark.torchprof(device="cpu")
def test_takes_it(torchprof):
    torchprof(torch.ones, 8, device="cpu")
    torchprof(lambda x, **more: x + 1, torch.ones(8), {word})
"""
    result = run_tests(source)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert f"@pytest.mark.torchprof({name}=...)" in text
    assert "fixture.py" not in text

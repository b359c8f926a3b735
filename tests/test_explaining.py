"""A missed limit explains itself: one more call with stacks gives lines and modules, and changes no verdict."""

from __future__ import annotations

import json

import pytest
from facts import WORSE

from pytest_torchprof import load
from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.capturing import ProfilerInside
from pytest_torchprof.reasons.composed import RepeatUnmeasured
from pytest_torchprof.reasons.lines import (
    BlockOver,
    LoopOver,
    OthersTakeNoPart,
    RepeatRaised,
    RepeatRanOthers,
    TooManyLines,
)

MODEL = """\
import torch

class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x):
        h = self.up(x)
        h = torch.nn.functional.gelu(h)
        return self.down(h)
"""

PARTS = """
from outside import MLP
mlp = MLP()
calls = []
"""


@pytest.fixture
def run_model(pytester, run_tests):
    """Run tests that have the module of three operators at hand."""
    pytester.makepyfile(outside=MODEL)
    pytester.syspathinsert()
    return lambda source, *args: run_tests(PARTS + source, *args)


@pytest.fixture
def wide(monkeypatch):
    """Give the tests' terminal room for a row with its place."""
    monkeypatch.setenv("COLUMNS", "100")


def limits(pytester):
    (entry,) = json.loads((pytester.path / "report.json").read_text())["results"]
    return entry["limits"]


MARKER = '@pytest.mark.torchprof(device="cpu", max_kernels=2)\ndef test_it():\n    calls.append(1)\n    mlp(x)\n'
FIXTURE = '@pytest.mark.torchprof(device="cpu", max_kernels=2)\ndef test_it(torchprof):\n    torchprof(mlp, x)\n'
BLOCK = """
@cpu
def test_it(torchprof):
    with torchprof.measure("part", max_kernels=2) as m:
        for _ in m.steps():
            mlp(x)
"""
EXPECT = "@cpu\ndef test_it(torchprof):\n    torchprof(mlp, x).expect(max_kernels=2)\n"


@pytest.mark.parametrize("source", [MARKER, FIXTURE, BLOCK, EXPECT], ids=["marker", "fixture", "block", "expect"])
def test_each_kernel_over_the_limit_has_its_operator_module_and_line(run_model, wide, source):
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        [
            f"*max_kernels=2 *{NumberSeen('kernels', 3)} in *",
            "*2 x gemm fp32 tn addmm *s  aten::addmm*",
            "*1 x outside.py:10 in forward, MLP_0.Linear_0",
            "*1 x outside.py:12 in forward, MLP_0.Linear_1",
            "*1 x pointwise gelu *s  aten::gelu*",
            "*outside.py:11 in forward, MLP_0",
        ]
    )
    result.stdout.no_fnmatch_line("*lines: not known*")


def test_where_warnings_are_errors_the_lines_are_told_all_the_same(run_model, wide):
    # Its own import warns where NumPy is missing.
    import torch  # noqa: F401

    result = run_model(FIXTURE, "-W", "error")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 x outside.py:12 in forward, MLP_0.Linear_1"])
    result.stdout.no_fnmatch_line("*lines: not known*")


def test_the_profiler_is_not_asked_for_modules_by_the_argument_that_torch_takes_away(run_model, wide, monkeypatch):
    from torch.profiler import profiler

    class WithoutTheArgument(profiler._KinetoProfile):
        """What a torch that has removed what 2.14 deprecates will have."""

        def __init__(self, **kwargs):
            if "with_modules" in kwargs:
                raise TypeError("__init__() got an unexpected keyword argument 'with_modules'")
            super().__init__(**kwargs)

    monkeypatch.setattr(profiler, "_KinetoProfile", WithoutTheArgument)
    result = run_model(FIXTURE.replace("max_kernels=2", 'max_kernels=2, record="modules"'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 x outside.py:12 in forward, MLP_0.Linear_1"])


def test_a_kernel_of_the_backward_pass_is_placed_where_its_forward_was_called(run_model, wide):
    source = """
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_it():
    mlp(x).sum().backward()
"""
    result = run_model(source, "-vv")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*1 x pointwise gelu_backward *s  aten::gelu_backward", "*backward of outside.py:11 in forward, MLP_0"]
    )
    result.stdout.fnmatch_lines_random(
        ["*2 x backward of outside.py:12 in forward, MLP_0.Linear_1", "*1 x test_it.py:* in test_it"]
    )


def test_a_green_run_is_called_as_often_as_ever_and_a_missed_limit_once_more(run_model, pytester):
    counted = "def test_calls():\n    assert len(calls) == {}\n"
    run_model(MARKER.replace("=2", "=3") + counted.format(8)).assert_outcomes(passed=2)
    assert not list(pytester.path.rglob("*.stacks.json.gz"))
    run_model(MARKER + counted.format(9)).assert_outcomes(passed=1, failed=1)


def test_the_repeat_is_made_once_whoever_asks(run_model):
    source = """
@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_it(torchprof):
    def code():
        calls.append(1)
        return mlp(x)
    profile = torchprof(code)
    for _ in range(2):
        with pytest.raises(pytest_torchprof.LimitsMissed, match="outside.py:11 in forward, MLP_0"):
            profile.expect(max_kernels=1)
    assert len(calls) == 9
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 limit missed: max_kernels*"])


def test_limits_whose_lines_dynamo_told_already_need_no_repeat(run_model):
    source = """
def broken(x):
    x = torch.sin(x)
    torch._dynamo.graph_break()
    return torch.cos(x)
compiled = torch.compile(broken, backend="eager")
@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_it():
    calls.append(1)
    compiled(x)
def test_calls():
    assert len(calls) == 8
"""
    result = run_model(source)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*max_graph_breaks=0 *1 graph break", "*test_it.py:* in broken: *"])


def test_compiled_code_is_placed_at_the_function_that_was_compiled(run_model):
    source = """
@torch.compile
def fused(x):
    return torch.sin(x) + 1
@pytest.mark.torchprof(device="cpu", max_kernels=0, max_recompiles=0)
def test_it():
    fused(x)
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 limit missed: max_kernels*", "*1 x *cpp_fused_*test_it.py:* in fused"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if len(calls) == 9: raise ValueError('only eight')", RepeatRaised("ValueError: only eight").sentence),
        ("if len(calls) == 9: pytest.skip('no more')", RepeatRaised("Skipped: no more").sentence),
        ("if len(calls) == 9: torch.sin(x)", RepeatRanOthers("aten::sin", 1).sentence),
        ("if len(calls) < 9: torch.sin(x)", RepeatRanOthers("aten::sin", -1).sentence),
        (
            "if len(calls) == 9: open_profiler()",
            RepeatUnmeasured(ProfilerInside("*", left_running=False)).text,
        ),
    ],
)
def test_a_repeat_that_cannot_be_used_is_told_in_a_line_and_fails_nothing_else(run_model, pytester, body, reason):
    source = f"""
def open_profiler():
    with torch.profiler.profile():
        pass
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it():
    calls.append(1)
    torch.add(x, x)
    {body}
"""
    result = run_model(source, "--torchprof-report=report.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 limit missed: max_kernels*", f"  lines: not known: {reason} [[]*]"])
    result.stdout.no_fnmatch_line("* in test_it*")
    (limit,) = limits(pytester)
    assert (limit["status"], limit["measured"]) == ("missed", 2 if "<" in body else 1)


def test_a_step_of_too_many_lines_is_told_without_them(run_model, monkeypatch):
    monkeypatch.setattr("pytest_torchprof.capture.lines.MOST_MARKS", 2_000)
    source = """
@pytest.mark.torchprof(device="cpu", max_kernels=0, steps=1, warmup=0)
def test_it():
    for _ in range(2_000):
        pass
    torch.add(x, x)
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"  lines: not known: * {TooManyLines(2_000).sentence} [[]lines-not-known]"])
    result.stdout.no_fnmatch_line("* in test_it*")


def test_one_rank_of_several_is_not_called_once_more(run_model):
    source = """
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

@pytest.fixture
def two_ranks():
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()

@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it(two_ranks):
    calls.append(1)
    torch.add(x, x)

def test_calls():
    assert len(calls) == 8
"""
    result = run_model(source)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"  lines: not known: * {OthersTakeNoPart(2).sentence}*"])


def test_a_block_that_raises_when_it_is_repeated_fails_by_its_limit(run_model):
    source = """
@cpu
def test_it(torchprof):
    with torchprof.measure("first", max_kernels=1) as m:
        for _ in m.steps():
            torch.add(x, x)
    with torchprof.measure("part", max_kernels=0) as m:
        for _ in m.steps():
            calls.append(1)
            assert len(calls) < 9, "counted"
            torch.add(x, x)
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "part: 1 limit missed: max_kernels*",
            f"  lines: not known: {RepeatRaised('AssertionError: counted').sentence}*",
            "test_it.py::test_it (first)*passed",
            "test_it.py::test_it (part)*failed",
        ]
    )
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_block_whose_loop_ends_by_itself_is_judged_without_lines(run_model):
    source = """
@cpu
def test_it(torchprof):
    with torchprof.measure("part", max_kernels=0) as m:
        for _, batch in zip(m.steps(), range(8)):
            torch.add(x, x)
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "part: 1 limit missed*",
            f"  lines: not known: {LoopOver.SENTENCE} [[]lines-not-known]",
        ]
    )


def test_after_its_block_code_cannot_be_called_again(run_model):
    source = """
@cpu
def test_it(torchprof):
    with torchprof.measure("part") as m:
        for _ in m.steps():
            torch.add(x, x)
    m.profile.expect(max_kernels=0)
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*lines: not known: {BlockOver.SENTENCE} [[]lines-not-known]"])


def test_the_result_is_that_of_a_call_that_returned(run_model):
    source = """
def code():
    calls.append(1)
    if len(calls) == 9:
        raise ValueError
    return torch.add(x, len(calls))
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it(torchprof):
    assert torchprof(code).result[0, 0] == 9
"""
    result = run_model(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 limit missed*", "*raised ValueError [[]lines-not-known]"])


def test_the_judged_recording_has_no_stacks_and_the_other_lies_beside_it(run_model, pytester):
    run_model(MARKER, "--torchprof-save=kept", "--torchprof-report=report.json").assert_outcomes(failed=1)
    judged, stacks = sorted(pytester.path.glob("kept/*.gz"))
    assert stacks.name == judged.name.replace(".json", ".stacks.json")
    first, again = load(judged), load(stacks)
    assert (len(first.trace.frames), len(first.steps)) == (0, 5)
    assert (len(again.trace.frames) > 0, len(again.steps)) == (True, 1)
    assert again.why_not is None
    assert first.kernels.names == again.kernels.names
    (entry,) = json.loads((pytester.path / "report.json").read_text())["results"]
    assert entry["summary"]["kernels"] == first.median.kernels
    assert entry["recording"].endswith(judged.name)


def test_stacks_of_an_earlier_failure_do_not_outlive_it(run_model, pytester):
    run_model(MARKER, "--torchprof-save=kept")
    run_model(MARKER.replace("=2", "=3"), "--torchprof-save=kept").assert_outcomes(passed=1)
    assert [path.name.partition(".json")[0].count("stacks") for path in pytester.path.glob("kept/*")] == [0]


@pytest.mark.parametrize("source", [MARKER, FIXTURE, EXPECT])
def test_a_replay_tells_the_lines_that_were_found_live(run_model, wide, source):
    run_model(source, "--torchprof-save=kept").assert_outcomes(failed=1)
    result = run_model(source, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 x outside.py:10 in forward, MLP_0.Linear_0", "*outside.py:11 in forward, MLP_0"])
    result.stdout.no_fnmatch_line("*recordings that no test judged*")


def test_a_recording_that_has_stacks_itself_is_not_repeated(run_model, pytester, wide):
    source = MARKER.replace("max_kernels=2", 'max_kernels=2, record="stacks"')
    result = run_model(source + "def test_calls():\n    assert len(calls) == 8\n")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*1 x outside.py:10 in forward, MLP_0.Linear_0"])
    (kept,) = pytester.path.glob(".torchprof/*.gz")
    assert "outside.py:10 in forward, MLP_0.Linear_0" in str(_expected(kept))


def _expected(path):
    try:
        load(path).expect(max_kernels=0)
    except AssertionError as missed:
        return missed
    return None


def test_whoever_traces_the_thread_goes_on_with_it(run_model):
    source = """
import sys
seen = []
def tracer(frame, event, argument):
    if frame.f_code.co_name == "code":
        seen.append(len(calls))
    return tracer
def code():
    calls.append(1)
    torch.add(x, x)
def test_it(torchprof):
    before, of_frame = sys.gettrace(), sys._getframe().f_trace
    sys.settrace(tracer)
    profile = torchprof(code)
    try:
        profile.expect(max_kernels=0)
    except pytest_torchprof.LimitsMissed as missed:
        assert "test_it.py:" in str(missed), missed
    assert sys.gettrace() == tracer
    assert sys._getframe().f_trace is of_frame
    assert max(seen) == 9
    sys.settrace(before)
    assert len(calls) == 9
"""
    run_model(source.replace("def test_it", "@cpu\ndef test_it")).assert_outcomes(passed=1)


def test_findings_of_a_failure_name_the_line_that_the_repeat_saw(run_model, pytester):
    source = """
from pytest_torchprof.findings import OtherFinding, Rule
@pytest.mark.torchprof(device="cpu", forbid="slow-add")
def test_it():
    torch.add(x, x)
"""
    pytester.makeconftest("""
from pytest_torchprof.findings import OtherFinding, Rule

def find(profile):
    origin = profile.launching.origins.of_operator(profile.steps[0].part.operators[0])
    yield OtherFinding(code="slow-add", title="slow", message="an add", source=origin and origin.file_line)

def pytest_torchprof_findings():
    return [Rule(code="slow-add", find=find, needs=())]
""")
    result = run_model(source, "--torchprof-report=report.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*slow: an add (test_it.py:*)"])
    (entry,) = json.loads((pytester.path / "report.json").read_text())["results"]
    (slow,) = [one for one in entry["findings"] if one["code"] == "slow-add"]
    assert slow["evidence"]["source"].startswith("test_it.py:")


GROWING = """
import os
@cpu
def test_it():
    y = torch.sin(x)
    if os.path.exists("more"):
        y = torch.cos(y)
"""


PROFILED = """
import cProfile, pstats, sys
def later(): pass
def miss(torchprof):
    with pytest.raises(pytest_torchprof.LimitsMissed, match="outside.py:10 in forward, MLP_0.Linear_0"):
        torchprof(mlp, x).expect(max_kernels=0)
"""


def test_whoever_profiles_the_thread_goes_on_with_it(run_model):
    source = """
@cpu
def test_it(torchprof):
    seen = []
    mine = lambda frame, event, argument: seen.append(frame.f_code.co_name)
    sys.setprofile(mine)
    miss(torchprof)
    assert sys.getprofile() is mine
    later()
    sys.setprofile(None)
    assert "later" in seen
"""
    run_model(PROFILED + source).assert_outcomes(passed=1)


def test_cprofile_goes_on_with_the_thread(run_model):
    source = """
@cpu
def test_it(torchprof):
    with cProfile.Profile() as profiler:
        miss(torchprof)
        later()
    assert "later" in {name for _, _, name in pstats.Stats(profiler).stats}
"""
    run_model(PROFILED + source).assert_outcomes(passed=1)


def test_kernels_that_the_baseline_has_not_are_placed(run_model, pytester):
    run_model(GROWING, "--torchprof-baseline=add").assert_outcomes(passed=1)
    (pytester.path / "more").touch()
    result = run_model(GROWING)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"{WORSE} *", "*+ pointwise cos: 1 per step*", "*pointwise cos from: test_it.py:* in test_it"]
    )
    result.stdout.no_fnmatch_line("*sin from:*")


def test_a_run_that_compares_as_before_is_not_repeated(run_model):
    source = (
        GROWING.replace("y = torch.sin(x)", "calls.append(1); torch.cos(x)")
        + "def test_calls():\n    assert len(calls) == 8\n"
    )
    run_model(source, "--torchprof-baseline=add").assert_outcomes(passed=2)
    run_model(source).assert_outcomes(passed=2)

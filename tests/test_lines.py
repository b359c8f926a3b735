"""Marks of lines: each names the line that ran, whatever it is called, and whoever traces the thread goes on as ever."""

from __future__ import annotations

import json
import re

import fresh
import pytest

from pytest_torchprof.reasons.lines import TraceFunctionReplaced

STEP = "@cpu\ndef test_it(torchprof):\n    torchprof(step).expect(max_kernels=0)\n"


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def line_of(pytester, code):
    lines = [line.strip() for line in (pytester.path / "test_it.py").read_text(encoding="utf-8").splitlines()]
    return f"test_it.py:{lines.index(code) + 1}"


NOT_ASCII = """
class Größe_Ü(torch.nn.Module):
    def forward(self, a):
        return torch.sin(a)
größe = Größe_Ü()
def прямо():
    größe(x)
    return torch.cos(x)
step = прямо
"""


def test_names_that_are_not_ascii_are_told_as_they_are_written(run_tests):
    result = run_tests(NOT_ASCII + STEP.replace("test_it", "test_größe"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(["*test_it.py:* in forward, Größe_Ü_0", "*test_it.py:* in прямо"])
    result.stdout.no_fnmatch_line("*lines: not known*")


def test_files_are_told_as_they_are_called(run_tests):
    source = r"""
def step():
    return sin(x)
names = {"torch": torch}
exec(compile("def sin(x):\n  return torch.sin(x)", '/nowhere/ü 100%41 "a", b(3): é.py', "exec"), names)
sin = names["sin"]
"""
    result = run_tests(source + STEP)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*/nowhere/ü 100%41 "a", b(3): é.py:2 in sin'])


def test_marks_are_no_kernels_whatever_they_are_called(run_tests):
    source = NOT_ASCII + '@pytest.mark.torchprof(device="cpu", max_kernels=2, record="stacks")\ndef test_ü(): step()\n'
    run_tests(source).assert_outcomes(passed=1)


RESUMED = {
    "generator": """
def average():
    total = x
    while True:
        total = torch.exp((yield total))
def step():
    running = average()
    next(running)
    running.send(x)
""",
    "coroutine": """
import asyncio
async def fetch(queue):
    total = torch.exp(await queue.get())
async def fill():
    queue = asyncio.Queue()
    task = asyncio.create_task(fetch(queue))
    await asyncio.sleep(0)
    queue.put_nowait(x)
    await task
def step():
    asyncio.run(fill())
""",
}


@pytest.mark.parametrize("source", RESUMED.values(), ids=RESUMED)
def test_what_goes_on_in_the_middle_of_a_line_is_placed_there(run_tests, pytester, source):
    result = run_tests(source + STEP)
    result.assert_outcomes(failed=1)
    (code,) = [line.strip() for line in source.splitlines() if "torch.exp" in line]
    result.stdout.fnmatch_lines([f"*{line_of(pytester, code)} in *"])


def test_modules_that_live_one_after_another_are_several(run_tests):
    source = """
class Short(torch.nn.Module):
    def forward(self, a):
        return torch.sin(a)
def step():
    for _ in range(3):
        Short()(x)
"""
    result = run_tests(source + STEP, "-vv")
    result.stdout.fnmatch_lines([f"*1 x test_it.py:* in forward, Short_{i}" for i in range(3)])


TRACER = """
import sys
inside, lines = [], []
def tracer(frame, event, argument):
    if event == "call":
        inside.append(frame)
    elif event == "return":
        assert inside.pop() is frame
    elif frame.f_code.co_filename == __file__:
        lines.append(frame.f_lineno - frame.f_code.co_firstlineno)
    return tracer
class Empty(torch.nn.Module):
    def forward(self, a):
        return torch.sin(a)
def numbers():
    while True:
        yield 1
going = numbers()
module = Empty()
def step():
    next(going)
    module(x)
"""


def test_a_tracer_is_told_of_each_call_and_return_in_turn(run_tests):
    source = """
@cpu
def test_call(torchprof):
    inside.clear()
    sys.settrace(tracer)
    next(going)
    profile = torchprof(step)
    with pytest.raises(pytest_torchprof.LimitsMissed, match="test_it.py:.* in forward, Empty_0"):
        profile.expect(max_kernels=0)
    next(going)
    assert sys.gettrace() is tracer
    sys.settrace(None)
    assert not inside

@cpu
def test_block(torchprof):
    inside.clear(); lines.clear()
    sys.settrace(tracer)
    sys._getframe().f_trace = tracer
    try:
        with torchprof.measure("part", max_kernels=0) as m:
            for _ in m.steps():
                step()
    finally:
        assert sys.gettrace() is tracer
        sys.settrace(None)
    assert not inside
"""
    result = run_tests(TRACER + source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["part: 1 limit missed*", "*test_it.py:* in forward, Empty_0"])
    result.stdout.no_fnmatch_line("*lines: not known*")


def test_frames_that_are_running_are_left_as_they_were(run_tests):
    source = """
class Outer(torch.nn.Module):
    def forward(self, torchprof):
        frames, frame = [], sys._getframe()
        while frame is not None:
            frames.append((frame, frame.f_trace, frame.f_trace_lines))
            frame = frame.f_back
        with pytest.raises(pytest_torchprof.LimitsMissed, match="in forward, Outer_0.Empty_0"):
            torchprof(step).expect(max_kernels=0)
        for frame, trace, lines in frames:
            assert (frame.f_trace, frame.f_trace_lines) == (trace, lines)
        assert sys.gettrace() is None
@cpu
def test_it(torchprof):
    Outer()(torchprof)
"""
    run_tests(TRACER + source).assert_outcomes(passed=1)


@pytest.mark.any_torch
@pytest.mark.parametrize("core", ["ctrace", "pytrace"])
def test_coverage_misses_nothing_after_a_missed_limit(pytester, monkeypatch, core):
    pytest.importorskip("coverage")
    monkeypatch.setenv("COVERAGE_CORE", core)
    pytester.makepyfile(
        test_it="""
import pytest, torch
from pytest_torchprof import LimitsMissed
def step():
    torch.sin(torch.ones(4))
@pytest.mark.torchprof(device="cpu")
def test_call(torchprof):
    with pytest.raises(LimitsMissed, match="test_it.py:4 in step"):
        torchprof(step).expect(max_kernels=0)
    one = 1
    assert one
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_marker():
    step()
def test_after():
    assert True
"""
    )
    # In a fork, which has torch at hand: to trace its import would take longer than all else.
    done = fresh.run_code(
        "from coverage.cmdline import main\n"
        "main(['run', '--omit=*/pytest_torchprof/*', '-m', 'pytest', '-p', 'no:cacheprovider'])\n"
        "main(['json', '-o', 'coverage.json'])"
    )
    assert "1 failed, 2 passed" in done.stdout
    told = json.loads((pytester.path / "coverage.json").read_text(encoding="utf-8"))
    assert told["files"]["test_it.py"]["missing_lines"] == []


SETTERS = {
    "another": "sys.settrace(tracer)\n    torch.sin(x)\n    sys.settrace(None)",
    "for a while": "ours = sys.gettrace()\n    sys.settrace(tracer)\n    torch.sin(x)\n    sys.settrace(ours)",
    "none": "torch.sin(x)\n    sys.settrace(None)\n    torch.cos(x)",
}


@pytest.mark.parametrize("body", SETTERS.values(), ids=SETTERS)
def test_code_that_sets_the_trace_function_itself_has_no_lines(run_tests, body):
    source = f"""
import sys
def tracer(frame, event, argument):
    return None
def step():
    {body}
"""
    result = run_tests(source + STEP)
    result.assert_outcomes(failed=1)
    told = re.sub(r"\s+(?:E\s+)?", " ", result.stdout.str())
    assert str(TraceFunctionReplaced().sentence) in told
    result.stdout.fnmatch_lines(["*lines: not known: *"])
    result.stdout.no_fnmatch_line("*test_it.py:* in step*")


def test_a_debugger_goes_on_stepping(run_tests):
    source = """
import bdb, sys
class Stepping(bdb.Bdb):
    def user_line(self, frame):
        if frame.f_code.co_filename == __file__:
            seen.append((frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno))
        self.set_step()
seen = []
def step():
    torch.sin(x)
@cpu
def test_it(torchprof):
    profile = torchprof(step)
    Stepping().set_trace()
    with pytest.raises(pytest_torchprof.LimitsMissed, match="test_it.py:.* in step"):
        profile.expect(max_kernels=0)
    one = 1
    sys.settrace(None)
    assert seen == [("test_it", 4), ("test_it", 5), ("step", 1), ("test_it", 4), ("test_it", 6), ("test_it", 7)]
"""
    run_tests(source).assert_outcomes(passed=1)


BACKWARD = {
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
def block(a):
    return torch.exp(torch.cos(a))  # here
def step():
    checkpoint(block, w, use_reentrant=False).sum().backward()
""",
    "checkpoint, reentrant": """
from torch.utils.checkpoint import checkpoint
def block(a):
    return torch.exp(torch.cos(a))  # here
def step():
    checkpoint(block, w, use_reentrant=True).sum().backward()
""",
    "function": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clone()
    @staticmethod
    def backward(ctx, gradient):
        return torch.cos(gradient)  # here
def step():
    Own.apply(w).sum().backward()
""",
    "hook": """
def step():
    y = torch.exp(w)
    y.register_hook(
        lambda gradient: torch.cos(gradient))  # here
    y.sum().backward()
""",
}


@pytest.mark.parametrize("source", BACKWARD.values(), ids=BACKWARD)
def test_python_of_a_backward_pass_has_its_own_line(run_tests, pytester, source):
    result = run_tests("w = torch.ones(8, requires_grad=True)\n" + source + STEP, "-vv")
    result.assert_outcomes(failed=1)
    (code,) = [line.strip() for line in source.splitlines() if line.endswith("# here")]
    result.stdout.fnmatch_lines([f"*::cos *{line_of(pytester, code)} in *"])


def test_after_a_hook_the_backward_pass_is_placed_at_the_forward_again(run_tests, pytester):
    result = run_tests("w = torch.ones(8, requires_grad=True)\n" + BACKWARD["hook"] + STEP, "-vv")
    place = line_of(pytester, "y = torch.exp(w)")
    result.stdout.fnmatch_lines([f"*backward of {place} in step*"])

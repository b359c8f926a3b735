"""What a measurement notes while torch.compile is at work, and that it leaves torch as it was."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from facts import misses, says, why_not
from torch import nn

from pytest_torchprof.analysis.validity import unprofiled
from pytest_torchprof.capture import Plan, iterations, torch_compile
from pytest_torchprof.capture.compile_log import CompileLog
from pytest_torchprof.capture.compile_watch import CompileWatch
from pytest_torchprof.limits.evidence import WhyNothingIsCompiled
from pytest_torchprof.limits.seen import CompileTime, NothingWasCompiled
from pytest_torchprof.profiles import load
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.compiler_events import GeneratorRefused
from pytest_torchprof.reasons.compiling import GivenUpBefore, LeftAlone, RanElsewhere, Unobserved
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.reasons.limits import NoGraphRan, NothingCompiled
from pytest_torchprof.reasons.recordings import CompiledBefore
from pytest_torchprof.reasons.uncompiled import CompilingDisabled, SettingInForce

X = torch.ones(8, 8)
graph_break = torch._dynamo.graph_break


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def measure(tmp_path):
    """Measure code on the CPU and return its Profile."""

    def run(code, *, warmup=2, steps=2, record=()):
        path = tmp_path / "recording.json"
        plan = Plan(device="cpu", warmup=warmup, steps=steps, record=frozenset(record), nodeid="test", label=None)
        with closing(iterations(plan, path, lambda _: None)) as calls:
            for _ in calls:
                code()
        return load(path)

    return run


def given_up(a):
    for _ in range(2):
        a = a + 1
        graph_break()
    return a


# Dynamo itself asks a tensor that is no leaf for its gradient.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_every_backend_gives_the_same_evidence(measure, backend):
    def f(a):
        b = a.sin()
        graph_break()
        return b.cos()

    compiled = torch.compile(f, backend=backend)
    x = torch.ones(8, requires_grad=True)
    found = measure(lambda: compiled(x).sum().backward()).compile
    (one,) = found.graph_breaks
    assert (one.function, one.line, one.count) == ("f", f.__code__.co_firstlineno + 2, 1)
    assert found.recompiles == ()
    assert found.nested_regions == 2
    assert len(found.fx_graphs) == (4 if backend == "inductor" else 0)


def test_inductors_graphs_are_told_with_their_code_their_aten_calls_and_the_time_they_took(measure):
    compiled = torch.compile(lambda a: torch.sort(a @ a + 1)[0] * 2)
    profile = measure(lambda: compiled(X))
    (graph,) = profile.compile.fx_graphs
    assert graph.calls == 2
    assert "cpp_fused" in Path(graph.code_path).read_text()
    assert {(one.op, one.count) for one in profile.compile.fallbacks} == {("aten::mm", 1), ("aten::sort", 1)}
    times = profile.compile.time_us
    assert times["tracing"] > 0
    assert times["total"] == sum(us for phase, us in times.items() if phase != "total")
    profile.expect(max_fallbacks=2, max_compile_time=3600)
    assert {(row.name, row.count) for row in misses(profile, max_fallbacks=1).rows} == {
        ("aten::mm", 1),
        ("aten::sort", 1),
    }
    assert misses(profile, max_compile_time=0).seen == (CompileTime(times["total"] / 1e6),)


def test_compile_time_is_not_measured_where_the_code_was_compiled_before(measure):
    compiled = torch.compile(lambda a: a + 1, backend="eager")
    compiled(X)
    profile = measure(lambda: compiled(X))
    assert says(why_not(lambda: profile.expect(max_compile_time=3600)), NothingCompiled)
    assert says(why_not(lambda: profile.expect(max_fallbacks=0)), NoGraphRan)


def test_cpp_kernels_are_seen_inside_a_measurement_and_missed_openly_where_compiled_before(measure):
    inside = torch.compile(lambda a: (a + 1).relu())
    profile = measure(lambda: inside(X))
    assert unprofiled(profile.trace) is None
    assert profile.kernels.matching("cpp_fused").count == 1
    before = torch.compile(lambda a: (a + 2).relu())
    before(X)
    profile = measure(lambda: before(X))
    assert says(unprofiled(profile.trace), CompiledBefore)
    with pytest.raises(NotMeasured, match=r"\[compiled-before\]"):
        profile.expect(max_kernels=5)
    profile.expect(max_graph_breaks=0)


def test_code_first_compiled_inside_a_measurement_keeps_its_instrumentation(measure):
    compiled = torch.compile(lambda a: (a + 3).relu())
    measure(lambda: compiled(X))
    profile = measure(lambda: compiled(X))
    assert unprofiled(profile.trace) is None
    assert profile.kernels.matching("cpp_fused").count == 1


def _state():
    utils = torch._dynamo.utils
    return {
        "inductor": torch._inductor.config.cpp.enable_kernel_profile,
        "configs": (torch._dynamo.config.save_config(), torch._inductor.config.save_config()),
        "environment": dict(os.environ),
        "stance": torch._dynamo.eval_frame._stance,
        "set_stance": torch._dynamo.decorators._set_stance,
        "hooks": list(torch._dynamo.convert_frame._bytecode_hooks),
        "callbacks": (
            list(torch._dynamo.callback_handler.start_callbacks),
            list(torch._dynamo.callback_handler.end_callbacks),
        ),
        "loggers": {name: (logger.level, list(logger.handlers)) for name, logger in _loggers()},
        "profile": sys.getprofile(),
        "tools": [sys.monitoring.get_tool(i) for i in range(6)] if hasattr(sys, "monitoring") else None,
        "limit": utils._compilation_metrics.maxlen,
    }


def _loggers():
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            yield name, logger


@pytest.mark.parametrize("failing", [False, True])
def test_a_measurement_leaves_torch_as_it_was(measure, failing):
    torch.compile(given_up, backend="eager")(X)
    compiled = torch.compile(given_up, backend="eager")

    def code():
        compiled(X)
        if failing:
            raise RuntimeError("stop")

    before = _state()
    if failing:
        with pytest.raises(RuntimeError, match="stop"):
            measure(code)
    else:
        measure(code)
    assert _state() == before


def test_what_is_measured_is_not_what_was_counted_before(measure):
    torch.compile(lambda a: a.sum().item() + 1, backend="eager")(X)
    counted = {group: dict(counts) for group, counts in torch._dynamo.utils.counters.items()}
    clean = torch.compile(lambda a: a + 1, backend="eager")
    assert measure(lambda: clean(X)).compile.graph_breaks == ()
    assert torch._dynamo.utils.counters["graph_break"] == counted["graph_break"]


def test_a_profile_function_is_called_on_and_put_back(measure):
    torch.compile(given_up, backend="eager")(X)
    compiled = torch.compile(given_up, backend="eager")
    seen = []

    def mine(frame, event, arg):
        if event == "call" and frame.f_code is given_up.__code__:
            seen.append(frame.f_code)

    sys.setprofile(mine)
    try:
        found = measure(lambda: compiled(X)).compile
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)
    assert len(seen) >= 4
    assert [one.function for one in found.graph_breaks] == ["given_up"]


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="Python 3.12 and later observe without a profile function")
def test_a_profiler_that_cannot_be_called_on_makes_breaks_unknown(measure):
    import cProfile

    torch.compile(given_up, backend="eager")(X)
    clean = torch.compile(lambda a: a + 1, backend="eager")
    with cProfile.Profile():
        profile = measure(lambda: clean(X))
    assert profile.compile.graph_breaks is None
    reason = why_not(lambda: profile.expect(max_graph_breaks=0))
    assert says(reason, GivenUpBefore, because=Unobserved.PYTHON_PROFILER)


class Sometimes:
    """Code whose later calls run what its earlier ones do not."""

    def __init__(self, late, *, first_late):
        self.late, self.first_late, self.calls = late, first_late, 0
        self.clean = torch.compile(lambda a: a + 3, backend="eager")

    def __call__(self):
        self.calls += 1
        self.clean(X)
        if self.calls >= self.first_late:
            self.late()


def through_torchs_own_code(a):
    """Dynamo leaves a Sequential of torch's alone, and handles what it calls frame by frame."""
    model = nn.Sequential(GivenUp())
    model.compile(backend="eager")
    return model(a)


class GivenUp(nn.Module):
    def forward(self, a):
        return given_up(a)


LATE = {
    "the compiled function itself": lambda: torch.compile(given_up, backend="eager")(X),
    "a function that a module calls": lambda: through_torchs_own_code(X),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(("warmup", "first_late"), [(2, 3), (2, 4), (0, 2)])
def test_a_frame_given_up_earlier_that_runs_in_a_step_and_not_in_the_warm_up_is_found(
    measure, late, warmup, first_late
):
    LATE[late]()
    profile = measure(Sometimes(LATE[late], first_late=first_late), warmup=warmup)
    assert "given_up" in [one.function for one in profile.compile.graph_breaks]
    misses(profile, max_graph_breaks=0)


def test_a_frame_given_up_earlier_that_does_not_run_stays_given_up_and_is_no_break(measure):
    torch.compile(given_up, backend="eager")(X)
    before = torch_compile.compilation_metrics()[-1:]
    profile = measure(Sometimes(lambda: None, first_late=1))
    profile.expect(max_graph_breaks=0)
    with_clean = torch_compile.compilation_metrics()[-2:]
    torch.compile(given_up, backend="eager")(X)
    # torch keeps so many of the last attempts.
    assert torch_compile.compilation_metrics()[-2:] == with_clean
    assert with_clean[:1] == before


def test_a_reset_inside_the_steps_gives_the_frame_another_chance_afterwards(measure):
    torch.compile(given_up, backend="eager")(X)
    measure(Sometimes(torch._dynamo.reset, first_late=4), steps=3)
    torch.compile(given_up, backend="eager")(X)
    last = torch_compile.read_attempt(torch_compile.compilation_metrics()[-1])
    assert (last.frame.function, last.graph_ops) == ("given_up", 0)


@pytest.mark.parametrize("stance", ["fail_on_recompile", "eager_on_recompile", "force_eager"])
def test_a_frame_given_up_earlier_runs_as_it_would_under_a_stance(measure, stance):
    broken = torch.compile(given_up, backend="eager")
    broken(X)

    def late():
        with torch.compiler.set_stance(stance):
            assert broken(X).equal(X + 2)

    profile = measure(Sometimes(late, first_late=3))
    with pytest.raises((LimitsMissed, NotMeasured)):
        profile.expect(max_graph_breaks=0)


@pytest.mark.parametrize("warmup", [2, 0])
def test_frames_given_up_earlier_do_not_cost_the_modules(measure, warmup):
    torch.compile(given_up, backend="eager")(X)
    module = nn.Linear(8, 8)
    trace = measure(lambda: module(X), warmup=warmup, record=["modules"]).trace
    assert [trace.names[name] for name in trace.frames.name].count("nn.Module: Linear_0") == 2


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="torch 2.10 gives such a frame up anew, and keeps a record")
def test_a_frame_given_up_long_before_anybody_looked_is_not_measured(measure):
    def unseen(a):
        for _ in range(2):
            a = a + 1
            graph_break()
        return a

    compiled, clean = (torch.compile(f, backend="eager") for f in (unseen, lambda a: a + 1))
    compiled(X)
    for n in range(70):
        scope = {}
        exec(f"def f(a): return a + {n}", scope)
        torch.compile(scope["f"], backend="eager")(X)
    profile = measure(lambda: (clean(X), compiled(X)))
    reason = why_not(lambda: profile.expect(max_graph_breaks=0))
    assert reason.code == Code.RAN_UNCOMPILED
    assert says(reason, LeftAlone, function="unseen", forgotten=True)
    measure(lambda: clean(X)).expect(max_graph_breaks=0)


def test_a_reset_gives_given_up_frames_another_chance(measure):
    torch.compile(given_up, backend="eager")(X)
    clean = torch.compile(lambda a: given_up(a) if a is None else a + 1, backend="eager")
    measure(lambda: clean(X))
    torch._dynamo.reset()
    assert measure(lambda: clean(X)).compile.graph_breaks == ()
    compiled = torch.compile(given_up, backend="eager")
    assert len(measure(lambda: compiled(X)).compile.graph_breaks) == 1


def test_a_generator_is_a_frame_given_up(measure):
    def numbers(a):
        yield a + 1

    compiled = torch.compile(numbers, backend="eager")
    found = measure(lambda: list(compiled(X))).compile
    assert [(one.function, one.why) for one in found.skipped_frames] == [("numbers", GeneratorRefused())]


def test_a_backend_that_fails_silently_is_named(measure):
    def broken(_module, _inputs):
        raise RuntimeError("no such backend")

    compiled = torch.compile(lambda a: a + 1, backend=broken)
    with torch._dynamo.config.patch(suppress_errors=True):
        (one,) = measure(lambda: compiled(X)).compile.graph_breaks
    assert "no such backend" in one.reason
    assert one.skipped_frame


def test_torchs_own_file_is_never_the_place_where_the_users_line_is_known(measure):
    model = nn.Linear(8, 8)
    model.register_forward_hook(lambda *_: print(end=""))  # noqa: T201
    compiled = torch.compile(model, backend="eager")
    assert [one.file for one in measure(lambda: compiled(X)).compile.graph_breaks] == [__file__]


def test_the_explanation_names_what_the_reason_leaves_out(measure):
    def f(a):
        b = a + 1
        print(end="")  # noqa: T201
        return b * 2

    compiled = torch.compile(f, backend="eager")
    profile = measure(lambda: compiled(X))
    (one,) = profile.compile.graph_breaks
    assert "`print`" in one.explanation
    assert "\n" not in one.explanation
    verdict = misses(profile, max_graph_breaks=0)
    assert verdict.number == 1
    (line,) = verdict.evidence
    assert (line.function, line.why, line.explanation) == ("f", one.why, one.explanation)


def test_compiled_in_warm_up_but_not_in_the_steps_is_not_measured(measure):
    compiled = torch.compile(lambda a: a + 1, backend="eager")
    calls = []

    def code():
        calls.append(1)
        return compiled(X) if len(calls) <= 2 else X + 1

    assert says(why_not(lambda: measure(code).expect(max_graph_breaks=0)), RanElsewhere)


def test_a_disabled_torch_compile_is_named(measure):
    compiled = torch.compile(lambda a: a + 1, backend="eager")
    with torch._dynamo.config.patch(disable=True):
        profile = measure(lambda: compiled(X))
    verdict = misses(profile, max_recompiles=0)
    assert verdict.seen == (NothingWasCompiled(),)
    (line,) = verdict.evidence
    assert line.what == SettingInForce(CompilingDisabled())


def test_evidence_of_code_that_never_uses_torch_compile_says_so(measure):
    verdict = misses(measure(lambda: X + 1), max_graph_breaks=0)
    assert (verdict.seen, verdict.evidence) == ((NothingWasCompiled(),), (WhyNothingIsCompiled(),))


def test_a_watch_that_is_left_by_an_error_can_be_followed_by_another():
    def fail():
        with closing(CompileLog()) as log, CompileWatch("cpu", log) as watch, watch.call(warmup_calls_left=1):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    with closing(CompileLog()) as log, CompileWatch("cpu", log) as watch:
        with watch.call(warmup_calls_left=0):
            pass
        assert watch.evidence().breaks == ()

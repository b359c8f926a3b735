"""Limits on what torch.compile did: graph breaks, recompiles, fallbacks, compile time, CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pytest_torchprof.analysis.compilation import is_compiled_code
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.limits.compile_time import max_compile_time, read_compile_time
from pytest_torchprof.limits.evidence import (
    AnyEvidence,
    GraphBreakLine,
    InsteadOfCompiling,
    RecompileLine,
    SkippedGraph,
    WhyNothingIsCompiled,
    WorkRow,
)
from pytest_torchprof.limits.limit import (
    COMPILE,
    HOLDS,
    MISSED,
    Limit,
    Verdict,
    fraction,
    group_kernels,
    in_order,
    title_among,
    unmeasured,
    whole_number,
)
from pytest_torchprof.limits.own_code import OWN, divide, unknown_names
from pytest_torchprof.limits.seen import (
    AnySeen,
    CountSeen,
    FallbackKernels,
    GraphReplays,
    NoGraphLaunched,
    NoGraphMade,
    NothingWasCompiled,
    OutsideGraphs,
)
from pytest_torchprof.reasons.composed import SkippedGraphsUnknown
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.limits import GraphLaunchesUntold, NoGraphRan
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.compilation import Compile
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace.compile_evidence import GraphBreak, Recompile

    Found = TypeVar("Found", GraphBreak, Recompile)
    Others = tuple[tuple[str, int], ...]


def _max_graph_breaks(analysis: Analysis, bound: int, *, own: Sequence[str] = ()) -> Verdict:
    compiled = analysis.compile
    graph_breaks, others, untold = _events_of_own_code(compiled.graph_breaks or (), own)
    lines = tuple(map(_break_line, graph_breaks))
    unknown = compiled.graph_breaks_unknown or untold
    verdict = _at_most(bound, "graph break", lines, unknown, compiled)
    return replace(verdict, not_counted=others, line=_first_line(graph_breaks))


def _max_recompiles(analysis: Analysis, bound: int, *, own: Sequence[str] = ()) -> Verdict:
    compiled = analysis.compile
    recompiles, others, untold = _events_of_own_code(compiled.recompiles or (), own)
    lines = tuple(
        RecompileLine(recompile.why, recompile.file, recompile.line, recompile.function) for recompile in recompiles
    )
    unknown = compiled.recompiles_unknown or untold
    verdict = _at_most(bound, "recompile", lines, unknown, compiled)
    return replace(verdict, not_counted=others, line=_first_line(recompiles))


def _events_of_own_code(events: Sequence[Found], own: Sequence[str]) -> tuple[Sequence[Found], Others, Reason | None]:
    """Return the events that count, the places of the others, and why that may be wrong; without ``own`` all count."""
    if not own:
        return events, (), None
    counted_ones, others = divide(events, own)
    files = [event.file for event in events if event.file is not None]
    return counted_ones, tuple(others.most_common()), unknown_names(own, files)


def _first_line(events: Sequence[GraphBreak | Recompile]) -> tuple[str, int] | None:
    return next(
        ((event.file, event.line) for event in events if event.file is not None and event.line is not None), None
    )


def _at_most(
    bound: int, noun: str, lines: tuple[AnyEvidence, ...], unknown: Reason | None, compiled: Compile
) -> Verdict:
    """Return the verdict on events of the compiler, with a line about each; ``unknown`` is why there may be more."""
    count = len(lines)
    if count > bound:
        return Verdict(seen=(CountSeen(count, noun),), number=count, status=MISSED, evidence=lines)
    if compiled.nothing is not None:
        return Verdict(
            seen=(NothingWasCompiled(),), number=count, status=MISSED, evidence=instead_of_compiling(compiled)
        )
    if unknown:
        return unmeasured(unknown, lines)
    return Verdict(seen=(CountSeen(count, noun),), number=count, status=HOLDS)


def instead_of_compiling(compiled: Compile) -> tuple[AnyEvidence, ...]:
    """Return lines on why nothing may have been compiled; empty if something was."""
    if compiled.nothing is None:
        return ()
    skipped = map(_break_line, compiled.skipped_frames)
    return (*skipped, *map(InsteadOfCompiling, compiled.nothing)) or (WhyNothingIsCompiled(),)


def _break_line(graph_break: GraphBreak) -> GraphBreakLine:
    graphs = None if graph_break.skipped_frame else graph_break.count + 1
    return GraphBreakLine(
        graph_break.why,
        graph_break.file,
        graph_break.line,
        graph_break.function,
        graphs=graphs,
        explanation=graph_break.explanation,
    )


def _max_fallbacks(analysis: Analysis, bound: int) -> Verdict:
    compiled = analysis.compile
    count = sum(fallback.count for fallback in compiled.fallbacks)
    rows = in_order(
        WorkRow(count=fallback.count, name=printable(fallback.op), full=printable(fallback.op))
        for fallback in compiled.fallbacks
    )
    unknown = compiled.fallbacks_unknown if compiled.fx_graphs else NoGraphRan()
    if count <= bound and unknown:
        return unmeasured(unknown, rows)
    return Verdict(
        seen=(FallbackKernels(count),),
        number=count,
        status=HOLDS if count <= bound else MISSED,
        evidence=rows if count > bound else (),
    )


def _read_cuda_graph(value: object) -> object:
    if value is True or value == "all":
        return value
    try:
        return fraction(value)
    except UnknownLimit:
        raise UnknownLimit.because(WrongValue(ValueForm.GRAPH_SHARE, repr(value))) from None


def _cuda_graph(analysis: Analysis, asked: Any) -> Verdict:
    blocked = _why_graphs_are_unknown(analysis)
    if blocked:
        return unmeasured(blocked)
    skips = analysis.compile.cuda_graphs.why
    if skips and asked is True:
        return Verdict(seen=(NoGraphMade(),), status=MISSED, evidence=tuple(map(SkippedGraph, skips)))
    seen: tuple[AnySeen, ...] = ()
    for step in analysis.steps:
        problem, rows, replays = _graphs_of_step(step, asked)
        seen = (replays,)
        if problem:
            return Verdict(
                seen=(problem,),
                status=MISSED,
                evidence=rows,
                step=step.name,
                in_step=title_among(analysis, step),
            )
    unknown = analysis.compile.cuda_graphs.skips_unknown if asked is True else None
    if unknown:
        return replace(unmeasured(SkippedGraphsUnknown(unknown)), seen=seen)
    return Verdict(seen=seen, status=HOLDS)


def _why_graphs_are_unknown(analysis: Analysis) -> Reason | None:
    if lacking := analysis.trace.device_kind.why_no("CUDA graphs"):
        return lacking
    if analysis.trace.attribution == "time":
        return GraphLaunchesUntold()
    return None


def _graphs_of_step(step: StepProfile, asked: Any) -> tuple[AnySeen | None, tuple[WorkRow, ...], GraphReplays]:
    """Return the problem of a step (None if there is none), its kernels outside graphs, and its replays."""
    total, inside = len(step.kernels), sum(kernel.in_graph for kernel in step.kernels)
    outside = [kernel for kernel in step.kernels if not kernel.in_graph]
    seen = GraphReplays(inside, total, int(step.graph_launches))
    if not step.graph_launches:
        return NoGraphLaunched(), group_kernels(step, outside), seen
    if asked is True:
        held = list(_in_compiled_code(step.kernels))
        moved = [kernel for kernel in held if kernel.op is not None and operator_work(kernel.op) is OperatorWork.MOVES]
        loose = [kernel for kernel in held if kernel not in moved]
        problem = OutsideGraphs(len(loose)) if loose else None
        return problem, group_kernels(step, loose), replace(seen, moved=len(moved))
    needed = 1.0 if asked == "all" else asked
    if inside < needed * total:
        return replace(seen, share=inside / total), group_kernels(step, outside), seen
    return None, (), seen


def _in_compiled_code(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels outside graphs that compiled code, or a range with a graph launch in it, launched."""
    # The engine's own range encloses everything that a backward pass does, such as adding up gradients after the graph.
    owners = {
        name
        for kernel in kernels
        if kernel.in_graph
        for name in kernel.op_chain
        if not name.startswith("autograd::engine::evaluate_function: ")
    }
    for kernel in kernels:
        if not kernel.in_graph and any(is_compiled_code(name) or name in owners for name in kernel.op_chain):
            yield kernel


COMPILE_LIMITS = (
    Limit(
        name="max_graph_breaks",
        read=whole_number,
        check=_max_graph_breaks,
        settings=(OWN,),
        needs=COMPILE,
        located=False,
        unit="count",
        families=(),
    ),
    Limit(
        name="max_recompiles",
        read=whole_number,
        check=_max_recompiles,
        settings=(OWN,),
        needs=COMPILE,
        located=False,
        unit="count",
        families=(),
    ),
    # What the CPU's code generator does says nothing about the GPU's: these wait for the real device.
    Limit(
        name="max_fallbacks",
        read=whole_number,
        check=_max_fallbacks,
        on_gpu_work=False,
        located=False,
        unit="count",
        families=(),
    ),
    Limit(
        name="max_compile_time",
        read=read_compile_time,
        check=max_compile_time,
        on_gpu_work=False,
        located=False,
        unit="s",
        families=(),
    ),
    Limit(
        name="cuda_graph",
        read=_read_cuda_graph,
        check=_cuda_graph,
        per_step=True,
        families=(),
        missed_by_more=False,
    ),
)

"""Findings about torch.compile: what it did not compile, compiled again, or what its calls cost."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.compilation import FX_GRAPH
from pytest_torchprof.analysis.parts import copied_bytes
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.findings.catalogue.compiling import (
    Again,
    BackwardNotCompiled,
    Break,
    CompiledAgain,
    CompiledInWindow,
    CompileOverhead,
    GraphBroke,
    GraphHashChanges,
    GuardOverhead,
    NotCompiled,
)
from pytest_torchprof.findings.catalogue.graphs import CopiesIntoGraphs, CudaGraphSkipped
from pytest_torchprof.findings.events import Events, events_of_spans
from pytest_torchprof.findings.evidence import evidence
from pytest_torchprof.findings.finding import (
    CPU_SIDE,
    HOST_PACE,
    HOW_MANY_KERNELS,
    OPERATORS,
    WHICH_KERNELS,
    WHICH_OPERATORS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.reasons.findings import (
    BreaksUntold,
    CompilerNotObserved,
    GraphsUnmarked,
    NothingUncompiled,
    RecompilesUntold,
    SkipsUntold,
)
from pytest_torchprof.reasons.uncompiled import NeverUsed
from pytest_torchprof.text import path_from_here
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace.compile_evidence import GraphBreak, Recompile

GUARDS = Threshold("share", 0.1, "a tenth of the CPU's time on finding out which code to run is worth larger pieces")
_GUARDING = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue", "Pregraph bytecode")
_REGION = "Torch-Compiled Region"
_COPIES = ("aten::copy_", "aten::_foreach_copy_")

GRAPH_COPIES = Threshold("share", 0.005, "copies below a two-hundredth of the kernel time are not worth removing")


def _graph_break(analysis: Analysis) -> Iterator[Finding]:
    if not (breaks := analysis.compile.graph_breaks):
        return
    yield GraphBroke(
        breaks=tuple(
            Break(
                reason=graph_break.why,
                file=graph_break.file,
                line=graph_break.line,
                function=graph_break.function,
                count=graph_break.count,
            )
            for graph_break in breaks
        ),
        nested_regions=analysis.compile.nested_regions,
        source=_place_of(breaks[0]),
    )


def _recompile(analysis: Analysis) -> Iterator[Finding]:
    if recompiles := analysis.compile.recompiles:
        yield CompiledAgain(
            recompiles=tuple(Again(reason=recompile.why, function=recompile.function) for recompile in recompiles),
            source=_place_of(recompiles[0]),
        )


def _place_of(event: GraphBreak | Recompile) -> str | None:
    """Return the file and line of an event, None where only the trace shows the event."""
    return f"{path_from_here(event.file)}:{event.line}" if event.file else None


def _compile_in_window(analysis: Analysis) -> Iterator[Finding]:
    """Find compilation inside the steps: their times are those of the compiler."""
    trace, work = analysis.trace, analysis.gpu_work
    inside = [(start, end) for _, start, end in trace.compiling.ranges() if trace.step_at(start) >= 0]
    if not inside:
        return
    spans = intervals.merged(inside)
    spent, share = intervals.length(spans) / 1000, work.share_during(spans)
    longest: dict[tuple[int, int], int] = {}
    ops, begun = trace.ops, {(thread, start) for thread, start, _ in trace.compiling.ranges()}
    for i, place in enumerate(zip(ops.thread, ops.start, strict=True)):
        if place in begun and trace.step_at(place[1]) >= 0:
            longest[place] = max(i, longest.get(place, i), key=ops.end.__getitem__)
    yield CompiledInWindow(
        time_us=spent,
        share=share,
        count=len(inside),
        has_steps=analysis.trace.has_step_ranges,
        events=Events(ops=tuple(longest.values())),
        saves_us=spent,
    )


def _not_compiled(analysis: Analysis) -> Iterator[Finding]:
    """Find that torch.compile was asked for and compiled nothing, or that calls had no compiled code that fits."""
    compiled = analysis.compile
    calls = compiled.lookups_without_region
    # That Dynamo is loaded means little: any earlier test may have loaded it.
    seen = tuple(cause for cause in compiled.nothing or () if not isinstance(cause, NeverUsed))
    if seen or calls:
        yield NotCompiled(lookups_without_region=calls, seen=seen)


def _cuda_graph_skipped(analysis: Analysis) -> Iterator[Finding]:
    skips = analysis.compile.cuda_graphs.why
    if skips:
        yield CudaGraphSkipped(reasons=tuple(skips))


def _backward_not_compiled(analysis: Analysis) -> Iterator[Finding]:
    """Find compiled forward code whose backward ran as single autograd nodes."""
    trace = analysis.trace
    if not analysis.compile.regions or any(trace.spans("CompiledFunctionBackward")):
        return
    nodes = trace.spans_in_steps("autograd::engine::evaluate_function: ")
    own = [span for span in nodes if not span.name.endswith(("AccumulateGrad", "torch::autograd::GraphRoot"))]
    if not own:
        return
    spans = intervals.merged((span.start_ns, span.end_ns) for span in own)
    spent, share = intervals.length(spans) / 1000, analysis.gpu_work.share_during(spans)
    names = dict.fromkeys(span.name.rpartition(": ")[2] for span in own)
    yield BackwardNotCompiled(
        time_us=spent, share=share, nodes=tuple(names)[:10], count=len(own), events=events_of_spans(trace, own)
    )


def _graph_hash_changes(analysis: Analysis) -> Iterator[Finding]:
    """Find steps that run another Inductor graph than the other steps."""
    trace = analysis.trace
    by_step: dict[int, set[str]] = defaultdict(set)
    for span in trace.spans_in_steps(FX_GRAPH):
        by_step[trace.step_at(span.start_ns)].add(span.name.removeprefix(FX_GRAPH).strip(" #"))
    kinds = list(dict.fromkeys(frozenset(keys) for _, keys in sorted(by_step.items())))
    if len(kinds) < 2:
        return
    usual = max(kinds, key=lambda kind: sum(keys == kind for keys in by_step.values()))
    yield GraphHashChanges(
        steps=tuple(str(trace.steps[step].name) for step, keys in sorted(by_step.items()) if keys != usual),
        of_steps=len(analysis.steps),
        graphs=tuple(sorted(set().union(*kinds) - frozenset.intersection(*kinds))),
    )


def _guard_overhead(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the time that each call of compiled code spends before that code begins: guards, prologues."""
    trace, work = analysis.trace, analysis.gpu_work
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    spans = [
        span
        for name in _GUARDING
        for span in trace.spans_in_steps(name)
        if span.category == "cpu_op" and not trace.compiling.cover(thread_of[span.tid], span.start_ns)
    ]
    cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps)
    guarded = intervals.merged((span.start_ns, span.end_ns) for span in spans)
    spent = intervals.length(guarded) / 1000
    if not spans or not cpu_us or spent < at[GUARDS] * cpu_us:
        return
    calls = sum(span.name.startswith(_GUARDING[0]) for span in spans) or len(spans)
    yield GuardOverhead(
        time_us=spent,
        share=work.share_during(guarded),
        cpu_share=min(spent / cpu_us, 1.0),
        per_call_us=spent / calls,
        calls=calls,
        events=events_of_spans(trace, spans),
        # On a GPU that never waits it costs nothing.
        saves_us=spent * (1 - work.busy_share),
    )


def _cudagraph_input_copy(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find copies that compiled code makes before it launches a graph: into the graph's own inputs."""
    trace, work = analysis.trace, analysis.gpu_work
    calls, call_of, parent = trace.calls, trace.links.call_of, trace.nesting.parent
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    launches = [i for i in trace.links.launches if calls.name[i] in graphs and trace.step_of_call[i] >= 0]
    if not launches:
        return
    owners = {op: calls.start[i] for i, op in trace.nesting.around_each(calls, launches).items() if op >= 0}
    copies = {i for i, name in enumerate(trace.names) if name in _COPIES}
    op_of, named = analysis.launching.op_of, trace.ops.name
    by_copy = [i for i in work.gpu_ops if op_of[i] >= 0 and named[op_of[i]] in copies]
    into_graphs = [
        i
        for i in by_copy
        if trace.gpu.kind[i] in (KERNEL, MEMCPY)
        and calls.name[call_of[i]] not in graphs
        and calls.start[call_of[i]] < owners.get(parent[op_of[i]], -1)
    ]
    spent = work.time_us(into_graphs)
    if not into_graphs or spent < at[GRAPH_COPIES] * work.kernel_time_us:
        return
    size = copied_bytes(trace, [i for i in into_graphs if trace.gpu.kind[i] == MEMCPY])
    yield CopiesIntoGraphs(**evidence(work, into_graphs), bytes=size, saves_us=spent)


def _compile_overhead(analysis: Analysis) -> Iterator[Finding]:
    """Find that compiling costs the CPU more time in a step than it saves the GPU, by the step measured beside it."""
    compiled = analysis.median
    if not analysis.compile.regions or compiled.cpu_time_us is None:
        return
    device = analysis.trace.device_kind
    for other in analysis.beside:
        eager = other.median
        if other.compile.regions or eager.cpu_time_us is None or other.trace.device_kind is not device:
            continue
        more = compiled.cpu_time_us - eager.cpu_time_us
        # On the CPU as device the time of the kernels is part of the CPU's.
        gained = (eager.gpu_busy_us or 0.0) - (compiled.gpu_busy_us or 0.0) if device.has_launches else None
        won = max(gained or 0.0, 0.0)
        if more > won:
            cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps)
            yield CompileOverhead(
                time_us=more * len(analysis.steps),
                share=analysis.gpu_work.share_of_window(more / compiled.cpu_time_us * cpu_us),
                cpu_us=compiled.cpu_time_us,
                cpu_us_uncompiled=eager.cpu_time_us,
                gained_us=gained,
                saves_us=(more - won) * len(analysis.steps),
            )
            return


def _has_evidence(analysis: Analysis) -> bool:
    metadata = analysis.trace.metadata
    return metadata is not None and metadata.compile is not None


def _graphs_are_marked(analysis: Analysis) -> bool:
    metadata = analysis.trace.metadata
    evidence = None if metadata is None else metadata.compile
    return evidence is None or evidence.graphs_are_marked is not False or not analysis.compile.regions


_EVIDENCE = Need(missing=CompilerNotObserved(), there=_has_evidence)
_BREAKS = Need(
    missing=BreaksUntold(),
    there=lambda analysis: analysis.compile.graph_breaks_unknown is None,
)
_RECOMPILES = Need(
    missing=RecompilesUntold(),
    there=lambda analysis: analysis.compile.recompiles_unknown is None,
)
_SKIPS = Need(
    missing=SkipsUntold(),
    there=lambda analysis: analysis.compile.cuda_graphs.skips_unknown is None,
)
_GRAPHS = Need(missing=GraphsUnmarked(), there=_graphs_are_marked)
_BESIDE = Need(
    missing=NothingUncompiled(),
    there=lambda analysis: not analysis.compile.regions or any(not other.compile.regions for other in analysis.beside),
)

RULES = (
    Rule(
        code="graph-break",
        find=_graph_break,
        needs=(_BREAKS,),
        explains=(
            *HOW_MANY_KERNELS,
            *WHICH_KERNELS,
            *WHICH_OPERATORS,
            "cuda_graph",
            "max_compile_time",
            "max_fallbacks",
        ),
    ),
    Rule(
        code="recompile",
        find=_recompile,
        needs=(_RECOMPILES,),
        explains=("max_compile_time",),
    ),
    Rule(
        code="compile-in-window",
        find=_compile_in_window,
        needs=(CPU_SIDE,),
        explains=HOST_PACE,
    ),
    Rule(
        code="not-compiled",
        find=_not_compiled,
        needs=(_EVIDENCE,),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *WHICH_OPERATORS, "cuda_graph", "max_graph_breaks"),
    ),
    Rule(
        code="cuda-graph-skipped",
        find=_cuda_graph_skipped,
        needs=(_SKIPS,),
        explains=(*HOST_PACE, "max_launches", "cuda_graph"),
    ),
    Rule(
        code="backward-not-compiled",
        find=_backward_not_compiled,
        needs=(CPU_SIDE,),
        explains=("max_graph_breaks",),
    ),
    Rule(
        code="graph-hash-changes",
        find=_graph_hash_changes,
        needs=(CPU_SIDE, _GRAPHS),
    ),
    Rule(
        code="guard-overhead",
        find=_guard_overhead,
        needs=(CPU_SIDE,),
        thresholds=(GUARDS,),
        explains=HOST_PACE,
    ),
    Rule(
        code="cudagraph-input-copy",
        find=_cudagraph_input_copy,
        needs=(OPERATORS,),
        thresholds=(GRAPH_COPIES,),
        explains=("max_launches", "max_memcpys", "cuda_graph"),
    ),
    Rule(
        code="compile-overhead",
        find=_compile_overhead,
        needs=(CPU_SIDE, _BESIDE),
        explains=HOST_PACE,
    ),
)

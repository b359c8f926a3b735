"""Findings about torch.compile: what it did not compile, compiled again, or what its calls cost."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.compilation import FX_GRAPH, NOT_USED
from pytest_torchprof.devices.kinds import CallKind
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
from pytest_torchprof.text import counted, path_from_here, show_us
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.recording.metadata import GraphBreak, Recompile

GUARDS = Threshold("share", 0.1, "a tenth of the CPU's time on finding out which code to run is worth larger pieces")
_GUARDING = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue", "Pregraph bytecode")
_REGION = "Torch-Compiled Region"
_COPIES = ("aten::copy_", "aten::_foreach_copy_")

GRAPH_COPIES = Threshold("share", 0.005, "copies below a two-hundredth of the kernel time are not worth removing")


def _graph_break(analysis: Analysis) -> Iterator[Finding]:
    if not (found := analysis.compile.graph_breaks):
        return
    shown = [
        {"reason": one.reason, "file": one.file, "line": one.line, "function": one.function, "count": one.count}
        for one in found
    ]
    message, where = _first_of(found, "graph break")
    evidence = {"breaks": shown, "source": where, "nested_regions": analysis.compile.nested_regions}
    yield Finding(message=message, evidence=evidence)


def _recompile(analysis: Analysis) -> Iterator[Finding]:
    if found := analysis.compile.recompiles:
        message, where = _first_of(found, "recompile")
        shown = [{"reason": one.reason, "function": one.function} for one in found]
        yield Finding(message=message, evidence={"recompiles": shown, "source": where})


def _first_of(found: Sequence[GraphBreak | Recompile], noun: str) -> tuple[str, str | None]:
    """Return how many there are and what the first is, and its file and line."""
    first = found[0]
    where = f"{path_from_here(first.file)}:{first.line}" if first.file else None
    return f"{counted(len(found), noun)}, the first: {first.reason}" + (f" ({where})" if where else ""), where


def _compile_in_window(analysis: Analysis) -> Iterator[Finding]:
    """Find compilation inside the steps: their times are those of the compiler."""
    trace, work = analysis.trace, analysis.gpu_work
    inside = [(start, end) for _, start, end in trace.compiling.ranges() if trace.step_at(start) >= 0]
    if not inside:
        return
    spent, share = intervals.length(intervals.merged(inside)) / 1000, work.share_during(inside)
    yield Finding(
        message=f"{show_us(spent)} ({share:.0%} of the time) went into compiling inside the steps",
        evidence={"time_us": spent, "share": share, "count": len(inside)},
        saves_us=spent,
    )


def _not_compiled(analysis: Analysis) -> Iterator[Finding]:
    """Find that torch.compile was asked for and left the code alone, or that calls found no compiled code that fits."""
    compiled = analysis.compile
    calls = compiled.lookups_without_region
    # That Dynamo is loaded means little: any earlier test may have done that.
    seen = [one for one in compiled.nothing or () if one != NOT_USED]
    if seen:
        message = f"torch.compile left everything as it is: {'; '.join(seen)}"
    elif calls:
        message = f"{counted(calls, 'call')} looked for compiled code, found none that fits, and ran as written"
    else:
        return
    yield Finding(message=message, evidence={"lookups_without_region": calls, "seen": seen})


def _cuda_graph_skipped(analysis: Analysis) -> Iterator[Finding]:
    skips = analysis.compile.cuda_graphs.skips
    if skips:
        yield Finding(
            message=f"Inductor skipped CUDA graphs {counted(len(skips), 'time')}, the first because: "
            f"{skips[0].rstrip(': ')}",
            evidence={"reasons": list(skips)},
        )


def _backward_not_compiled(analysis: Analysis) -> Iterator[Finding]:
    """Find compiled forward code whose backward ran as single autograd nodes."""
    trace = analysis.trace
    if not analysis.compile.regions or any(trace.spans("CompiledFunctionBackward")):
        return
    nodes = trace.spans_in_steps("autograd::engine::evaluate_function: ")
    own = [span for span in nodes if not span.name.endswith(("AccumulateGrad", "torch::autograd::GraphRoot"))]
    if not own:
        return
    ranges = [(span.start_ns, span.end_ns) for span in own]
    spent, share = intervals.length(intervals.merged(ranges)) / 1000, analysis.gpu_work.share_during(ranges)
    names = list(dict.fromkeys(span.name.rpartition(": ")[2] for span in own))
    yield Finding(
        message=f"the forward is compiled, the backward ran as {counted(len(own), 'autograd node')} "
        f"({', '.join(names[:3])}), {show_us(spent)} on the CPU",
        evidence={"time_us": spent, "share": share, "nodes": names[:10], "count": len(own)},
    )


def _graph_hash_changes(analysis: Analysis) -> Iterator[Finding]:
    """Find steps that run another graph of Inductor's than the others do."""
    trace = analysis.trace
    by_step: dict[int, set[str]] = defaultdict(set)
    for span in trace.spans_in_steps(FX_GRAPH):
        by_step[trace.step_at(span.start_ns)].add(span.name.removeprefix(FX_GRAPH).strip(" #"))
    kinds = list(dict.fromkeys(frozenset(keys) for _, keys in sorted(by_step.items())))
    if len(kinds) < 2:
        return
    usual = max(kinds, key=lambda kind: sum(keys == kind for keys in by_step.values()))
    others = [trace.steps[step].name for step, keys in sorted(by_step.items()) if keys != usual]
    changed = sorted(set().union(*kinds) - frozenset.intersection(*kinds))
    yield Finding(
        message=f"{len(others)} of {len(analysis.steps)} steps run other compiled graphs than the rest: "
        f"{', '.join(str(name) for name in others[:5])}",
        evidence={"steps": others, "graphs": changed},
    )


def _guard_overhead(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the time that each call of compiled code spends before the code: guards, prologues."""
    trace, work = analysis.trace, analysis.gpu_work
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    found = [
        span
        for name in _GUARDING
        for span in trace.spans_in_steps(name)
        if span.category == "cpu_op" and not trace.compiling.cover(thread_of[span.tid], span.start_ns)
    ]
    cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps)
    ranges = [(span.start_ns, span.end_ns) for span in found]
    spent = intervals.length(intervals.merged(ranges)) / 1000
    if not found or not cpu_us or spent < at[GUARDS] * cpu_us:
        return
    calls = sum(span.name.startswith(_GUARDING[0]) for span in found) or len(found)
    yield Finding(
        message=f"{show_us(spent / calls)} per call of compiled code go into look-ups and prologues, "
        f"{min(spent / cpu_us, 1):.0%} of the CPU's time",
        evidence={"time_us": spent, "share": work.share_during(ranges), "per_call_us": spent / calls, "calls": calls},
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
    found = [
        i
        for i in by_copy
        if trace.gpu.kind[i] in (KERNEL, MEMCPY)
        and calls.name[call_of[i]] not in graphs
        and calls.start[call_of[i]] < owners.get(parent[op_of[i]], -1)
    ]
    spent = work.time_us(found)
    if not found or spent < at[GRAPH_COPIES] * work.kernel_time_us:
        return
    size = sum(max(trace.gpu.size[i], 0) for i in found)
    yield Finding(
        message=f"{counted(len(found), 'copy')} ({show_us(spent)}) filled the static inputs of CUDA graphs "
        "before they were launched",
        evidence={"time_us": spent, "share": work.share_of(found), "count": len(found), "bytes": size},
        saves_us=spent,
    )


def _compile_overhead(analysis: Analysis) -> Iterator[Finding]:
    """Find that a compiled step takes the CPU longer, by more than the GPU gains, than the one measured beside it."""
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
        gained = (eager.gpu_busy_us or 0.0) - (compiled.gpu_busy_us or 0.0) if device.has_launches else 0.0
        if more > max(gained, 0.0):
            cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps)
            yield Finding(
                message=f"a compiled step takes the CPU {show_us(compiled.cpu_time_us)}, the same uncompiled "
                f"{show_us(eager.cpu_time_us)}; on the GPU it gains {show_us(max(gained, 0.0))}",
                evidence={
                    "time_us": more * len(analysis.steps),
                    "share": analysis.gpu_work.share_of_window(more / compiled.cpu_time_us * cpu_us),
                    "cpu_us": compiled.cpu_time_us,
                    "cpu_us_uncompiled": eager.cpu_time_us,
                    "gained_us": gained,
                },
                saves_us=(more - max(gained, 0.0)) * len(analysis.steps),
            )
            return


def _has_evidence(analysis: Analysis) -> bool:
    metadata = analysis.trace.metadata
    return metadata is not None and metadata.compile is not None


def _graphs_are_marked(analysis: Analysis) -> bool:
    metadata = analysis.trace.metadata
    evidence = None if metadata is None else metadata.compile
    return evidence is None or evidence.graphs_are_marked is not False or not analysis.compile.regions


_EVIDENCE = Need(missing="what the compiler did is not recorded", there=_has_evidence)
_BREAKS = Need(
    missing="the recording does not tell of all graph breaks",
    there=lambda analysis: analysis.compile.graph_breaks_unknown is None,
)
_RECOMPILES = Need(
    missing="the recording does not tell of all recompiles",
    there=lambda analysis: analysis.compile.recompiles_unknown is None,
)
_SKIPS = Need(
    missing="the recording does not tell whether Inductor made CUDA graphs",
    there=lambda analysis: analysis.compile.cuda_graphs.skips_unknown is None,
)
_GRAPHS = Need(missing="this torch leaves no range around the call of a graph", there=_graphs_are_marked)
_BESIDE = Need(
    missing="the same test has no uncompiled measurement to compare it with",
    there=lambda analysis: not analysis.compile.regions or any(not other.compile.regions for other in analysis.beside),
)

RULES = (
    Rule(
        code="graph-break",
        title="Graph breaks",
        find=_graph_break,
        needs=(_BREAKS,),
        remedy="move what Dynamo cannot trace out of the compiled function; fullgraph=True raises at the place",
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
        title="Recompiles",
        find=_recompile,
        needs=(_RECOMPILES,),
        remedy="keep what guards look at the same (sizes, types, Python values), or mark sizes as dynamic: "
        "torch._dynamo.mark_dynamic, torch.compile(dynamic=True)",
        explains=("max_compile_time",),
    ),
    Rule(
        code="compile-in-window",
        title="Compiled while measured",
        find=_compile_in_window,
        needs=(CPU_SIDE,),
        remedy="more warm-up calls (warmup=); if it compiles at each call, see its recompiles",
        explains=(*HOST_PACE, "max_recompiles"),
    ),
    Rule(
        code="not-compiled",
        title="Not compiled",
        find=_not_compiled,
        needs=(_EVIDENCE,),
        remedy="torch.compile(module) instead of module.compile() for modules of torch.nn; look for disable(), stances "
        "and the recompile limit",
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *WHICH_OPERATORS, "cuda_graph", "max_graph_breaks"),
    ),
    Rule(
        code="cuda-graph-skipped",
        title="CUDA graph skipped",
        find=_cuda_graph_skipped,
        needs=(_SKIPS,),
        remedy="remove the cause (inputs on the CPU, mutated inputs, dynamic sizes), or do without the mode",
        explains=(*HOST_PACE, "max_launches", "cuda_graph"),
    ),
    Rule(
        code="backward-not-compiled",
        title="Backward not compiled",
        find=_backward_not_compiled,
        needs=(CPU_SIDE,),
        remedy='a backend with AOTAutograd (the default "inductor" has it, "eager" has not), no graph breaks in the '
        "forward, gradients required when it is compiled",
        explains=("max_graph_breaks",),
    ),
    Rule(
        code="graph-hash-changes",
        title="Other graphs in other steps",
        find=_graph_hash_changes,
        needs=(CPU_SIDE, _GRAPHS),
        remedy="the inputs differ between steps (sizes, types, a Python value): each combination has code of its own",
        explains=("max_recompiles",),
    ),
    Rule(
        code="guard-overhead",
        title="Guards cost much",
        find=_guard_overhead,
        needs=(CPU_SIDE,),
        thresholds=(GUARDS,),
        remedy="compile larger pieces, so that fewer calls check more work; "
        "torch.compiler.set_stance(skip_guard_eval_unsafe=True) where nothing changes",
        explains=HOST_PACE,
    ),
    Rule(
        code="cudagraph-input-copy",
        title="Copies into a graph's inputs",
        find=_cudagraph_input_copy,
        needs=(OPERATORS,),
        thresholds=(GRAPH_COPIES,),
        remedy="inputs at the same address each time: mark them with torch._dynamo.mark_static_address, or write new "
        "data into the same tensor",
        explains=("max_launches", "max_memcpys", "cuda_graph"),
    ),
    Rule(
        code="compile-overhead",
        title="Compiling does not pay",
        find=_compile_overhead,
        needs=(CPU_SIDE, _BESIDE),
        remedy="compile more at once, so that one look-up pays for many operators, or leave it uncompiled; "
        'mode="reduce-overhead" on a GPU',
        explains=HOST_PACE,
    ),
)

"""What torch.compile made of the measured code: the recording's own evidence together with what the trace shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_torchprof.analysis.compilation import graph_breaks, regions
from pytest_torchprof.analysis.compilation.fx_graphs import (
    CudaGraphs,
    Fallback,
    FxGraph,
    cuda_graphs,
    dicts,
    fallbacks,
    fx_graphs,
    graph_key,
)
from pytest_torchprof.analysis.compilation.graph_breaks import GraphBreak
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from pytest_torchprof.analysis.compilation.regions import Regions
    from pytest_torchprof.trace import Trace

__all__ = ["Compile", "CudaGraphs", "Fallback", "FxGraph", "GraphBreak", "Recompile", "graph_break_count", "read"]

NOT_USED = "torch.compile was not used"
_NO_KEY = "the recording holds no compile evidence (its key `torchprof` is missing)"
_NO_EVIDENCE = "the recording holds no compile evidence (its key `torchprof` has no `compile`)"


class Recompile(Struct, frozen=True, kw_only=True):
    """A frame that was compiled again because a guard failed; places are None where only the trace shows it."""

    reason: str
    function: str | None
    file: str | None
    line: int | None


class Compile(Struct, frozen=True, kw_only=True):
    """Compile evidence of one recording; None where it cannot be known, with the reason beside."""

    regions: int
    """Compiled regions that ran, over all steps."""
    nested_regions: int
    """Those among them that ran inside another one."""
    graph_breaks: tuple[GraphBreak, ...] | None
    graph_breaks_unknown: str | None
    """Why there may be more than ``graph_breaks``; None if they are all."""
    recompiles: tuple[Recompile, ...] | None
    recompiles_unknown: str | None
    compiled_in_window: bool
    skipped_frames: tuple[GraphBreak, ...]
    """The breaks that left a whole frame uncompiled."""
    nothing: tuple[str, ...] | None
    """If nothing was compiled at all: what was seen instead, maybe nothing; else None."""
    lookups_without_region: int
    """Calls that found no compiled code that fits, and ran as they are."""
    cuda_graphs: CudaGraphs
    fx_graphs: tuple[FxGraph, ...]
    fallbacks: tuple[Fallback, ...]
    fallbacks_unknown: str | None
    """Why there may be more than ``fallbacks``; None if they are all."""
    time_us: Mapping[str, int] | None
    """Compile time by phase, warm-up included, each without what it calls; "total" is their sum."""


def read(trace: Trace) -> Compile:
    """Return the compile evidence of a recording, ours or a foreign one."""
    evidence = _evidence(trace)
    seen = regions.read(trace)
    found, unknown = _graph_breaks(trace, evidence, seen)
    again, again_unknown = _recompiles(trace, evidence, seen)
    called, called_unknown = fallbacks(trace, evidence)
    return Compile(
        regions=len(seen.regions),
        nested_regions=len(seen.nested),
        graph_breaks=None if unknown and not found else found,
        graph_breaks_unknown=unknown,
        recompiles=again,
        recompiles_unknown=again_unknown,
        compiled_in_window=bool(trace.compiling),
        skipped_frames=tuple(one for one in found if one.skipped_frame),
        nothing=_nothing(evidence, seen),
        lookups_without_region=seen.lookups_without_region,
        cuda_graphs=cuda_graphs(trace, evidence, _no_evidence(trace)),
        fx_graphs=tuple(fx_graphs(trace, evidence)),
        fallbacks=called,
        fallbacks_unknown=called_unknown,
        time_us=_times(evidence),
    )


def graph_break_count(compiled: Compile) -> int | None:
    """Return the number of graph breaks, at least as many if more are possible; None where none can be excluded."""
    return None if compiled.graph_breaks is None else len(compiled.graph_breaks)


def recompile_count(compiled: Compile) -> int | None:
    """Return the number of recompiles; None where they cannot be known."""
    return None if compiled.recompiles is None else len(compiled.recompiles)


def unprofiled(trace: Trace) -> str | None:
    """Return why kernels on the CPU cannot be counted: code ran that leaves no event; None if none did."""
    if not trace.on_cpu:
        return None
    threads = (trace.torchprof or {}).get("threads")
    if isinstance(threads, list) and threads:
        return f"the measured code ran {threads[0]} on another thread, whose operators torch.profiler does not record"
    evidence = _evidence(trace)
    if evidence is None:
        return None
    ran = {graph.hash for graph in fx_graphs(trace, evidence)}
    # Where the calls of graphs leave no range, any of them may have run in a region.
    any_may = evidence.get("graphs_are_marked") is False and bool(regions.read(trace).regions)
    for graph in dicts(evidence, "fx_graphs"):
        if graph.get("unprofiled") and (any_may or graph_key(graph) in ran):
            return (
                "compiled before the measurement: a graph of Inductor's was compiled without kernel profiling, so that "
                f"its C++ kernels leave no event ({graph.get('code_path') or graph.get('hash')}). Compile it in the "
                "measured code, or set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
            )
    return None


def _evidence(trace: Trace) -> Mapping[str, Any] | None:
    found = (trace.torchprof or {}).get("compile")
    return found if isinstance(found, Mapping) else None


def _no_evidence(trace: Trace) -> str | None:
    if _evidence(trace) is not None:
        return None
    return _NO_KEY if trace.torchprof is None else _NO_EVIDENCE


def _unknown(trace: Trace, evidence: Mapping[str, Any] | None, name: str) -> str | None:
    if evidence is None:
        return _no_evidence(trace)
    unknown = evidence.get("unknown")
    return unknown.get(name) if isinstance(unknown, Mapping) else None


def _why_not_in_steps(evidence: Mapping[str, Any] | None, seen: Regions) -> str | None:
    if evidence and evidence.get("compiled") and not seen.regions:
        return "code was compiled, but no compiled code ran in the measured steps on the thread of the test"
    return None


def _graph_breaks(
    trace: Trace, evidence: Mapping[str, Any] | None, seen: Regions
) -> tuple[tuple[GraphBreak, ...], str | None]:
    unknown = _unknown(trace, evidence, "graph_breaks") or _why_not_in_steps(evidence, seen)
    if evidence is None:
        worst = max(seen.nested_by_step.values(), key=len, default=[])
        return tuple(graph_breaks.nested(inner, outer) for inner, outer in worst), unknown
    entries = evidence.get("entries")
    entries = entries if isinstance(entries, Mapping) else {}
    ran = [item for identity in sorted(seen.ids) for item in dicts(entries, identity)]
    skipped = [*dicts(evidence, "given_up"), *dicts(evidence, "given_up_earlier")]
    found = graph_breaks.merge(dicts(evidence, "breaks"), ran, skipped)
    unexplained = {outer: inner for inner, outer in seen.nested if outer.identity not in entries}
    return (*found, *(graph_breaks.nested(inner, outer) for outer, inner in unexplained.items())), unknown


def _recompiles(
    trace: Trace, evidence: Mapping[str, Any] | None, seen: Regions
) -> tuple[tuple[Recompile, ...] | None, str | None]:
    unknown = _unknown(trace, evidence, "recompiles")
    if evidence is None:
        again = regions.compiled_again(trace, seen)
        shown = tuple(
            Recompile(reason=f"compiled again inside the window ({identity})", function=None, file=None, line=None)
            for identity in again
        )
        return shown or None, unknown
    unknown = unknown or _why_not_in_steps(evidence, seen)
    found = tuple(
        Recompile(
            reason=str(item.get("reason")), function=item.get("function"), file=item.get("file"), line=item.get("line")
        )
        for item in dicts(evidence, "recompiles")
    )
    return (None if unknown and not found else found), unknown


def _nothing(evidence: Mapping[str, Any] | None, seen: Regions) -> tuple[str, ...] | None:
    if evidence is None or seen.regions or evidence.get("compiled"):
        return None
    if not evidence.get("dynamo"):
        return (NOT_USED,)
    hints = evidence.get("seen_instead")
    hints = [str(hint) for hint in hints] if isinstance(hints, list) else []
    if seen.lookups_without_region:
        calls = counted(seen.lookups_without_region, "call")
        hints.append(f"{calls} found no compiled code that fits, and ran uncompiled")
    return tuple(hints)


def _times(evidence: Mapping[str, Any] | None) -> Mapping[str, int] | None:
    times = (evidence or {}).get("time_us")
    if not isinstance(times, Mapping):
        return None
    return {str(phase): int(us) for phase, us in times.items() if isinstance(us, int)}

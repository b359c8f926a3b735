"""What torch.compile made of the measured code: the recording's own evidence together with what the trace shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis import compiled_code
from pytest_torchprof.analysis.compiled_code import CudaGraphs, Fallback, FxGraph, cuda_graphs, fallbacks, fx_graphs
from pytest_torchprof.recording.metadata import GraphBreak, Recompile
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.compiled_code import Region, Regions
    from pytest_torchprof.recording.metadata import CompileEvidence
    from pytest_torchprof.trace import Trace

NOT_USED = "torch.compile was not used"
_NO_KEY = "the recording holds no compile evidence (its key `torchprof` is missing)"
_NO_EVIDENCE = "the recording holds no compile evidence (its key `torchprof` has no `compile`)"


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


def compile_of(trace: Trace) -> Compile:
    """Return the compile evidence of a recording, ours or a foreign one."""
    evidence = None if trace.metadata is None else trace.metadata.compile
    seen, no_evidence = compiled_code.regions_of(trace), _no_evidence(trace)
    found, unknown = _graph_breaks(evidence, no_evidence, seen)
    again, again_unknown = _recompiles(trace, evidence, no_evidence, seen)
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
        cuda_graphs=cuda_graphs(trace, evidence, no_evidence),
        fx_graphs=tuple(fx_graphs(trace, evidence)),
        fallbacks=called,
        fallbacks_unknown=called_unknown,
        time_us=None if evidence is None else evidence.time_us,
    )


def unprofiled(trace: Trace) -> str | None:
    """Return why kernels on the CPU cannot be counted: code ran that leaves no event; None if none did."""
    if trace.device_kind.has_launches:
        return None
    metadata = trace.metadata
    if metadata is None:
        return None
    if metadata.threads:
        return (
            f"the measured code ran {metadata.threads[0]} on another thread, whose operators torch.profiler does not "
            "record"
        )
    evidence = metadata.compile
    if evidence is None:
        return None
    ran = {graph.hash for graph in fx_graphs(trace, evidence)}
    # Where the calls of graphs leave no range, any of them may have run in a region.
    any_may = evidence.graphs_are_marked is False and bool(compiled_code.regions_of(trace).regions)
    for graph in evidence.fx_graphs:
        if graph.unprofiled and (any_may or graph.hash in ran):
            return (
                "compiled before the measurement: a graph of Inductor's was compiled without kernel profiling, so that "
                f"its C++ kernels leave no event ({graph.code_path or graph.hash}). Compile it in the "
                "measured code, or set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
            )
    return None


def _no_evidence(trace: Trace) -> str | None:
    if trace.metadata is None:
        return _NO_KEY
    return None if trace.metadata.compile is not None else _NO_EVIDENCE


def _why_not_in_steps(evidence: CompileEvidence, seen: Regions) -> str | None:
    if evidence.compiled and not seen.regions:
        return "code was compiled, but no compiled code ran in the measured steps on the thread of the test"
    return None


def _graph_breaks(
    evidence: CompileEvidence | None, unknown: str | None, seen: Regions
) -> tuple[tuple[GraphBreak, ...], str | None]:
    if evidence is None:
        worst = max(seen.nested_by_step.values(), key=len, default=[])
        return tuple(_nested(inner, outer) for inner, outer in worst), unknown
    ran = [one for identity in sorted(seen.ids) for one in evidence.entries.get(identity, ())]
    found = _merge_breaks(evidence.breaks, ran, (*evidence.given_up, *evidence.given_up_earlier))
    unexplained = {outer: inner for inner, outer in seen.nested if outer.identity not in evidence.entries}
    return (
        (*found, *(_nested(inner, outer) for outer, inner in unexplained.items())),
        evidence.unknown.graph_breaks or _why_not_in_steps(evidence, seen),
    )


def _nested(inner: Region, outer: Region) -> GraphBreak:
    """Return the break that a compiled region inside another one shows."""
    return GraphBreak(reason=f"{inner.name} ran inside {outer.name}")


def _merge_breaks(
    reported: Iterable[GraphBreak], ran: Iterable[GraphBreak], skipped: Iterable[GraphBreak]
) -> tuple[GraphBreak, ...]:
    """Return one break per source line.

    `reported` while the code was compiled, `ran` the same of compiled code that ran, `skipped` frames. A break inside
    torch for which Dynamo names no line of the user's is the same as one at that place for which it does.
    """
    sources = [list(reported), list(ran), list(skipped)]
    named = {one.at: one for source in sources for one in source if _names_users_line(one)}
    counts: Counter[tuple[str | None, int | None]] = Counter()
    found: dict[tuple[str | None, int | None], GraphBreak] = {}
    for source in sources:
        breaks = [one if _names_users_line(one) else named.get(one.at, one) for one in source]
        # The same break may be told of by several sources; one that tells of it twice has seen two graphs.
        counts |= Counter(map(_source_line, breaks))
        for one in breaks:
            known = found.setdefault(_source_line(one), one)
            if source is sources[2]:
                found[_source_line(one)] = replace(known, skipped_frame=True)
    return tuple(replace(one, count=counts[line]) for line, one in found.items())


def _source_line(one: GraphBreak) -> tuple[str | None, int | None]:
    return one.file, one.line


def _names_users_line(one: GraphBreak) -> bool:
    return not one.inferred and one.at != f"{one.file}:{one.line}"


def _recompiles(
    trace: Trace, evidence: CompileEvidence | None, unknown: str | None, seen: Regions
) -> tuple[tuple[Recompile, ...] | None, str | None]:
    if evidence is None:
        again = compiled_code.compiled_again(trace, seen)
        shown = tuple(Recompile(reason=f"compiled again inside the window ({identity})") for identity in again)
        return shown or None, unknown
    unknown = evidence.unknown.recompiles or _why_not_in_steps(evidence, seen)
    return (None if unknown and not evidence.recompiles else evidence.recompiles), unknown


def _nothing(evidence: CompileEvidence | None, seen: Regions) -> tuple[str, ...] | None:
    if evidence is None or seen.regions or evidence.compiled:
        return None
    if not evidence.dynamo:
        return (NOT_USED,)
    if not seen.lookups_without_region:
        return evidence.seen_instead
    calls = counted(seen.lookups_without_region, "call")
    return (*evidence.seen_instead, f"{calls} found no compiled code that fits, and ran uncompiled")

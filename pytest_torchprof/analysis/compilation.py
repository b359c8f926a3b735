"""The work of torch.compile on the measured code: the recording's own evidence, and the traces in its events."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.regions import REGION, compiled_again, regions_of
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import CallKind, OperatorWork
from pytest_torchprof.reasons.compiler_events import InductorSilent, RegionInside, SeenCompiledAgain
from pytest_torchprof.reasons.compiling import (
    CompiledCodeOnOtherThread,
    NoEvidence,
    NoFittingCode,
    NoOperators,
    RanElsewhere,
    RanUncompiled,
    ReplayedWithoutCode,
)
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.uncompiled import NeverUsed, NoneFits
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import ShownFields, at_line, bracketed
from pytest_torchprof.trace.compile_evidence import GraphBreak, Recompile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.regions import Region, Regions
    from pytest_torchprof.reasons.compiler_events import AnyCompilerEvent
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.uncompiled import AnyWhyUncompiled
    from pytest_torchprof.trace import Span, Trace
    from pytest_torchprof.trace.caches import CompileCaches
    from pytest_torchprof.trace.compile_evidence import CompileEvidence, InductorGraph


FX_GRAPH = "## Call CompiledFxGraph "
_LIBRARIES = ("aten::", "mkldnn::", "mkl::", "onednn::", "quantized::")
_COMPILED_CODE = (REGION, "CompiledFunction", FX_GRAPH)


class ByThread:
    """Finds the range of a thread that an instant lies in; ranges of one thread must not overlap."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: dict[object, list[Span]] = defaultdict(list)
        for span in spans:
            self._spans[span.tid].append(span)
        self._starts = {tid: [span.start_ns for span in of_thread] for tid, of_thread in self._spans.items()}

    def __bool__(self) -> bool:
        return bool(self._spans)

    def at(self, tid: object, instant: int) -> Span | None:
        index = bisect_right(self._starts.get(tid, ()), instant) - 1
        if index < 0 or instant >= self._spans[tid][index].end_ns:
            return None
        return self._spans[tid][index]


def is_compiled_code(name: str) -> bool:
    """Whether a range of this name runs compiled code: a region, or a compiled function's forward or backward."""
    return name.startswith(_COMPILED_CODE)


class CudaGraphs(ShownFields, frozen=True, kw_only=True):
    """Graph launches over all steps, those among them inside compiled code, and why Inductor made no graph."""

    launches: int
    owned: int
    why: tuple[AnyCompilerEvent | str, ...]
    """Why Inductor made no graph, in its own words; what is known where it gives none."""
    skips_unknown: Reason | None
    """Why there may be more than ``skips``; None if they are all."""

    @property
    def skips(self) -> tuple[str, ...]:
        """The same as texts."""
        return tuple(map(str, self.why))


class FxGraph(Struct, frozen=True, kw_only=True):
    """One graph of Inductor's that ran: its cache key, the generated file if it is known, its calls over all steps."""

    hash: str | None
    code_path: str | None
    calls: int

    def __repr__(self) -> str:
        return bracketed(self, self.hash, at_line(self.code_path, None), counted(self.calls, "call"))


class Fallback(Struct, frozen=True, kw_only=True):
    """An aten kernel that Inductor's graph calls itself; how often in the step that has most."""

    op: str
    count: int


def cuda_graphs(trace: Trace, evidence: CompileEvidence | None, unknown: Reason | None) -> CudaGraphs:
    """Return the graph launches of the steps, and why Inductor made no graph where it made none, or why none knows."""
    launches = _graph_launches(trace)
    owned = sum(
        any(is_compiled_code(trace.names[trace.ops.name[op]]) for op in _operators_around(trace, call))
        for call in launches
    )
    reasons: list[AnyCompilerEvent | str] = []
    if evidence is not None:
        ran = {key for key, _ in _graph_calls(trace)}
        reasons += evidence.cudagraph_skips.reasons
        reasons += [graph.cudagraph_skip for graph in evidence.fx_graphs if graph.cudagraph_skip and graph.hash in ran]
        if not reasons and evidence.cudagraph_skips.count:
            reasons = [InductorSilent()]
    return CudaGraphs(launches=len(launches), owned=owned, why=tuple(dict.fromkeys(reasons)), skips_unknown=unknown)


def _graph_launches(trace: Trace) -> list[int]:
    if not trace.links.launches:
        return []
    names, steps = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH})), trace.step_of_call
    return [i for i in trace.links.launches if trace.calls.name[i] in names and steps[i] >= 0]


def _operators_around(trace: Trace, call: int) -> Iterator[int]:
    return trace.nesting.chain(trace.around_calls[call])


def _graph_calls(trace: Trace) -> Iterator[tuple[str | None, Span]]:
    """Yield the key and the range of each call of a graph of Inductor's inside the steps."""
    for span in trace.spans_in_steps(FX_GRAPH):
        key = span.name.removeprefix(FX_GRAPH).strip(" #")
        yield (None if key == "None" else key), span


def fx_graphs(trace: Trace, evidence: CompileEvidence | None) -> Iterator[FxGraph]:
    """Yield the graphs of Inductor's that ran in the steps."""
    paths = {graph.hash: graph.code_path for graph in _known_graphs(evidence)}
    for key, calls in Counter(key for key, _ in _graph_calls(trace)).items():
        yield FxGraph(hash=key, code_path=paths.get(key), calls=calls)


def _known_graphs(evidence: CompileEvidence | None) -> tuple[InductorGraph, ...]:
    return () if evidence is None else evidence.fx_graphs


def fallbacks(trace: Trace, evidence: CompileEvidence | None) -> tuple[tuple[Fallback, ...], Reason | None]:
    """Return the aten kernels that Inductor's graphs call in the step with most, and why there may be more.

    In a step that replays a CUDA graph nothing of them is on the CPU's side: the generated code tells.
    """
    calls = list(_graph_calls(trace))
    replayed = _replaying_calls(trace, [span for _, span in calls])
    by_step = _aten_calls_by_step(trace, [span for _, span in calls if span not in replayed])
    written = {graph.hash: graph.aten_calls for graph in _known_graphs(evidence)}
    unknown: Reason | None = None if len(trace.ops) else NoOperators()
    for key, span in calls:
        if span in replayed:
            counts = written.get(key)
            if counts is not None:
                by_step.setdefault(trace.step_at(span.start_ns), Counter()).update(counts)
            else:
                unknown = ReplayedWithoutCode()
    worst = max(by_step.values(), key=Counter.total, default=Counter[str]())
    return tuple(Fallback(op=op, count=count) for op, count in worst.most_common()), unknown


def _replaying_calls(trace: Trace, spans: list[Span]) -> set[Span]:
    """Return the calls of a graph that launch a CUDA graph."""
    if not spans:
        return set()
    calls, at = trace.calls, ByThread(spans).at
    containing = (at(trace.threads[calls.thread[i]], calls.start[i]) for i in _graph_launches(trace))
    return {span for span in containing if span is not None}


def _aten_calls_by_step(trace: Trace, spans: list[Span]) -> dict[int, Counter[str]]:
    """Return by step how often aten operators compute directly inside the ranges, views and allocation aside."""
    graphs = ByThread(spans)
    by_step: dict[int, Counter[str]] = {}
    if not graphs:
        return by_step
    names, ops, nesting = trace.names, trace.ops, trace.nesting
    acting = (OperatorWork.COMPUTES, OperatorWork.ALONE, OperatorWork.MOVES)
    acts = {i for i in set(ops.name) if names[i].startswith(_LIBRARIES) and operator_work(names[i]) in acting}
    for i, name in enumerate(ops.name):
        if name not in acts or any(ops.name[j] in acts for j in nesting.chain(nesting.parent[i])):
            continue
        if graphs.at(trace.threads[ops.thread[i]], ops.start[i]) and not trace.compiling.cover(
            ops.thread[i], ops.start[i]
        ):
            by_step.setdefault(trace.step_at(ops.start[i]), Counter())[names[name]] += 1
    return by_step


class Compile(Struct, frozen=True, kw_only=True):
    """Compile evidence of one recording; None where it cannot be known, with the reason beside."""

    regions: int
    """Compiled regions that ran, over all steps."""
    nested_regions: int
    """The regions among these that ran inside another region."""
    graph_breaks: tuple[GraphBreak, ...] | None
    graph_breaks_unknown: Reason | None
    """Why there may be more than ``graph_breaks``; None if they are all."""
    recompiles: tuple[Recompile, ...] | None
    recompiles_unknown: Reason | None
    compiled_in_window: bool
    skipped_frames: tuple[GraphBreak, ...]
    """The breaks that left a whole frame uncompiled."""
    nothing: tuple[AnyWhyUncompiled | str, ...] | None
    """If nothing was compiled at all: what was seen instead, possibly empty, in recordings of earlier versions as
    texts; else None."""
    lookups_without_region: int
    """Calls that found no compiled code that fits, and ran uncompiled."""
    cuda_graphs: CudaGraphs
    fx_graphs: tuple[FxGraph, ...]
    fallbacks: tuple[Fallback, ...]
    fallbacks_unknown: Reason | None
    """Why there may be more than ``fallbacks``; None if they are all."""
    time_us: Mapping[str, int] | None
    """Compile time by phase, warm-up included, each without what it calls; "total" is their sum."""
    caches: CompileCaches | None
    """The use of torch.compile's caches, and their state when the process began."""

    def __repr__(self) -> str:
        breaks, recompiles = (
            f"{noun}s not known" if events is None else f"{'at least ' if unknown else ''}{counted(len(events), noun)}"
            for events, unknown, noun in (
                (self.graph_breaks, self.graph_breaks_unknown, "graph break"),
                (self.recompiles, self.recompiles_unknown, "recompile"),
            )
        )
        return f"<Compile: {counted(self.regions, 'compiled region')}, {breaks}, {recompiles}>"


def compile_of(trace: Trace) -> Compile:
    """Return the compile evidence of a recording, ours or a foreign one."""
    evidence = None if trace.metadata is None else trace.metadata.compile
    seen, no_evidence = regions_of(trace), _why_no_evidence(trace)
    breaks, unknown = _graph_breaks(evidence, no_evidence, seen)
    again, again_unknown = _recompiles(trace, evidence, no_evidence, seen)
    called, called_unknown = fallbacks(trace, evidence)
    return Compile(
        regions=len(seen.regions),
        nested_regions=len(seen.nested),
        graph_breaks=None if unknown and not breaks else breaks,
        graph_breaks_unknown=unknown,
        recompiles=again,
        recompiles_unknown=again_unknown,
        compiled_in_window=bool(trace.compiling),
        skipped_frames=tuple(graph_break for graph_break in breaks if graph_break.skipped_frame),
        nothing=_seen_instead(evidence, seen),
        lookups_without_region=seen.lookups_without_region,
        cuda_graphs=cuda_graphs(trace, evidence, no_evidence),
        fx_graphs=tuple(fx_graphs(trace, evidence)),
        fallbacks=called,
        fallbacks_unknown=called_unknown or _why_unseen(evidence),
        time_us=None if evidence is None else evidence.time_us,
        caches=None if evidence is None else evidence.caches,
    )


def _why_no_evidence(trace: Trace) -> Reason | None:
    if trace.metadata is None:
        return NoEvidence(has_key=False)
    return None if trace.metadata.compile is not None else NoEvidence(has_key=True)


def _why_unseen(evidence: CompileEvidence | None) -> Reason | None:
    """Return why nothing can be said of compiled code: it ran where nobody looks; None where it did not.

    Dynamo may have reported its breaks when it compiled, or an earlier test has compiled it: the verdict is the same.
    """
    return CompiledCodeOnOtherThread() if evidence is not None and evidence.on_threads else None


def _why_not_in_steps(evidence: CompileEvidence, seen: Regions) -> Reason | None:
    if evidence.compiled and not seen.regions:
        return RanElsewhere()
    if evidence.eager_under:
        return RanUncompiled(evidence.eager_under[0])
    if evidence.entered_under and seen.lookups_without_region:
        return NoFittingCode(seen.lookups_without_region, evidence.entered_under[0])
    return None


def _graph_breaks(
    evidence: CompileEvidence | None, unknown: Reason | None, seen: Regions
) -> tuple[tuple[GraphBreak, ...], Reason | None]:
    if evidence is None:
        worst = max(seen.nested_by_step.values(), key=len, default=[])
        return tuple(_break_of_nested(inner, outer) for inner, outer in worst), unknown
    if unseen := _why_unseen(evidence):
        return (), unseen
    ran = [graph_break for identity in sorted(seen.ids) for graph_break in evidence.entries.get(identity, ())]
    merged = _merge_breaks(evidence.breaks, ran, (*evidence.given_up, *evidence.given_up_earlier))
    unexplained = {outer: inner for inner, outer in seen.nested if outer.identity not in evidence.entries}
    return (
        (*merged, *(_break_of_nested(inner, outer) for outer, inner in unexplained.items())),
        from_stored(evidence.unknown.graph_breaks) or _why_not_in_steps(evidence, seen),
    )


def _break_of_nested(inner: Region, outer: Region) -> GraphBreak:
    """Return the break that a compiled region inside another one shows."""
    return GraphBreak(why=RegionInside(inner.name, outer.name))


def _merge_breaks(
    reported: Iterable[GraphBreak], ran: Iterable[GraphBreak], skipped: Iterable[GraphBreak]
) -> tuple[GraphBreak, ...]:
    """Return one break per source line.

    `reported` while the code was compiled, `ran` the same of compiled code that ran, `skipped` frames. A break inside
    torch for which Dynamo names no line of the user's is the same as one at that place for which it does.
    """
    sources = [list(reported), list(ran), list(skipped)]
    if not any(sources):
        return ()
    named = {
        graph_break.at: graph_break for source in sources for graph_break in source if _names_users_line(graph_break)
    }
    counts: Counter[tuple[str | None, int | None]] = Counter()
    merged: dict[tuple[str | None, int | None], GraphBreak] = {}
    for source in sources:
        breaks = [
            graph_break if _names_users_line(graph_break) else named.get(graph_break.at, graph_break)
            for graph_break in source
        ]
        # Several sources may report the same break; a source that reports it twice has seen two graphs.
        counts |= Counter(map(_source_line, breaks))
        for graph_break in breaks:
            known = merged.setdefault(_source_line(graph_break), graph_break)
            if source is sources[2]:
                merged[_source_line(graph_break)] = replace(known, skipped_frame=True)
    return tuple(replace(graph_break, count=counts[line]) for line, graph_break in merged.items())


def _source_line(graph_break: GraphBreak) -> tuple[str | None, int | None]:
    return graph_break.file, graph_break.line


def _names_users_line(graph_break: GraphBreak) -> bool:
    return not graph_break.inferred and graph_break.at != f"{graph_break.file}:{graph_break.line}"


def _recompiles(
    trace: Trace, evidence: CompileEvidence | None, unknown: Reason | None, seen: Regions
) -> tuple[tuple[Recompile, ...] | None, Reason | None]:
    if evidence is None:
        again = compiled_again(trace, seen)
        shown = tuple(Recompile(why=SeenCompiledAgain(identity)) for identity in again)
        return shown or None, unknown
    if unseen := _why_unseen(evidence):
        return None, unseen
    unknown = from_stored(evidence.unknown.recompiles) or _why_not_in_steps(evidence, seen)
    return (None if unknown and not evidence.recompiles else evidence.recompiles), unknown


def _seen_instead(evidence: CompileEvidence | None, seen: Regions) -> tuple[AnyWhyUncompiled | str, ...] | None:
    if evidence is None or seen.regions or evidence.compiled or evidence.on_threads:
        return None
    if not evidence.dynamo:
        return (NeverUsed(),)
    if not seen.lookups_without_region:
        return evidence.seen_instead
    return (*evidence.seen_instead, NoneFits(seen.lookups_without_region))

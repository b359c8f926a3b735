"""What torch.compile made of the measured code: the recording's own evidence together with what the trace shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_torchprof import breaks, regions
from pytest_torchprof.breaks import GraphBreak
from pytest_torchprof.calls import CallKind
from pytest_torchprof.cpukernels import Work, work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.regions import Regions
    from pytest_torchprof.trace import Trace

__all__ = ["Compile", "CudaGraphs", "Fallback", "FxGraph", "GraphBreak", "Recompile", "graph_break_count", "read"]

_NO_EVIDENCE = "the recording holds no compile evidence (its key `torchprof` is missing)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """A frame that was compiled again because a guard failed; places are None where only the trace shows it."""

    reason: str
    function: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaGraphs:
    """Graph launches over all steps, those among them inside compiled code, and why Inductor made no graph."""

    launches: int
    owned: int
    skips: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FxGraph:
    """One graph of Inductor's that ran: its cache key, the generated file if it is known, its calls over all steps."""

    hash: str | None
    code_path: str | None
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """An aten kernel that Inductor's graph calls itself; how often in the step that has most."""

    op: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
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
    time_us: Mapping[str, int] | None
    """Compile time by phase, warm-up included, each without what it calls; "total" is their sum."""


def read(trace: Trace) -> Compile:
    """Return the compile evidence of a recording, ours or a foreign one."""
    evidence = _evidence(trace)
    seen = regions.read(trace)
    found, unknown = _graph_breaks(evidence, seen)
    again, again_unknown = _recompiles(trace, evidence, seen)
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
        cuda_graphs=_cuda_graphs(trace, evidence),
        fx_graphs=tuple(_fx_graphs(trace, evidence)),
        fallbacks=_fallbacks(trace),
        time_us=_times(evidence),
    )


def graph_break_count(compiled: Compile) -> int | None:
    """Return the number of graph breaks, at least as many if more are possible; None where none can be excluded."""
    return None if compiled.graph_breaks is None else len(compiled.graph_breaks)


def recompile_count(compiled: Compile) -> int | None:
    """Return the number of recompiles; None where they cannot be known."""
    return None if compiled.recompiles is None else len(compiled.recompiles)


def unprofiled(trace: Trace) -> str | None:
    """Return why kernels on the CPU cannot be counted: code whose C++ kernels leave no event ran; None if none did."""
    evidence = _evidence(trace)
    if evidence is None or not trace.on_cpu:
        return None
    ran = {graph.hash for graph in _fx_graphs(trace, evidence)}
    for graph in _dicts(evidence, "fx_graphs"):
        if graph.get("unprofiled") and _key(graph) in ran:
            return (
                "compiled before the measurement: a graph of Inductor's was compiled without kernel profiling, so that "
                f"its C++ kernels leave no event ({graph.get('code_path') or graph.get('hash')}). Compile it in the "
                "measured code, or set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
            )
    return None


def _evidence(trace: Trace) -> Mapping[str, Any] | None:
    found = (trace.torchprof or {}).get("compile")
    return found if isinstance(found, Mapping) else None


def _dicts(evidence: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    items = (evidence or {}).get(name)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _unknown(evidence: Mapping[str, Any] | None, name: str) -> str | None:
    if evidence is None:
        return _NO_EVIDENCE
    unknown = evidence.get("unknown")
    return unknown.get(name) if isinstance(unknown, Mapping) else None


def _why_not_in_steps(evidence: Mapping[str, Any] | None, seen: Regions) -> str | None:
    if evidence and evidence.get("compiled") and not seen.regions:
        return "code was compiled, but no compiled code ran in the measured steps on the thread of the test"
    return None


def _graph_breaks(evidence: Mapping[str, Any] | None, seen: Regions) -> tuple[tuple[GraphBreak, ...], str | None]:
    unknown = _unknown(evidence, "graph_breaks") or _why_not_in_steps(evidence, seen)
    if evidence is None:
        worst = max(seen.nested_by_step.values(), key=len, default=[])
        return tuple(breaks.nested(inner, outer) for inner, outer in worst), unknown
    entries = evidence.get("entries")
    entries = entries if isinstance(entries, Mapping) else {}
    ran = [item for identity in sorted(seen.ids) for item in _dicts(entries, identity)]
    skipped = [*_dicts(evidence, "given_up"), *_dicts(evidence, "given_up_earlier")]
    found = breaks.merge(_dicts(evidence, "breaks"), ran, skipped)
    unexplained = {outer: inner for inner, outer in seen.nested if outer.identity not in entries}
    return (*found, *(breaks.nested(inner, outer) for outer, inner in unexplained.items())), unknown


def _recompiles(
    trace: Trace, evidence: Mapping[str, Any] | None, seen: Regions
) -> tuple[tuple[Recompile, ...] | None, str | None]:
    unknown = _unknown(evidence, "recompiles")
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
        for item in _dicts(evidence, "recompiles")
    )
    return (None if unknown and not found else found), unknown


def _nothing(evidence: Mapping[str, Any] | None, seen: Regions) -> tuple[str, ...] | None:
    if evidence is None or seen.regions or evidence.get("compiled"):
        return None
    if not evidence.get("dynamo"):
        return ("torch.compile was not used",)
    hints = evidence.get("seen_instead")
    hints = [str(hint) for hint in hints] if isinstance(hints, list) else []
    if seen.lookups_without_region:
        hints.append(f"{seen.lookups_without_region} calls found no compiled code that fits, and ran uncompiled")
    return tuple(hints)


def _cuda_graphs(trace: Trace, evidence: Mapping[str, Any] | None) -> CudaGraphs:
    calls = trace.calls
    launches = [
        i
        for i, name in enumerate(calls.name)
        if trace.call_kinds[name] is CallKind.GRAPH_LAUNCH and trace.step_of_call[i] >= 0
    ]
    owned = sum(
        any(regions.is_compiled_code(trace.names[trace.ops.name[op]]) for op in _around(trace, call))
        for call in launches
    )
    skips = (evidence or {}).get("cudagraph_skips")
    skips = skips if isinstance(skips, Mapping) else {}
    reasons = [str(reason) for reason in skips.get("reasons") or ()]
    ran = Counter(key for key, _ in _graph_calls(trace))
    reasons += [
        str(graph["cudagraph_skip"])
        for graph in _dicts(evidence, "fx_graphs")
        if graph.get("cudagraph_skip") and _key(graph) in ran
    ]
    if not reasons and skips.get("count"):
        reasons = ["Inductor gives no reason"]
    return CudaGraphs(launches=len(launches), owned=owned, skips=tuple(dict.fromkeys(reasons)))


def _around(trace: Trace, call: int) -> Iterator[int]:
    calls = trace.calls
    return trace.nesting.chain(trace.nesting.around(calls.thread[call], calls.start[call], calls.end[call]))


def _graph_calls(trace: Trace) -> Iterator[tuple[str | None, Any]]:
    """Yield the key and the range of each call of a graph of Inductor's inside the steps."""
    for span in trace.spans(regions.FX_GRAPH):
        if trace.step_at(span.start_ns) >= 0:
            key = span.name.removeprefix(regions.FX_GRAPH).strip(" #")
            yield (None if key == "None" else key), span


def _key(graph: Mapping[str, Any]) -> str | None:
    key = graph.get("hash")
    return key if isinstance(key, str) else None


def _fx_graphs(trace: Trace, evidence: Mapping[str, Any] | None) -> Iterator[FxGraph]:
    paths = {_key(graph): graph.get("code_path") for graph in _dicts(evidence, "fx_graphs")}
    for key, calls in Counter(key for key, _ in _graph_calls(trace)).items():
        yield FxGraph(hash=key, code_path=paths.get(key), calls=calls)


def _fallbacks(trace: Trace) -> tuple[Fallback, ...]:
    """Return the aten operators that compute directly inside a graph of Inductor's, views and allocation aside."""
    graphs = regions.ByThread(span for _, span in _graph_calls(trace))
    if not graphs:
        return ()
    names, ops, parent = trace.names, trace.ops, trace.nesting.parent
    acts = {i for i in set(ops.name) if names[i].startswith("aten::") and work(names[i]) in (Work.COMPUTES, Work.MOVES)}
    by_step: dict[int, Counter[str]] = {}
    for i, name in enumerate(ops.name):
        if name not in acts or any(ops.name[j] in acts for j in trace.nesting.chain(parent[i])):
            continue
        span = graphs.at(trace.threads[ops.thread[i]], ops.start[i])
        if span is not None and not trace.compiling.cover(ops.thread[i], ops.start[i]):
            by_step.setdefault(trace.step_at(ops.start[i]), Counter())[names[name]] += 1
    worst = max(by_step.values(), key=Counter.total, default=Counter())
    return tuple(Fallback(op=op, count=count) for op, count in worst.most_common())


def _times(evidence: Mapping[str, Any] | None) -> Mapping[str, int] | None:
    times = (evidence or {}).get("time_us")
    if not isinstance(times, Mapping):
        return None
    return {str(phase): int(us) for phase, us in times.items() if isinstance(us, int)}

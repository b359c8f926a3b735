"""The line of the user's code, or the range, that a finding names: one with at least half of the finding's time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.devices.range_names import is_programs
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.intervals import Spans


def source_of_ops(work: GpuWork, gpu_ops: Iterable[int]) -> str | None:
    """Return the line that launched at least half of the time of GPU operations, None if no line did."""
    start, end = work.trace.gpu.start, work.trace.gpu.end
    return source_of_times(work, ((i, end[i] - start[i]) for i in gpu_ops))


def source_of_times(work: GpuWork, times_ns: Iterable[tuple[int, int]]) -> str | None:
    """Return the line with at least half of the times of GPU operations, such as the gaps before them."""
    return _most(work, ((work.source_of(i), ns) for i, ns in times_ns))


def source_of_calls(work: GpuWork, calls: Iterable[int]) -> str | None:
    """Return the line that made at least half of the time of calls, None if no line did."""
    start, end, origins = work.trace.calls.start, work.trace.calls.end, work.launching.origins
    places = ((origins.of_call(i, ABSENT), end[i] - start[i]) for i in calls)
    return _most(work, ((origin.source if origin else None, ns) for origin, ns in places))


def range_around(trace: Trace, spans: Spans) -> str | None:
    """Return the narrowest range of the program that holds at least half of the spans, None if no range does."""
    ranges = _ranges(trace)
    return _narrowest(ranges, _held_ns(ranges, spans), intervals.length(spans)) if ranges else None


def ranges_around(trace: Trace, spans: Spans) -> tuple[str | None, str | None]:
    """Return the narrowest range that holds at least half of the spans, or two that do together; None without.

    Of two the first is the one that holds most, the second the one that holds most of the rest.
    """
    ranges = _ranges(trace)
    if not ranges:
        return None, None
    whole_ns, held_ns = intervals.length(spans), _held_ns(ranges, spans)
    alone = _narrowest(ranges, held_ns, whole_ns)
    if alone is not None:
        return alone, None
    first = _most_held(held_ns)
    lacking_ns = whole_ns - 2 * held_ns[first]
    enough = {name: ranges[name] for name, ns in held_ns.items() if 2 * ns >= lacking_ns}
    added_ns = _held_ns(enough, intervals.without(spans, ranges[first]))
    if not added_ns or 2 * added_ns[second := _most_held(added_ns)] < lacking_ns:
        return None, None
    return first, second


def _most_held(held_ns: Mapping[str, int]) -> str:
    return min(held_ns, key=lambda name: (-held_ns[name], name))


def _ranges(trace: Trace) -> dict[str, Spans]:
    notes = trace.annotations
    entered: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, name in enumerate(notes.name):
        if is_programs(trace.names[name]):
            entered[trace.names[name]].append((notes.start[i], notes.end[i]))
    return {name: intervals.merged(those) for name, those in entered.items()}


def _held_ns(ranges: Mapping[str, Spans], spans: Spans) -> dict[str, int]:
    return {name: intervals.length_within(spans, those) for name, those in ranges.items()}


def _narrowest(ranges: Mapping[str, Spans], held_ns: Mapping[str, int], whole_ns: int) -> str | None:
    """Return the narrowest of the ranges that hold half of a time, None if none does."""
    around = [name for name, ns in held_ns.items() if 2 * ns >= whole_ns]
    return min(around, key=lambda name: (intervals.length(ranges[name]), name), default=None)


def _most(work: GpuWork, spent: Iterable[tuple[str | None, int]]) -> str | None:
    if not work.launching.origins.recorded:
        return None
    times: Counter[str] = Counter()
    total = 0
    for source, ns in spent:
        total += ns
        if source is not None:
            times[source] += ns
    (most, ns), *_ = times.most_common(1) or [("", 0)]
    return most if ns and 2 * ns >= total else None

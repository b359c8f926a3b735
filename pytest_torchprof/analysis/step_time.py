"""Where the steps' time went, and between which ranges the time lies in which nothing was recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import chain, repeat
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import fields

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, where

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.intervals import Spans

_LOADING_DATA = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
_COMMUNICATING = ("nccl:", "gloo:")
STEP = "ProfilerStep#"
"""What the names of the profiler's steps begin with."""
_NEVER = 2**63

_Ranges = tuple[list[int], list[int]]
"""Starts and ends in ns, in any order."""


class StepTime(Struct, frozen=True, kw_only=True):
    """The mean over the steps, in microseconds."""

    kernel: float
    memcpy: float
    memset: float
    communication: float
    runtime: float
    data_loader: float
    cpu: float
    other: float

    @property
    def total(self) -> float:
        """The mean length of a step."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


class SilentTime(Struct, frozen=True, kw_only=True):
    """A part of "other": time in which neither CPU nor GPU has an event, always between the same two ranges."""

    after: str | None
    """The outermost range on the CPU that ended last: operator, annotation or call; None for the step's beginning."""
    before: str | None
    """The one that begins next; None for the step's end."""
    profiler: str | None
    """What the profiler did meanwhile with its own buffers, as far as the file says."""
    time_us: float
    """The mean over the steps, as all of the breakdown."""
    count: int
    """How many gaps, over all steps."""
    longest_us: float


def step_time(
    trace: Trace,
    launched: Sequence[Sequence[int]],
    communication: Container[int],
    outermost: Sequence[int],
    unrecorded: Spans,
) -> tuple[StepTime, tuple[SilentTime, ...]]:
    """Return the breakdown of the recording's steps, and what its "other" is made of, the longest first.

    ``launched`` holds each step's GPU operations, ``communication`` the kernels that carry out a collective,
    ``outermost`` the operators that no other one holds, and ``unrecorded`` when neither CPU nor GPU has an event.

    Where ranges overlap, the priority of kineto's TensorBoard plugin decides: kernels, copies, fills, communication,
    calls of the runtime, loading of data, operators; each takes only what those before it left, and the rest is
    "other". A step ends with the last GPU operation that it launched, and begins where the one before ended. Unlike
    the plugin, no step at the end is left out.
    """
    named, steps = _together(*_named(trace, (*_COMMUNICATING, *_LOADING_DATA))), [*_plugins_steps(trace, launched)]
    starts, ends = intervals.outside(steps)
    reached, spent = sum(ends) - sum(starts), []
    for role_starts, role_ends in _roles(trace, communication):
        before = reached
        if role_starts:
            # What a role takes is what it adds to those before it.
            starts, ends = intervals.together(sorted(starts + role_starts), sorted(ends + role_ends))
            reached = sum(ends) - sum(starts)
        spent.append(reached - before)
    silent = intervals.within(unrecorded, steps)
    if named[0]:
        # Those of them that another operator holds, or that were captured, are not among the recorded times.
        silent = intervals.without(silent, intervals.merged(zip(*named, strict=True)))
    other = intervals.length(silent)
    spent += [ends[-1] - starts[0] - reached - other, other]
    names = [field.name for field in fields(StepTime)]
    breakdown = StepTime(**{name: ns / 1000 / len(trace.steps) for name, ns in zip(names, spent, strict=True)})
    return breakdown, _silent_times(trace, silent, steps, outermost)


def _silent_times(trace: Trace, silent: Spans, steps: Spans, outermost: Sequence[int]) -> tuple[SilentTime, ...]:
    """Return the gaps of the steps by what is around them."""
    own = intervals.merged(zip(trace.overheads.start, trace.overheads.end, strict=True))
    between: dict[tuple[str | None, str | None], Spans] = defaultdict(list)
    for gap, names in zip(silent, _neighbours(trace, silent, steps, outermost), strict=True):
        between[names].append(gap)
    rows = [
        SilentTime(
            after=after,
            before=before,
            profiler=profiler,
            time_us=sum(lasted) / 1000 / len(trace.steps),
            count=len(lasted),
            longest_us=max(lasted) / 1000,
        )
        for (after, before), gaps in between.items()
        for profiler, lasted in _by_profiler(trace, own, gaps).items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_us, row.after or "", row.before or "", row.profiler or "")))


def _by_profiler(trace: Trace, at_work: Spans, gaps: Spans) -> dict[str | None, list[int]]:
    """Return how long the parts of the gaps are, in ns, by what the profiler did then; it was ``at_work`` meanwhile."""
    if not at_work:
        return {None: [end - start for start, end in gaps]}
    own = trace.overheads
    begun = [start for start, _ in at_work]
    parts_ns: dict[str | None, list[int]] = defaultdict(list)
    for gap in gaps:
        left = [gap]
        last = bisect_left(begun, gap[1])
        # There are tens of thousands of gaps, and in most of them the profiler did nothing.
        meanwhile = range(len(own)) if last and at_work[last - 1][1] > gap[0] else ()
        for i in meanwhile:
            if own.start[i] < gap[1] and own.end[i] > gap[0]:
                taken = intervals.within(left, [(own.start[i], own.end[i])])
                left = intervals.without(left, taken)
                parts_ns[trace.names[own.name[i]]] += [until - since for since, until in taken]
        if left:
            parts_ns[None] += [until - since for since, until in left]
    return dict(parts_ns)


def _neighbours(
    trace: Trace, silent: Spans, steps: Spans, outermost: Sequence[int]
) -> Iterator[tuple[str | None, str | None]]:
    """Yield which range of the CPU, on whichever thread, ended last before each gap, and which begins next.

    None where that is in another step. Of several that end or begin together it is the longest, which is the outermost.
    """
    ops, notes, calls = trace.ops, trace.annotations, trace.calls
    kept = [i for i, name in enumerate(notes.name) if not trace.names[name].startswith(STEP)]
    starts, ends, named = (
        [column[i] for i in outermost] + [noted[i] for i in kept] + called
        for column, noted, called in (
            (ops.start, notes.start, calls.start),
            (ops.end, notes.end, calls.end),
            (ops.name, notes.name, calls.name),
        )
    )
    by_start = sorted(range(len(starts)), key=starts.__getitem__)
    by_end = sorted(range(len(ends)), key=ends.__getitem__)
    began = [*map(starts.__getitem__, by_start), _NEVER]
    ended = [*map(ends.__getitem__, by_end), _NEVER]
    # In a gap nothing runs: as many ranges have begun before it as have ended, in the place before which the next is.
    places, names = map(bisect_right, repeat(ended), [since for since, _ in silent]), trace.names
    for place, (begin, until) in zip(places, _steps_of(silent, steps), strict=True):
        after = before = None
        if place and ended[place - 1] > begin:
            last = by_end[place - 1]
            if place > 1 and ended[place - 2] == ended[place - 1]:
                together = by_end[bisect_left(ended, ended[place - 1]) : place]
                last = min(together, key=starts.__getitem__)
            after = names[named[last]]
        if began[place] < until:
            following = by_start[place]
            if began[place + 1] == began[place]:
                together = by_start[place : bisect_right(began, began[place])]
                following = max(together, key=ends.__getitem__)
            before = names[named[following]]
        yield after, before


def _steps_of(silent: Spans, steps: Spans) -> Iterable[tuple[int, int]]:
    """Return the step of each gap: the one that begins last before it; between two steps there is none."""
    if len(steps) == 1:
        return repeat(steps[0], len(silent))
    return [steps[bisect_right(steps, (start, _NEVER)) - 1] for start, _ in silent]


def _plugins_steps(trace: Trace, launched: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the steps as the plugin sees them: one after the other, each up to its last GPU operation's end."""
    start, end = trace.gpu.start, trace.gpu.end
    reached = trace.steps[0].start_ns
    if launched[0]:
        first = start[launched[0][0]]
        reached = max([reached, *(end[i] for i in trace.links.orphans if end[i] < first)])
    for step, gpu_ops in zip(trace.steps, launched, strict=True):
        begin = max(reached, step.start_ns)
        reached = max([begin, step.end_ns, *map(end.__getitem__, gpu_ops)])
        yield begin, reached


def _roles(trace: Trace, communication: Container[int]) -> Iterator[_Ranges]:
    """Yield the ranges of each role, in the order of priority; operators have what of the recorded time is left."""
    gpu, kind = trace.gpu, trace.gpu.kind

    def ran(members: list[int]) -> _Ranges:
        return [gpu.start[i] for i in members], [gpu.end[i] for i in members]

    kernels = where(kind, {KERNEL})
    yield ran([i for i in kernels if i not in communication])
    yield ran(where(kind, {MEMCPY}))
    yield ran(where(kind, {MEMSET}))
    yield _together(ran([i for i in kernels if i in communication]), *_named(trace, _COMMUNICATING))
    yield trace.calls.start, trace.calls.end
    yield _together(*_named(trace, _LOADING_DATA))


def _together(*ranges: _Ranges) -> _Ranges:
    return [*chain.from_iterable([starts for starts, _ in ranges])], [
        *chain.from_iterable([ends for _, ends in ranges])
    ]


def _named(trace: Trace, prefixes: tuple[str, ...]) -> Iterator[_Ranges]:
    names = {i for i, name in enumerate(trace.names) if name.startswith(prefixes)}
    for part in (trace.ops, trace.annotations) if names else ():
        members = where(part.name, names)
        yield [part.start[i] for i in members], [part.end[i] for i in members]

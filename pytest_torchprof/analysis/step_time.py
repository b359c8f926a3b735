"""Where the steps' time went, and between which ranges the time lies in which nothing was recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import chain, repeat
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import fields

from pytest_torchprof.devices.range_names import LOADING_DATA
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed, short_name
from pytest_torchprof.text.units import show_us
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL, MEMCPY, MEMSET, picked, where
from pytest_torchprof.trace.intervals import Spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.analysis.cpu_blocks import CpuBlocks
    from pytest_torchprof.trace import Trace

_COMMUNICATING = ("nccl:", "gloo:")

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

    def __repr__(self) -> str:
        shown = (f"{name} {show_us(getattr(self, name))}" for name in self.__struct_fields__ if getattr(self, name))
        return bracketed(self, *shown)

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
    """How the profiler handled its own buffers meanwhile; None if the file does not show it."""
    time_us: float
    """The mean over the steps, as all of the breakdown."""
    count: int
    """How many gaps, over all steps."""
    longest_us: float

    def __repr__(self) -> str:
        between = f"after {short_name(self.after or 'the beginning')}", f"before {short_name(self.before or 'the end')}"
        return bracketed(self, show_us(self.time_us), counted(self.count, "gap"), *between)


def step_time(
    trace: Trace,
    launched: Sequence[Sequence[int]],
    communication: AbstractSet[int],
    blocks: CpuBlocks,
    unrecorded: Spans,
) -> tuple[StepTime, tuple[SilentTime, ...]]:
    """Return the breakdown of the recording's steps, and what its "other" is made of, the longest first.

    ``launched`` holds each step's GPU operations, ``communication`` the kernels that carry out a collective,
    ``blocks`` when the CPU has an event, and ``unrecorded`` when neither CPU nor GPU has one.

    Where ranges overlap, the priority of kineto's TensorBoard plugin decides: kernels, copies, fills, communication,
    calls of the runtime, loading of data, operators; each takes only what those before it left, and the rest is
    "other". A step ends with the last GPU operation that it launched, and begins where the one before ended. Unlike
    the plugin, no step at the end is left out.
    """
    named, steps = _together(*_named(trace, (*_COMMUNICATING, *LOADING_DATA))), _plugins_steps(trace, launched)
    aside = intervals.outside(steps)
    starts, ends, reached, spent = aside.starts, aside.ends, intervals.length(aside), []
    for role_starts, role_ends in _roles(trace, communication):
        before = reached
        if role_starts:
            # What a role takes is what it adds to those before it.
            starts, ends = sorted([*starts, *role_starts]), sorted([*ends, *role_ends])
            reached = intervals.covered_length(starts, ends)
        spent.append(reached - before)
    silent = intervals.within(unrecorded, steps)
    if named[0]:
        # Those of them that another operator holds, or that were captured, are not among the recorded times.
        silent = intervals.without(silent, intervals.union(*named))
    other = intervals.length(silent)
    spent += [ends[-1] - starts[0] - reached - other, other]
    names = [field.name for field in fields(StepTime)]
    breakdown = StepTime(**{name: ns / 1000 / len(trace.steps) for name, ns in zip(names, spent, strict=True)})
    return breakdown, _silent_times(trace, silent, steps, blocks)


def _silent_times(trace: Trace, silent: Spans, steps: Spans, blocks: CpuBlocks) -> tuple[SilentTime, ...]:
    """Return the gaps of the steps by what is around them."""
    around = list(_neighbours(silent, steps, blocks))
    busy = _during_overheads(trace, silent)
    between_ns: dict[tuple[int, int], list[int]] = defaultdict(list)
    gaps: Iterable[tuple[tuple[int, int], int]] = zip(around, intervals.lengths(silent), strict=True)
    if busy:
        gaps = (gap for at, gap in enumerate(gaps) if at not in busy)
    for ranges, ns in gaps:
        between_ns[ranges].append(ns)
    named: list[str | None] = [*trace.names, None]
    lasted_ns: dict[tuple[str | None, str | None, str | None], list[int]] = defaultdict(list)
    for (after, before), lasted in between_ns.items():
        lasted_ns[named[after], named[before], None] += lasted
    for at in busy:
        after, before = around[at]
        for profiler, parts_ns in _by_profiler(trace, silent.starts[at], silent.ends[at]).items():
            lasted_ns[named[after], named[before], profiler] += parts_ns
    rows = [
        SilentTime(
            after=ended,
            before=beginning,
            profiler=profiler,
            time_us=sum(lasted) / 1000 / len(trace.steps),
            count=len(lasted),
            longest_us=max(lasted) / 1000,
        )
        for (ended, beginning, profiler), lasted in lasted_ns.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_us, row.after or "", row.before or "", row.profiler or "")))


def _during_overheads(trace: Trace, gaps: Spans) -> set[int]:
    """Return in which of the gaps the profiler did something: a few of tens of thousands."""
    at_work = intervals.union(trace.overheads.start, trace.overheads.end)
    return {at for start, end in at_work for at in range(bisect_right(gaps.ends, start), bisect_left(gaps.starts, end))}


def _by_profiler(trace: Trace, start: int, end: int) -> dict[str | None, list[int]]:
    """Return how long the parts of a gap are, in ns, by what the profiler did then."""
    own, left = trace.overheads, intervals.span(start, end)
    parts_ns: dict[str | None, list[int]] = defaultdict(list)
    for i in range(len(own)):
        if own.start[i] < end and own.end[i] > start:
            taken = intervals.within(left, intervals.span(own.start[i], own.end[i]))
            left = intervals.without(left, taken)
            parts_ns[trace.names[own.name[i]]] += intervals.lengths(taken)
    parts_ns[None] += intervals.lengths(left)
    return {profiler: lasted for profiler, lasted in parts_ns.items() if lasted}


def _neighbours(silent: Spans, steps: Spans, blocks: CpuBlocks) -> Iterable[tuple[int, int]]:
    """Return which range of the CPU, on whichever thread, ended last before each gap, and which begins next.

    They are named as in ``blocks``; ABSENT where that is in another step.
    """
    # In a gap nothing runs: as many blocks have begun before it as have ended.
    places = intervals.passed(blocks.ends, silent.starts)
    after = picked(blocks.closing, places)
    before = picked(blocks.opening, places)
    firsts = [0, *map(bisect_left, repeat(silent.starts), steps.starts[1:]), len(silent)]
    for (begin, until), first, behind in zip(steps, firsts, firsts[1:], strict=False):
        begins = bisect_right(places, bisect_right(blocks.ends, begin), first, behind)
        after[first:begins] = repeat(ABSENT, begins - first)
        finishes = bisect_left(places, bisect_left(blocks.starts, until), first, behind)
        before[finishes:behind] = repeat(ABSENT, behind - finishes)
    return zip(after, before, strict=True)


def _plugins_steps(trace: Trace, launched: Sequence[Sequence[int]]) -> Spans:
    """Return the steps as the plugin sees them: one after the other, each up to its last GPU operation's end."""
    start, end = trace.gpu.start, trace.gpu.end
    reached = trace.steps[0].start_ns
    if launched[0]:
        first = start[launched[0][0]]
        reached = max([reached, *(end[i] for i in trace.links.orphans if end[i] < first)])
    begins, ends = [], []
    for step, gpu_ops in zip(trace.steps, launched, strict=True):
        begins.append(max(reached, step.start_ns))
        reached = max([begins[-1], step.end_ns, *picked(end, gpu_ops)])
        ends.append(reached)
    return Spans(begins, ends)


def _roles(trace: Trace, communication: AbstractSet[int]) -> Iterator[_Ranges]:
    """Yield the ranges of each role, in the order of priority; operators have what of the recorded time is left."""
    start, end, kind = trace.gpu.start, trace.gpu.end, trace.gpu.kind

    def ran(members: list[int]) -> _Ranges:
        return picked(start, members), picked(end, members)

    of_kind: dict[int, list[int]] = {KERNEL: [], MEMCPY: [], MEMSET: []}
    for i, of in enumerate(kind):
        of_kind[of].append(i)
    kernels = of_kind[KERNEL]
    yield ran([i for i in kernels if i not in communication] if communication else kernels)
    yield ran(of_kind[MEMCPY])
    yield ran(of_kind[MEMSET])
    yield _together(
        ran([i for i in kernels if i in communication] if communication else []), *_named(trace, _COMMUNICATING)
    )
    yield trace.calls.start, trace.calls.end
    yield _together(*_named(trace, LOADING_DATA))


def _together(*ranges: _Ranges) -> _Ranges:
    return [*chain.from_iterable([starts for starts, _ in ranges])], [
        *chain.from_iterable([ends for _, ends in ranges])
    ]


def _named(trace: Trace, prefixes: tuple[str, ...]) -> Iterator[_Ranges]:
    names = {i for i, name in enumerate(trace.names) if name.startswith(prefixes)}
    for part in (trace.ops, trace.annotations) if names else ():
        members = where(part.name, names)
        yield picked(part.start, members), picked(part.end, members)

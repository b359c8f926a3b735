"""The tree of a recording's ranges: which of them each is inside of, and which of them are around a call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import compress, count, islice
from math import inf
from operator import eq
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import NestedOperators
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.trace.columns import ABSENT, Calls, in_order
from pytest_torchprof.trace.intervals import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.trace.columns import Ranges

# Files of torch before 2.4 cut start and duration to whole microseconds each: an end may lie up to two too early.
_CUT_NS = 2000
_NEVER = inf
_NEAR = 8
_FEW = 64
_NOTHING: Sequence[int] = ()


class Nesting:
    """The tree of ranges on each thread."""

    def __init__(self, ranges: Ranges) -> None:
        """Order the ranges of each thread and find the parent of each; linear if the file is in order."""
        self._ranges = ranges
        self.parent = [ABSENT] * len(ranges)
        """For each range the innermost one around it; ABSENT for the outermost."""
        self._order: dict[int, Sequence[int]] = {}
        self._starts: dict[int, Sequence[int]] = {}
        self.depth = 0
        """The most ranges that are inside one another."""
        self.one_after_another = len(ranges) == 0
        """Whether all are of one thread and in the order of the file: so are then the ends of the outermost ones."""
        of_threads = _by_thread(ranges)
        for thread, members in of_threads.items():
            order, starts = _by_start(ranges, members)
            self.one_after_another = len(of_threads) == 1 and order is members
            order = _longest_first(order, starts, ranges.end)
            self._adopt(order, starts)
            self._order[thread], self._starts[thread] = order, starts

    def __repr__(self) -> str:
        return bracketed(self, f"of {counted(len(self.parent), 'range')}", f"{self.depth} deep")

    def _adopt(self, order: Sequence[int], starts: Sequence[int]) -> None:
        """Set the parents of one thread's ranges."""
        ends, parent = self._ranges.end, self.parent
        # The innermost open range, and its end.
        holder, depth, deepest = ABSENT, 0, self.depth
        until: float = _NEVER
        for i, start, end in zip(order, starts, map(ends.__getitem__, order), strict=True):
            # A range without a length may lie on the border of its holder; any other must end before its holder does.
            while until < start or (until <= start and end > until):
                holder = parent[holder]
                until = ends[holder] if holder >= 0 else _NEVER
                depth -= 1
            parent[i] = holder
            holder, until = i, end
            depth += 1
            if depth > deepest:  # noqa: PLR1730 - at half the cost of max
                deepest = depth
        self.depth = deepest

    def around(self, thread: int, start: int, end: int) -> int:
        """Return the innermost range of the thread that holds [start, end] in ns; ABSENT without one."""
        call = Calls(name=[0], start=[start], end=[end], thread=[thread])
        return self.innermost_around(call, (0,))[0]

    def around_each(self, calls: Calls | Ranges, members: Iterable[int]) -> dict[int, int]:
        """Return by call the innermost range around each of the ``members``; ABSENT without one."""
        listed = list(members)
        return dict(zip(listed, self.innermost_around(calls, listed), strict=True))

    def innermost_around(self, calls: Calls | Ranges, members: Iterable[int]) -> list[int]:
        """Return the innermost range around each of the ``members``, in their order; ABSENT without one."""
        innermost: list[int] = []
        ends, parent = self._ranges.end, self.parent
        threads, began, until = calls.thread, calls.start, calls.end
        thread, starts, order, place = -1, _NOTHING, _NOTHING, 0
        # The same range began last before all that starts from ``latest`` on and before ``following``.
        latest: float = _NEVER
        following: float = _NEVER
        for call in members:
            start = began[call]
            if threads[call] != thread:
                thread = threads[call]
                starts, order = self._starts.get(thread, _NOTHING), self._order.get(thread, _NOTHING)
                latest = following = _NEVER
            if not latest <= start < following:
                if start < latest:
                    place = bisect_right(starts, start)
                else:
                    # Calls in their order are near one another: that is a third of the cost of a search among all.
                    near = place + _NEAR
                    place = bisect_right(starts, start, place, near) if near < len(starts) else near
                    if place == near:
                        place = bisect_right(starts, start, near - _NEAR)
                following = starts[place] if place < len(starts) else _NEVER
                last = order[place - 1] if place else ABSENT
            latest, holder, end = start, last, until[call]
            if holder >= 0 and ends[holder] < end:
                least = max(end - _CUT_NS, start)
                while holder >= 0 and ends[holder] < least:
                    holder = parent[holder]
            innermost.append(holder)
        return innermost

    def next_start(self, thread: int, instant: int) -> int | None:
        """Return the start of the thread's first range that starts at the instant or later; None if there is none."""
        starts = self._starts.get(thread, ())
        place = bisect_left(starts, instant)
        return starts[place] if place < len(starts) else None

    def children(self, holders: AbstractSet[int]) -> list[int]:
        """Return the ranges directly inside these, in file order."""
        parent = self.parent
        # What is inside of a few began while these ran.
        among = sorted(self._begun_during(holders)) if _FEW * len(holders) < len(parent) else range(len(parent))
        return [i for i in among if parent[i] in holders]

    def _begun_during(self, holders: Iterable[int]) -> Iterator[int]:
        """Yield the ranges that began while one of these ran on their thread."""
        ranges = self._ranges
        ran: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for i in holders:
            ran[ranges.thread[i]].append((ranges.start[i], ranges.end[i]))
        for thread, times in ran.items():
            order, starts = self._order[thread], self._starts[thread]
            for since, until in merged(times):
                yield from order[bisect_left(starts, since) : bisect_right(starts, until)]

    def chain(self, member: int) -> Iterator[int]:
        """Yield the range and those around it, innermost first."""
        while member >= 0:
            yield member
            member = self.parent[member]

    def around_all(self, members: Iterable[int]) -> set[int]:
        """Return the ranges and all those around them."""
        seen, level = set[int](), set(members) - {ABSENT}
        while level:
            seen |= level
            level = set(map(self.parent.__getitem__, level)) - seen - {ABSENT}
        return seen


_DEEPEST = 1000
"""The depth of nested calls that Python itself allows."""


def nest(ranges: Ranges, path: str | None) -> Nesting:
    """Return the tree of ranges; UnreadableRecording if it is deeper than any program's."""
    nesting = Nesting(ranges)
    if nesting.depth > _DEEPEST:
        raise UnreadableRecording.of(NestedOperators(nesting.depth, _DEEPEST), str(path))
    return nesting


def _by_thread(ranges: Ranges) -> dict[int, Sequence[int]]:
    threads = set(ranges.thread)
    if len(threads) == 1:
        return {threads.pop(): range(len(ranges))}
    members: dict[int, list[int]] = defaultdict(list)
    for i, thread in enumerate(ranges.thread):
        members[thread].append(i)
    return dict(members)


def _longest_first(order: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
    """Return the ranges by start; of those that start together the longest, which holds the others, comes first."""
    ties = compress(count(), map(eq, starts, islice(starts, 1, None)))
    # Most files have the holder first.
    wrong = [place for place in ties if ends[order[place]] < ends[order[place + 1]]]
    if not wrong:
        return order
    reordered, done = list(order), 0
    for place in wrong:
        if place >= done:
            first, done = bisect_left(starts, starts[place]), bisect_right(starts, starts[place])
            reordered[first:done] = sorted(reordered[first:done], key=ends.__getitem__, reverse=True)
    return reordered


def _by_start(ranges: Ranges, members: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the members by start, and their starts; the members themselves if the file has them in order."""
    starts = ranges.start if isinstance(members, range) else [ranges.start[i] for i in members]
    if not in_order(starts):
        members = sorted(members, key=ranges.start.__getitem__)
        starts = [ranges.start[i] for i in members]
    return members, starts

"""Which operator ran inside which, and inside which a call was made."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.columns import Ranges

# Files of torch before 2.4 cut start and duration to whole microseconds each: an end may lie up to two too early.
_CUT_NS = 2000


class Nesting:
    """The tree of ranges on each thread."""

    def __init__(self, ranges: Ranges) -> None:
        """Order the ranges of each thread and find each one's parent; linear where the file is in order."""
        self._ranges = ranges
        self.parent = array("i", [ABSENT]) * len(ranges)
        """For each range the innermost one around it, ABSENT for the outermost."""
        self._order: dict[int, list[int]] = {}
        self._starts: dict[int, list[int]] = {}
        for thread, members in _by_thread(ranges).items():
            order = _in_order(ranges, members)
            self._order[thread] = order
            self._starts[thread] = [ranges.start[i] for i in order]
            self._adopt(order)

    def _adopt(self, order: Sequence[int]) -> None:
        start, end, parent = self._ranges.start, self._ranges.end, self.parent
        stack: list[int] = []
        for i in order:
            begin, until = start[i], end[i]
            while stack and (end[stack[-1]] <= begin if until > end[stack[-1]] else end[stack[-1]] < begin):
                stack.pop()
            if stack:
                parent[i] = stack[-1]
            stack.append(i)

    def around(self, thread: int, start: int, end: int) -> int:
        """Return the innermost range of the thread that holds [start, end] in ns, ABSENT without one."""
        place = bisect_right(self._starts.get(thread, ()), start) - 1
        if place < 0:
            return ABSENT
        ends, parent = self._ranges.end, self.parent
        found = self._order[thread][place]
        while found >= 0 and (ends[found] < start or ends[found] + _CUT_NS < end):
            found = parent[found]
        return found

    def chain(self, member: int) -> Iterator[int]:
        """Yield the range and those around it, innermost first."""
        while member >= 0:
            yield member
            member = self.parent[member]


def _by_thread(ranges: Ranges) -> dict[int, Sequence[int]]:
    threads = set(ranges.thread)
    if len(threads) == 1:
        return {threads.pop(): range(len(ranges))}
    found: dict[int, list[int]] = defaultdict(list)
    for i, thread in enumerate(ranges.thread):
        found[thread].append(i)
    return dict(found)


def _in_order(ranges: Ranges, members: Sequence[int]) -> list[int]:
    """Return the members by start; of those that start together the longest first, as it holds the others."""
    start, end = ranges.start, ranges.end
    order = sorted(members, key=start.__getitem__)
    starts = [start[i] for i in order]
    together = any(a == b and end[i] < end[j] for a, b, i, j in zip(starts, starts[1:], order, order[1:], strict=False))
    return sorted(order, key=lambda i: (start[i], -end[i])) if together else order

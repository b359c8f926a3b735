"""Which operator ran inside which, and inside which a call was made."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import islice
from operator import and_, eq, lt
from typing import TYPE_CHECKING

from pytest_torchprof.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.columns import Ranges

# Files of torch before 2.4 cut start and duration to whole microseconds each: an end may lie up to two too early.
_CUT_NS = 2000
_NEVER = 2**63


class Nesting:
    """The tree of ranges on each thread."""

    def __init__(self, ranges: Ranges) -> None:
        """Order the ranges of each thread and find each one's parent; linear where the file is in order."""
        self._ranges = ranges
        self.parent = [ABSENT] * len(ranges)
        """For each range the innermost one around it, ABSENT for the outermost."""
        self._order: dict[int, list[int]] = {}
        self._starts: dict[int, list[int]] = {}
        for thread, members in _by_thread(ranges).items():
            order = _in_order(ranges, members)
            self._order[thread] = order
            self._starts[thread] = [ranges.start[i] for i in order]
            self._adopt(order, self._starts[thread])

    def _adopt(self, order: Sequence[int], starts: Sequence[int]) -> None:
        ends, parent = self._ranges.end, self.parent
        # The open ranges and, as the quickest thing to look at, when the innermost of them ends.
        stack, holder, until = [ABSENT], ABSENT, _NEVER
        for i, start in zip(order, starts, strict=True):
            end = ends[i]
            # One that has no length may lie on the border of its holder; others must end before it does.
            while until < start or (until <= start and end > until):
                stack.pop()
                holder = stack[-1]
                until = ends[holder] if holder >= 0 else _NEVER
            parent[i] = holder
            stack.append(i)
            holder, until = i, end

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
    # Few start together, so that sorting by both keys is seldom worth its price.
    ends = [end[i] for i in order]
    together = any(map(and_, map(eq, starts, islice(starts, 1, None)), map(lt, ends, islice(ends, 1, None))))
    return sorted(order, key=lambda i: (start[i], -end[i])) if together else order

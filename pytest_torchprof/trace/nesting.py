"""Which operator ran inside which, and inside which a call was made."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import islice
from operator import le
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT, Calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.trace.columns import Ranges

# Files of torch before 2.4 cut start and duration to whole microseconds each: an end may lie up to two too early.
_CUT_NS = 2000
_NEVER = 2**63
_NOTHING: Sequence[int] = ()


class Nesting:
    """The tree of ranges on each thread."""

    def __init__(self, ranges: Ranges) -> None:
        """Order the ranges of each thread and find each one's parent; linear where the file is in order."""
        self._ranges = ranges
        self.parent = [ABSENT] * len(ranges)
        """For each range the innermost one around it, ABSENT for the outermost."""
        self._order: dict[int, Sequence[int]] = {}
        self._starts: dict[int, Sequence[int]] = {}
        for thread, members in _by_thread(ranges).items():
            order, starts = _by_start(ranges, members)
            if not self._adopt(order, starts):
                order = sorted(order, key=lambda i: (ranges.start[i], -ranges.end[i]))
                self._adopt(order, starts)
            self._order[thread], self._starts[thread] = order, starts

    def _adopt(self, order: Sequence[int], starts: Sequence[int]) -> bool:
        """Find the parents; False if of ranges that start together a longer one comes later."""
        ends, parent = self._ranges.end, self.parent
        # The innermost open range, when it ends, and when it began.
        holder, until, began = ABSENT, _NEVER, -_NEVER
        for i, start in zip(order, starts, strict=True):
            end = ends[i]
            if end > until and start == began:
                return False
            # One that has no length may lie on the border of its holder; others must end before it does.
            while until < start or (until <= start and end > until):
                holder = parent[holder]
                until = ends[holder] if holder >= 0 else _NEVER
            parent[i] = holder
            holder, until, began = i, end, start
        return True

    def around(self, thread: int, start: int, end: int) -> int:
        """Return the innermost range of the thread that holds [start, end] in ns, ABSENT without one."""
        one = Calls(name=[0], start=[start], end=[end], thread=[thread])
        return self.around_each(one, (0,))[0]

    def around_each(self, calls: Calls, members: Iterable[int]) -> dict[int, int]:
        """Return the innermost range around each of the calls, ABSENT without one."""
        found, ends, parent = {}, self._ranges.end, self.parent
        threads, began, until = calls.thread, calls.start, calls.end
        thread, starts, order = -1, _NOTHING, _NOTHING
        for call in members:
            if threads[call] != thread:
                thread = threads[call]
                starts, order = self._starts.get(thread, _NOTHING), self._order.get(thread, _NOTHING)
            start = began[call]
            place = bisect_right(starts, start)
            holder = order[place - 1] if place else ABSENT
            least = max(start, until[call] - _CUT_NS)
            while holder >= 0 and ends[holder] < least:
                holder = parent[holder]
            found[call] = holder
        return found

    def next_start(self, thread: int, instant: int) -> int | None:
        """Return when the thread's next range starts, at the instant or later; None if there is none."""
        starts = self._starts.get(thread, ())
        place = bisect_left(starts, instant)
        return starts[place] if place < len(starts) else None

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


def _by_start(ranges: Ranges, members: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the members by start, and the starts; as they are where the file has them in order."""
    starts = ranges.start if isinstance(members, range) else [ranges.start[i] for i in members]
    if not all(map(le, starts, islice(starts, 1, None))):
        members = sorted(members, key=ranges.start.__getitem__)
        starts = [ranges.start[i] for i in members]
    return members, starts

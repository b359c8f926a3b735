"""The tree of a recording's ranges: which of them each is inside of, and which of them are around a call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import chain, compress, islice
from math import inf
from operator import eq
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import NestedOperators
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.trace.columns import ABSENT, Calls, in_order, picked
from pytest_torchprof.trace.intervals import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.trace.columns import Ranges

# Files of torch before 2.4 cut start and duration to whole microseconds each: an end may lie up to two too early.
_CUT_NS = 2000
_NEVER = inf
_FEW = 64
_DEEPEST = 1000
"""The depth of nested calls that Python itself allows."""
_Call = tuple[int, float, float]
"""A call with its start and its end."""
_NO_MORE: tuple[_Call, ...] = ((ABSENT, _NEVER, _NEVER),)


class Nesting:
    """The tree of ranges on each thread."""

    def __init__(self, ranges: Ranges, calls: Calls | None = None) -> None:
        """Find what is around each range and each of the calls; linear if both are in the order of the file."""
        calls = Calls() if calls is None else calls
        self._ranges = ranges
        # What no range holds is held by one that never ends, which is at ABSENT.
        self._ends: Sequence[float] = [*ranges.end, _NEVER]
        self.parent = [ABSENT] * len(ranges)
        """For each range the innermost one around it; ABSENT for the outermost."""
        self.around_calls = [ABSENT] * len(calls)
        """For each of the calls the innermost range around it; ABSENT without one."""
        self._order: dict[int, Sequence[int]] = {}
        self._starts: dict[int, Sequence[int]] = {}
        # Whether a way up has turned out longer than it is in any program.
        self._is_bottomless = False
        self.one_after_another = len(ranges) == 0
        """Whether all are of one thread and in the order of the file: so are then the ends of the outermost ones."""
        of_threads, calls_of, outermost = _by_thread(ranges), _by_thread(calls), list[int]()
        for thread, members in of_threads.items():
            by_start = _by_start(ranges, members)
            self.one_after_another = len(of_threads) == 1 and by_start.order is members
            in_turn = _longest_first(by_start, ranges.end)
            outermost += self._adopt(in_turn, _by_start(calls, calls_of.get(thread, ())))
            self._order[thread], self._starts[thread] = in_turn.order, in_turn.starts
        self.outermost = sorted(outermost)
        """The ranges that no other one holds, in file order."""

    def __repr__(self) -> str:
        return bracketed(self, f"of {counted(len(self.parent), 'range')}", f"{self.depth} deep")

    def _adopt(self, ranges: _InTurn, calls: _InTurn) -> list[int]:
        """Set the parents of one thread's ranges and what is around its calls; return the outermost ranges."""
        ends, parent, around, outermost = self._ends, self.parent, self.around_calls, list[int]()
        calls_left = chain(calls.each(), _NO_MORE)
        # The innermost open range, and its end.
        holder = ABSENT
        until: float = _NEVER
        call, began, finished = next(calls_left)
        for i, start, end in ranges.each():
            while began < start:
                if until < finished:
                    # What has ended holds neither this call nor what comes after it.
                    while until < began:
                        holder = parent[holder]
                        until = ends[holder]
                around[call] = holder if finished <= until else self._holding_longer(holder, began, finished)
                call, began, finished = next(calls_left)
            # A range without a length may lie on the border of its holder; any other must end before its holder does.
            while until <= start and (until < start or end > until):
                holder = parent[holder]
                until = ends[holder]
            if holder < 0:
                outermost.append(i)
            parent[i] = holder
            holder, until = i, end
        while call >= 0:
            around[call] = self._holding_longer(holder, began, finished)
            call, began, finished = next(calls_left)
        return outermost

    def _holding_longer(self, last: int, start: float, end: float) -> int:
        """Return the holder as `_holding` does, as long as no range is too deep, which is refused (`nest`)."""
        # Where one is, the way up from each call would be long.
        if self._is_bottomless or self._ends[last] >= end:
            return last
        holders, least = self.chain(last), max(end - _CUT_NS, start)
        holder = next((i for i in islice(holders, _DEEPEST) if self._ends[i] >= least), ABSENT)
        self._is_bottomless = holder == ABSENT and next(holders, ABSENT) != ABSENT
        return holder

    def _level(self, member: int) -> int:
        """Return how many ranges are around and including this one; of those that are too deep it counts no further."""
        return sum(1 for _ in islice(self.chain(member), _DEEPEST + 1))

    @property
    def is_too_deep(self) -> bool:
        """Whether more ranges are inside one another than any program's."""
        # From one range to the next it goes down by one at most: a few of them tell of all that none may be too deep.
        apart = _DEEPEST // 2
        looked_at = chain.from_iterable(order[::apart] for order in self._order.values())
        return any(self._level(i) > _DEEPEST - apart for i in looked_at) and self.depth > _DEEPEST

    @cached_property
    def depth(self) -> int:
        """The most ranges that are inside one another."""
        parent = self.parent
        # What no range holds is inside the last one, which is at ABSENT and counts for nothing.
        level = [0] * (len(parent) + 1)
        for i in chain.from_iterable(self._order.values()):
            level[i] = level[parent[i]] + 1
        return max(level)

    def _holding(self, last: int, start: float, end: float) -> int:
        """Return the innermost range that holds [start, end], of those around and including the last that began."""
        ends, holder = self._ends, last
        if ends[holder] < end:
            least = max(end - _CUT_NS, start)
            while ends[holder] < least:
                holder = self.parent[holder]
        return holder

    def around(self, thread: int, start: int, end: int) -> int:
        """Return the innermost range of the thread that holds [start, end] in ns; ABSENT if none does."""
        index = bisect_right(self._starts.get(thread, ()), start)
        return self._holding(self._order[thread][index - 1], start, end) if index else ABSENT

    def around_each(self, calls: Calls | Ranges, members: Iterable[int]) -> dict[int, int]:
        """Return by call the innermost range around each of the ``members``; ABSENT if there is none."""
        threads, starts, ends = calls.thread, calls.start, calls.end
        return {call: self.around(threads[call], starts[call], ends[call]) for call in members}

    def next_start(self, thread: int, instant: int) -> int | None:
        """Return the start of the thread's first range that starts at the instant or later; None if there is none."""
        starts = self._starts.get(thread, ())
        index = bisect_left(starts, instant)
        return starts[index] if index < len(starts) else None

    def children(self, holders: AbstractSet[int]) -> list[int]:
        """Return the ranges directly inside these, in file order."""
        parent = self.parent
        # What is inside of a few began while these ran.
        among = sorted(self._begun_during(holders)) if _FEW * len(holders) < len(parent) else range(len(parent))
        return [i for i in among if parent[i] in holders]

    def _begun_during(self, holders: Iterable[int]) -> list[int]:
        """Return the ranges that began while one of these ran on their thread."""
        ranges, begun = self._ranges, list[int]()
        ran: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for i in holders:
            ran[ranges.thread[i]].append((ranges.start[i], ranges.end[i]))
        for thread, times in ran.items():
            order, starts = self._order[thread], self._starts[thread]
            for since, until in merged(times):
                begun += order[bisect_left(starts, since) : bisect_right(starts, until)]
        return begun

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


def nest(ranges: Ranges, calls: Calls, path: str | None) -> Nesting:
    """Return the tree of ranges around calls; UnreadableRecording if it is deeper than any program's."""
    nesting = Nesting(ranges, calls)
    if nesting.is_too_deep:
        raise UnreadableRecording.of(NestedOperators(nesting.depth, _DEEPEST), str(path))
    return nesting


def _by_thread(ranges: Ranges | Calls) -> dict[int, Sequence[int]]:
    threads = ranges.thread
    if threads and threads.count(threads[0]) == len(threads):
        return {threads[0]: range(len(threads))}
    members: dict[int, list[int]] = defaultdict(list)
    for i, thread in enumerate(threads):
        members[thread].append(i)
    return dict(members)


class _InTurn(Struct, frozen=True):
    """Ranges or calls of one thread by start, with their starts and their ends."""

    order: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]

    def each(self) -> Iterator[tuple[int, int, int]]:
        """Yield index, start and end of each."""
        return zip(self.order, self.starts, self.ends, strict=True)


def _by_start(columns: Ranges | Calls, members: Sequence[int]) -> _InTurn:
    """Return the members by start; the members themselves if the file has them in order."""
    if isinstance(members, range):
        starts, ends = columns.start, columns.end
    else:
        starts, ends = picked(columns.start, members), picked(columns.end, members)
    if in_order(starts):
        return _InTurn(members, starts, ends)
    order = sorted(members, key=columns.start.__getitem__)
    return _InTurn(order, sorted(starts), picked(columns.end, order))


def _longest_first(ranges: _InTurn, ends: Sequence[int]) -> _InTurn:
    """Return the ranges by start; of those that start together the longest, which holds the others, comes first."""
    starts, until = ranges.starts, ranges.ends
    together = compress(range(len(starts)), map(eq, starts, starts[1:]))
    # Most files have the holder first.
    wrong = {starts[index] for index in together if until[index] < until[index + 1]}
    if not wrong:
        return ranges
    order, until = list(ranges.order), list(until)
    for start in wrong:
        several = slice(bisect_left(starts, start), bisect_right(starts, start))
        order[several] = sorted(order[several], key=ends.__getitem__, reverse=True)
        until[several] = sorted(until[several], reverse=True)
    return _InTurn(order, starts, until)

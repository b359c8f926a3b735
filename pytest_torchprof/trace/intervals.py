"""Arithmetic with ranges of time, in ns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, compress, repeat
from math import inf
from operator import gt, lt, sub
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pytest_torchprof.trace.columns import in_order, picked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_torchprof.trace.columns import Timed

_FOREVER = 2**80
_MANY = 16
"""If one list has so many times as many ranges as the other, looking each range up is faster than a common order."""
_FEWER = 4
"""If there are so many times fewer instants than ranges, looking each up is faster than to go along both."""


class Spans(Struct, frozen=True):
    """Ranges of time in ns, in order and disjoint, as two columns: a recording has tens of thousands of some."""

    starts: Sequence[int] = field(default_factory=list)
    ends: Sequence[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each."""
        return zip(self.starts, self.ends, strict=True)

    def around(self, since: int, until: int) -> tuple[int, int] | None:
        """Return the range that holds this time from beginning to end; None if none does."""
        index = bisect_right(self.starts, since) - 1
        return (self.starts[index], self.ends[index]) if index >= 0 and until <= self.ends[index] else None


def span(start: int, end: int) -> Spans:
    """Return one range."""
    return Spans([start], [end])


def merged(ranges: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of the ranges."""
    listed = list(ranges)
    return union([start for start, _ in listed], [end for _, end in listed])


def union(starts: Iterable[int], ends: Iterable[int]) -> Spans:
    """Return the times that the ranges with these starts and ends cover, which may overlap, in any order."""
    return together(sorted(starts), sorted(ends))


def of(columns: Timed, members: Collection[int]) -> Spans:
    """Return when any of these events ran."""
    return union(picked(columns.start, members), picked(columns.end, members))


def union_of(several: Iterable[Spans]) -> Spans:
    """Return the times that any of them covers."""
    listed = list(several)
    return union(*columns_of(listed)) if len(listed) != 1 else listed[0]


def columns_of(several: Iterable[Spans]) -> tuple[list[int], list[int]]:
    """Return all their starts and all their ends."""
    starts: list[int] = []
    ends: list[int] = []
    for spans in several:
        starts += spans.starts
        ends += spans.ends
    return starts, ends


def within(these: Spans, those: Spans) -> Spans:
    """Return the intersection of both."""
    fewer, more = (these, those) if len(these) < len(those) else (those, these)
    if len(fewer) == 1 and _holds(fewer, more):
        return more
    # A range without a length may lie inside another; only the search one by one distinguishes it from a border.
    if _are_alike(fewer, more) and _have_length(fewer) and _have_length(more):
        return _doubly(*map(sorted, columns_of((fewer, more))))
    starts: list[int] = []
    ends: list[int] = []
    for start, end in fewer:
        first, last = bisect_right(more.ends, start), bisect_left(more.starts, end)
        if first < last:
            # All but the first and the last of them are entirely inside.
            starts += max(start, more.starts[first]), *more.starts[first + 1 : last]
            ends += *more.ends[first : last - 1], min(end, more.ends[last - 1])
    return Spans(starts, ends)


def length_within(these: Spans, those: Spans) -> int:
    """Return the length of the intersection of both, to which ranges without a length add nothing."""
    if _are_alike(these, those):
        starts, ends = map(sorted, columns_of((these, those)))
        # As `_doubly` has them, without making the ranges.
        return sum([end - start for start, end in zip(starts[1:], ends, strict=False) if start < end])
    return length(within(these, those))


def _are_alike(these: Spans, those: Spans) -> bool:
    """Return whether a common order of both costs less than looking up each range of the shorter list."""
    fewer, more = sorted((len(these), len(those)))
    return fewer > 1 and more < _MANY * fewer


def _holds(single: Spans, several: Spans) -> bool:
    """Return whether a single range holds all of several, none of them at its border without a length."""
    (start,), (end,) = single.starts, single.ends
    return (
        len(several) > 0
        and start <= several.starts[0]
        and start < several.ends[0]
        and several.ends[-1] <= end
        and several.starts[-1] < end
    )


def _have_length(spans: Spans) -> bool:
    return all(map(lt, spans.starts, spans.ends))


def without(these: Spans, those: Spans) -> Spans:
    """Return the parts of these ranges that those do not cover."""
    left = outside(those)
    if _are_alike(these, left):
        return _doubly(*map(sorted, columns_of((these, left))))
    parts = within(these, left)
    return chosen(parts, list(map(lt, parts.starts, parts.ends)))


def chosen(these: Spans, are: Sequence[bool]) -> Spans:
    """Return those of the ranges for which this is true."""
    return these if all(are) else Spans(list(compress(these.starts, are)), list(compress(these.ends, are)))


def outside(these: Spans) -> Spans:
    """Return the times that these ranges do not cover, from ever to ever."""
    return Spans([-_FOREVER, *these.ends], [*these.starts, _FOREVER])


def passed(column: Sequence[int], instants: Sequence[int]) -> list[int]:
    """Return for each instant how many of the column's, which are in order, come before it or with it."""
    # To go along both takes a third of the time of a search for each, where the instants are many.
    if len(column) > _FEWER * len(instants) or not in_order(instants):
        return list(map(bisect_right, repeat(column), instants))
    counts: list[int] = []
    at, endless = 0, [*column, inf]
    for instant in instants:
        while endless[at] <= instant:
            at += 1
        counts.append(at)
    return counts


class Coverage:
    """How much of the time before an instant ranges cover, looked up without a walk along them."""

    def __init__(self, spans: Spans) -> None:
        """Take the ranges."""
        self._starts = spans.starts
        # Before the first range lies one that ended long ago.
        self._ends = [-_FOREVER, *spans.ends]
        self._before = list(accumulate(map(sub, spans.ends, spans.starts), initial=0))

    def ns_before(self, instants: Sequence[int]) -> list[int]:
        """Return for each instant the length of what the ranges cover before it."""
        ends, before = self._ends, self._before
        # What still runs then counts up to the instant.
        return [
            before[index] if (end := ends[index]) <= instant else before[index] - (end - instant)
            for index, instant in zip(passed(self._starts, instants), instants, strict=True)
        ]


def _doubly(starts: list[int], ends: list[int]) -> Spans:
    """Return the times that two of the ranges with these starts and ends, each in order, cover; none without a length.

    No more than two overlap anywhere. So two overlap from a start on if one that began before it has not ended, and
    they do until the next end.
    """
    both = list(map(lt, starts[1:], ends))
    return Spans(list(compress(starts[1:], both)), list(compress(ends, both)))


def lengths(these: Spans) -> list[int]:
    """Return the length of each."""
    return list(map(sub, these.ends, these.starts))


def length(these: Spans) -> int:
    """Return their total length."""
    return sum(map(sub, these.ends, these.starts))


def covered_length(starts: Sequence[int], ends: Sequence[int]) -> int:
    """Return the length of the times that the ranges with these starts and these ends, each in order, cover."""
    if not starts:
        return 0
    # All from the first start to the last end but for the gaps, for which no ranges have to be made.
    gaps = [start - end for start, end in zip(starts[1:], ends, strict=False) if start > end]
    return ends[-1] - starts[0] - sum(gaps)


def together(starts: Sequence[int], ends: Sequence[int]) -> Spans:
    """Return the times that the ranges with these starts and these ends, each in order, cover.

    No range is open before a start exactly if as many ranges have ended as have begun, whichever they are.
    """
    alone = list(map(gt, starts[1:], ends))
    if all(alone):
        # Most often they do not overlap.
        return Spans(starts, ends)
    return Spans(
        [*starts[:1], *compress(starts[1:], alone)],
        [*compress(ends, alone), *ends[-1:]],
    )

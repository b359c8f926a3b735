"""Arithmetic with ranges of time: sorted, disjoint lists of (start, end) in ns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, compress, islice
from operator import gt, itemgetter, lt, sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Spans = list[tuple[int, int]]
_FOREVER = 2**80
_MANY = 16
"""If one list has so many times as many ranges as the other, looking each range up is faster than a common order."""


def merged(ranges: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of the ranges."""
    ordered = sorted(ranges)
    if all(map(lt, map(itemgetter(1), ordered), map(itemgetter(0), islice(ordered, 1, None)))):
        # Most often they are already in order.
        return ordered
    spans: Spans = []
    since, reached = ordered[0]
    for start, end in ordered:
        if start > reached:
            spans.append((since, reached))
            since, reached = start, end
        elif end > reached:
            reached = end
    spans.append((since, reached))
    return spans


def within(these: Spans, those: Spans) -> Spans:
    """Return the intersection of both."""
    fewer, more = (these, those) if len(these) < len(those) else (those, these)
    if 1 < len(fewer) <= len(more) < _MANY * len(fewer):
        starts, ends = [start for start, _ in these + those], [end for _, end in these + those]
        # A range without a length may lie inside another; only the search one by one distinguishes it from a border.
        if all(map(lt, starts, ends)):
            return _doubly(sorted(starts), sorted(ends))
    spans: Spans = []
    for start, end in fewer:
        first, last = bisect_left(more, (start,)), bisect_left(more, (end,))
        if first and more[first - 1][1] > start:
            first -= 1
        inside = [span for span in more[first:last] if span[1] > start]
        if inside:
            # All but the first and the last of them are entirely inside.
            inside[0] = max(start, inside[0][0]), inside[0][1]
            inside[-1] = inside[-1][0], min(end, inside[-1][1])
            spans += inside
    return spans


def without(these: Spans, those: Spans) -> Spans:
    """Return the parts of these ranges that those do not cover."""
    before, behind = outside(those)
    if max(len(these), len(before)) < _MANY * min(len(these), len(before)):
        return _doubly(sorted([start for start, _ in these] + before), sorted([end for _, end in these] + behind))
    gaps = list(zip(before, behind, strict=True))
    return [(start, end) for start, end in within(these, gaps) if start < end]


def outside(these: Spans) -> tuple[list[int], list[int]]:
    """Return starts and ends of the times that these ranges do not cover, from ever to ever."""
    return [-_FOREVER, *(end for _, end in these)], [*(start for start, _ in these), _FOREVER]


def length_without(these: Spans, starts: list[int], ends: list[int]) -> int:
    """Return the length of these ranges without those with these starts and ends, which may overlap, in any order."""
    before, behind = outside(these)
    return 2 * _FOREVER - covered_length(sorted(starts + before), sorted(ends + behind))


class Coverage:
    """How much of the time before an instant ranges cover, looked up without a walk along them."""

    def __init__(self, spans: Spans) -> None:
        """Take the ranges."""
        self._starts, self._ends = [start for start, _ in spans], [end for _, end in spans]
        self._before = list(accumulate(map(sub, self._ends, self._starts), initial=0))

    def ns_before(self, instant: int) -> int:
        """Return the length of what the ranges cover before the instant."""
        begun = bisect_right(self._starts, instant)
        return self._before[begun] - max(self._ends[begun - 1] - instant, 0) if begun else 0


def _doubly(starts: list[int], ends: list[int]) -> Spans:
    """Return the times that two of the ranges with these starts and ends, each in order, cover; none without a length.

    No more than two overlap anywhere. So two overlap from a start on if one that began before it has not ended, and
    they do until the next end.
    """
    later = starts[1:]
    return list(compress(zip(later, ends, strict=False), map(lt, later, ends)))


def length(these: Spans) -> int:
    """Return their total length."""
    return sum([end - start for start, end in these])


def covered_length(starts: list[int], ends: list[int]) -> int:
    """Return the length of the times that the ranges with these starts and these ends, each in order, cover."""
    if not starts:
        return 0
    starts, ends = together(starts, ends)
    return sum(ends) - sum(starts)


def together(starts: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
    """Return starts and ends of the times that the ranges with these starts and these ends, each in order, cover.

    No range is open before a start exactly if as many ranges have ended as have begun, whichever they are.
    """
    alone = list(map(gt, islice(starts, 1, None), ends))
    return [*starts[:1], *compress(islice(starts, 1, None), alone)], [*compress(ends, alone), *ends[-1:]]

"""Arithmetic with ranges of time: sorted, disjoint lists of (start, end) in ns."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import lt, sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Spans = list[tuple[int, int]]
_FOREVER = 2**80


def merged(ranges: Iterable[tuple[int, int]]) -> Spans:
    """Return what the ranges cover together."""
    ordered = sorted(ranges)
    if all(map(lt, (end for _, end in ordered), (start for start, _ in islice(ordered, 1, None)))):
        # Most often they follow one another as it is.
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
    """Return what both cover."""
    fewer, more = (these, those) if len(these) < len(those) else (those, these)
    spans: Spans = []
    for start, end in fewer:
        first, last = bisect_left(more, (start,)), bisect_left(more, (end,))
        if first and more[first - 1][1] > start:
            first -= 1
        inside = [span for span in more[first:last] if span[1] > start]
        if inside:
            # All but the first and the last of them lie wholly inside.
            inside[0] = max(start, inside[0][0]), inside[0][1]
            inside[-1] = inside[-1][0], min(end, inside[-1][1])
            spans += inside
    return spans


def without(these: Spans, those: Spans) -> Spans:
    """Return what of these ranges those do not cover."""
    starts, ends = [start for start, _ in those], [end for _, end in those]
    gaps = list(zip([-_FOREVER, *ends], [*starts, _FOREVER], strict=True))
    return [(start, end) for start, end in within(these, gaps) if start < end]


def length(these: Spans) -> int:
    """Return how long they are together."""
    return sum([end - start for start, end in these])


def covered_length(starts: list[int], ends: list[int]) -> int:
    """Return how long the ranges with these starts and these ends, each in order, are together.

    Nothing runs before a start exactly when as many ranges have ended as have begun, whichever they are.
    """
    if not starts:
        return 0
    holes: Iterable[int] = map(sub, islice(starts, 1, None), ends)
    return ends[-1] - starts[0] - sum([hole for hole in holes if hole > 0])

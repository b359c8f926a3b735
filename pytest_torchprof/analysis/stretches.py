"""Where a thread of the CPU stayed in one call or operator for long, with no event of another one inside."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from pytest_torchprof.trace import Trace

LONG_NS = 1_000_000
"""A call of the runtime takes some 5 us, and an operator some 50; a millisecond is no matter of degree."""


class Stretch(NamedTuple):
    """A time in which the innermost range of a thread was one call or operator, and nothing began or ended."""

    start: int
    end: int
    name: int
    """Its name's index in ``Trace.names``."""
    member: int
    """Its index among calls or among operators."""
    is_call: bool

    @property
    def ns(self) -> int:
        """Its length."""
        return self.end - self.start


def long_stretches(trace: Trace) -> list[Stretch]:
    """Return the stretches of a millisecond and more, in the order of their start."""
    calls, ops = trace.calls, trace.ops
    called = [i for i, start in enumerate(calls.start) if calls.end[i] - start >= LONG_NS]
    stretches = [Stretch(calls.start[i], calls.end[i], calls.name[i], i, is_call=True) for i in called]
    lane, thread = trace.captured.lane, ops.thread
    long = {i for i, start in enumerate(ops.start) if ops.end[i] - start >= LONG_NS and thread[i] != lane}
    if long:
        inside = _inside(trace, long)
        for i in long:
            own = intervals.without([(ops.start[i], ops.end[i])], intervals.merged(inside[i]))
            stretches += [
                Stretch(start, end, ops.name[i], i, is_call=False) for start, end in own if end - start >= LONG_NS
            ]
    return sorted(stretches)


def _inside(trace: Trace, holders: set[int]) -> dict[int, list[tuple[int, int]]]:
    """Return when operators and calls ran directly inside each of these operators."""
    ops, calls, parent = trace.ops, trace.calls, trace.nesting.parent
    inside: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in compress(range(len(parent)), map(holders.__contains__, parent)):
        inside[parent[i]].append((ops.start[i], ops.end[i]))
    covered = intervals.merged((ops.start[i], ops.end[i]) for i in holders)
    starts = [start for start, _ in covered]
    place, order = 0, sorted(range(len(calls)), key=calls.start.__getitem__)
    near = []
    for i in order:
        while place < len(covered) and covered[place][1] <= calls.start[i]:
            place += 1
        if place == len(covered):
            break
        if starts[place] <= calls.start[i]:
            near.append(i)
    for call in near:
        if (holder := trace.around_calls[call]) in holders:
            inside[holder].append((calls.start[call], calls.end[call]))
    return inside

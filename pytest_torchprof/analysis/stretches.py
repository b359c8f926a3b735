"""Where a thread of the CPU stayed in one call or operator for long, with no event of another one inside."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import compress
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.columns import Calls, Ranges

LONG_NS = 1_000_000
"""A call of the runtime takes some 5 us, and an operator some 50; a millisecond is no matter of degree."""
_BLOCK = 32
"""How many events are looked at together: so many after one another most often take less than that in all."""


class Stretch(Struct, frozen=True, order=True):
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
    called = _long(calls)
    stretches = [Stretch(calls.start[i], calls.end[i], calls.name[i], i, is_call=True) for i in called]
    lane, thread = trace.captured.lane, ops.thread
    long = {i for i in _long(ops) if thread[i] != lane}
    if long:
        inside = _inside(trace, long)
        for i in long:
            own = intervals.without(intervals.span(ops.start[i], ops.end[i]), intervals.merged(inside[i]))
            stretches += [
                Stretch(start, end, ops.name[i], i, is_call=False) for start, end in own if end - start >= LONG_NS
            ]
    return sorted(stretches)


def _long(columns: Calls | Ranges) -> list[int]:
    """Return the events that are long: a few of a hundred thousand, most of which are passed over by the block."""
    start, end = columns.start, columns.end
    blocks = (slice(first, first + _BLOCK) for first in range(0, len(start), _BLOCK))
    of_long = (block for block in blocks if max(end[block]) - min(start[block]) >= LONG_NS)
    return [i for block in of_long for i in range(*block.indices(len(start))) if end[i] - start[i] >= LONG_NS]


def _inside(trace: Trace, holders: set[int]) -> dict[int, list[tuple[int, int]]]:
    """Return when operators and calls ran directly inside each of these operators, and functions of Python's at all."""
    ops, calls, parent = trace.ops, trace.calls, trace.nesting.parent
    inside: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in trace.nesting.children(holders):
        inside[parent[i]].append((ops.start[i], ops.end[i]))
    around = trace.around_calls
    for i in compress(range(len(around)), map(holders.__contains__, around)):
        inside[around[i]].append((calls.start[i], calls.end[i]))
    for i, spans in _functions_inside(trace, holders):
        inside[i] += spans
    return inside


def _functions_inside(trace: Trace, holders: set[int]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield for each of these operators when functions of Python's ran inside, as far as they are recorded."""
    ops, frames = trace.ops, trace.frames
    of_thread: dict[int, list[tuple[int, int]]] = {ops.thread[i]: [] for i in holders} if len(frames) else {}
    for thread, start, end in zip(frames.thread, frames.start, frames.end, strict=True) if of_thread else ():
        if thread in of_thread:
            of_thread[thread].append((start, end))
    for spans in of_thread.values():
        spans.sort()
    for i in holders if of_thread else ():
        spans = of_thread[ops.thread[i]]
        inside = slice(*(bisect_left(spans, (at,)) for at in (ops.start[i], ops.end[i])))
        yield i, spans[inside]


def launched_soon(trace: Trace, launches: Sequence[Stretch]) -> list[tuple[Stretch, int]]:
    """Return those of the launches whose kernel started soon, with the kernel.

    Behind a full queue a launch takes long too; there its kernel has to wait.
    """
    if not launches:
        return []
    call_of, start = trace.links.call_of, trace.gpu.start
    launched = {call_of[i]: i for i in reversed(where(call_of, {stretch.member for stretch in launches}))}
    pairs = [(stretch, launched[stretch.member]) for stretch in launches if stretch.member in launched]
    return [(stretch, kernel) for stretch, kernel in pairs if start[kernel] - stretch.end < LONG_NS]

"""When the CPU had any event, as blocks, each with the ranges with which it began and ended."""

from __future__ import annotations

from bisect import bisect_right
from itertools import compress
from math import inf
from operator import gt, lt, not_
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.devices.range_names import STEP
from pytest_torchprof.trace.columns import ABSENT, in_order, picked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.trace import Trace


class CpuBlocks(Struct, frozen=True, kw_only=True):
    """Times that operators, annotations and calls on whichever thread cover, disjoint and in order, as columns; in ns.

    Ranges are named by index in ``Trace.names``; steps do not count as ranges.
    """

    starts: list[int]
    ends: list[int]
    opening: list[int]
    """The range with which each block began, and behind the last ABSENT; of several that began together the longest."""
    closing: list[int]
    """ABSENT, and the range with which each block ended; of several that ended together the longest."""


def _calls_of_their_own(trace: Trace) -> Sequence[int]:
    """Return the calls that no operator holds from beginning to end: those that one does neither open nor close any."""
    # What no operator is around has one at ABSENT, which ended before all.
    until = [*trace.ops.end, -inf]
    cut = map(lt, picked(until, trace.around_calls), trace.calls.end)
    return list(compress(range(len(trace.calls)), cut))


def cpu_blocks(trace: Trace, outermost: Sequence[int]) -> CpuBlocks:
    """Return the blocks of a recording; ``outermost`` are the operators that no other one holds."""
    ops, notes, calls = trace.ops, trace.annotations, trace.calls
    kept = [i for i, name in enumerate(notes.name) if not trace.names[name].startswith(STEP)]
    alone = _calls_of_their_own(trace)
    starts, ends, named = (
        [*picked(column, outermost), *picked(noted, kept), *picked(called, alone)]
        for column, noted, called in (
            (ops.start, notes.start, calls.start),
            (ops.end, notes.end, calls.end),
            (ops.name, notes.name, calls.name),
        )
    )
    if not in_order(starts):
        order = sorted(range(len(starts)), key=starts.__getitem__)
        starts, ends, named = (picked(column, order) for column in (starts, ends, named))
    # Nothing runs before a start exactly if as many have ended as have begun.
    begins = [True, *map(gt, starts[1:], sorted(ends))][: len(starts)]
    began, until, opening = list(compress(starts, begins)), list(compress(ends, begins)), list(compress(named, begins))
    closing = opening.copy()
    # Nearly all blocks have a single member; only the others are gone through one by one.
    for i in compress(range(len(begins)), map(not_, begins)):
        block = bisect_right(began, starts[i]) - 1
        if ends[i] > until[block]:
            if starts[i] == began[block]:
                opening[block] = named[i]
            closing[block] = named[i]
            until[block] = ends[i]
    return CpuBlocks(starts=began, ends=until, opening=[*opening, ABSENT], closing=[ABSENT, *closing])

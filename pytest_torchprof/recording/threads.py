"""Calls back on the thread that made them.

CUPTI tells threads by the lower half of their pthread ids. For each of these kineto keeps the first system id that it
saw with it, as long as the process lives (``recordThreadInfo`` of its ``GenericActivityProfiler``; seen with torch
2.15). A thread that is started where a profiled one has ended often has that one's pthread id, and its calls are then
written under the id of the dead one: no operator and no range is around them there. But what they launched has the
number of its operator.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Intervals, Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.trace.columns import Calls, GpuOps, Ranges


def put_back(ops: Ranges, annotations: Ranges, calls: Calls, gpu: GpuOps) -> None:
    """Give calls that are on the wrong thread their own, in place.

    A call whose work names an operator of another thread was made there if it began inside of that one, and inside of
    none of the thread that it is on. Calls without such work go with those around them: threads share an id one after
    another.
    """
    if len({*ops.thread, *calls.thread}) == 1:
        return
    op_of = _launching(ops, calls, gpu)
    doubtful = [call for call, op in op_of.items() if calls.thread[call] != ops.thread[op]]
    if not doubtful:
        return
    around = Nesting(ops).around_each(calls, range(len(calls)))
    made_on = {}
    for call in doubtful:
        op = op_of[call]
        if around[call] == ABSENT and ops.start[op] <= calls.start[call] <= ops.end[op]:
            made_on[call] = ops.thread[op]
    shared = {calls.thread[call] for call in made_on}
    on_shared = [call for call, thread in enumerate(calls.thread) if thread in shared]
    known = {call: calls.thread[call] for call in on_shared if around[call] != ABSENT} | made_on
    made_on |= _beside(calls, known, [call for call in on_shared if call not in known], (ops, annotations))
    for call, thread in made_on.items():
        calls.thread[call] = thread


def _launching(ops: Ranges, calls: Calls, gpu: GpuOps) -> Mapping[int, int]:
    """Return the operator that a call's work names, by call."""
    op_at = dict(zip(ops.external, count()))
    call_at = dict(zip(calls.correlation, count()))
    op_at.pop(ABSENT, None)
    call_at.pop(ABSENT, None)
    named = zip(gpu.correlation, gpu.external, strict=True)
    return {
        call_at[correlation]: op_at[external]
        for correlation, external in named
        if external in op_at and correlation in call_at and external != correlation
    }


def _beside(
    calls: Calls, known: Mapping[int, int], others: Iterable[int], ranges: Sequence[Ranges]
) -> Mapping[int, int]:
    """Return for the other calls the thread of the last known one of their id before them, or of the first behind.

    Of both the one that has a range around the call, if only one has.
    """
    by_id: dict[int, list[tuple[int, int]]] = {}
    for call in sorted(known, key=calls.start.__getitem__):
        by_id.setdefault(calls.thread[call], []).append((calls.start[call], known[call]))
    wanted = set(known.values())
    inside = Intervals(
        (thread, part.start[i], part.end[i])
        for part in ranges
        for i, thread in enumerate(part.thread)
        if thread in wanted
    )
    found = {}
    for call in others:
        neighbours, start = by_id[calls.thread[call]], calls.start[call]
        place = bisect_right(neighbours, start, key=itemgetter(0))
        candidates = [thread for _, thread in neighbours[max(place - 1, 0) : place + 1]]
        found[call] = next((thread for thread in candidates if inside.cover(thread, start)), candidates[0])
    return found

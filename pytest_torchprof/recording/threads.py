"""Calls back on the thread that made them.

CUPTI tells threads by the lower half of their pthread ids. For each of these kineto keeps the first system id that it
saw with it, as long as the process lives (``recordThreadInfo`` of its ``GenericActivityProfiler``; seen with torch
2.15). A thread that is started where a profiled one has ended often has that one's pthread id, and its calls are then
written under the number of the ended one: no operator and no range is around them there. But what an operator launched
has the operator's own number.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.trace.columns import Calls, GpuOps, Ranges


def put_back(ops: Ranges, annotations: Ranges, calls: Calls, gpu: GpuOps) -> None:
    """Give calls that are written under another thread's number their own, in place.

    A call was made on another thread if its work names an operator of that thread, the call began inside of the
    operator, and the thread under whose number it is written was in no range then. If all that is known of a number's
    calls is that they are of one other thread, so are those of which nothing is known: no two threads have a pthread
    id at once.
    """
    if len({*ops.thread, *calls.thread}) == 1:
        return
    op_of = _operators(ops, calls, gpu)
    doubtful = [call for call, op in op_of.items() if calls.thread[call] != ops.thread[op]]
    if not doubtful:
        return
    alive = _ranges_of({calls.thread[call] for call in doubtful}, (ops, annotations))
    proven = {
        call: ops.thread[op]
        for call, op in ((call, op_of[call]) for call in doubtful)
        if ops.start[op] <= calls.start[call] <= ops.end[op] and not alive.cover(calls.thread[call], calls.start[call])
    }
    makers: dict[int, set[int]] = defaultdict(set)
    for call, thread in proven.items():
        makers[calls.thread[call]].add(thread)
    under = {call: number for call, number in enumerate(calls.thread) if number in makers}
    shared = {number for call, number in under.items() if alive.cover(number, calls.start[call])}
    for call, number in under.items():
        if len(makers[number]) == 1 and number not in shared:
            (calls.thread[call],) = makers[number]
        else:
            calls.thread[call] = proven.get(call, number)


def _operators(ops: Ranges, calls: Calls, gpu: GpuOps) -> Mapping[int, int]:
    """Return the operator that a call's work names, by call; not where pieces of it name different ones."""
    op_at = dict(zip(ops.external, count()))
    call_at = dict(zip(calls.correlation, count()))
    for at in (op_at, call_at):
        # Some ROCm files write 0 where they know none.
        at.pop(0, None)
        at.pop(ABSENT, None)
    found: dict[int, int] = {}
    for correlation, external in zip(gpu.correlation, gpu.external, strict=True):
        # Before 2024 the number of work that no operator launched is that of its call.
        if correlation in call_at and external != correlation:
            call, op = call_at[correlation], op_at.get(external, ABSENT)
            if found.setdefault(call, op) != op:
                found[call] = ABSENT
    return {call: op for call, op in found.items() if op != ABSENT}


def _ranges_of(threads: set[int], parts: Sequence[Ranges]) -> Intervals:
    return Intervals(
        (thread, part.start[i], part.end[i])
        for part in parts
        for i, thread in enumerate(part.thread)
        if thread in threads
    )

"""Why a GPU, or one of its streams, did nothing between two operations."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace

Cause = Literal["host", "kernel", "other"]

KERNEL_WAIT_NS = 30_000
"""A shorter gap before an operation that was launched in time is the GPU's own way from one kernel to the next.

HolisticTraceAnalysis documents 30 ns, but compares 30 with a gap in the file's unit, microseconds: so in effect 30 us.
"""


Gap = tuple[int, int, Cause, int]
"""From, to (in ns), why, and the operation that ended it. A plain tuple: a recording has tens of thousands."""


class Idle(Struct, frozen=True, kw_only=True):
    """Idle time by cause, in microseconds."""

    host_us: float = 0.0
    """The CPU launched the next operation only after the one before had ended."""
    kernel_us: float = 0.0
    """Launched in time, and the gap is short."""
    other_us: float = 0.0
    """Launched in time, yet it waited: for another stream, a dependency, or nobody knows what."""


def gaps(trace: Trace, in_order: Iterable[int]) -> list[Gap]:
    """Return the gaps between operations in the order of their start; overlapping ones leave none."""
    order = list(in_order)
    call_of, launched = trace.links.call_of, trace.calls.start
    starts = [trace.gpu.start[i] for i in order]
    reached = accumulate([trace.gpu.end[i] for i in order], max)
    following = zip(reached, islice(starts, 1, None), islice(order, 1, None), strict=False)

    def cause(since: int, until: int, before: int) -> Cause:
        call = call_of[before]
        if call >= 0 and launched[call] > since:
            return "host"
        return "kernel" if until - since < KERNEL_WAIT_NS else "other"

    return [(since, until, cause(since, until, i), i) for since, until, i in following if until > since]


def summed(found: Sequence[Gap]) -> Idle:
    """Return the gaps' time by cause."""
    spent: dict[Cause, int] = {"host": 0, "kernel": 0, "other": 0}
    for start, end, cause, _ in found:
        spent[cause] += end - start
    return Idle(host_us=spent["host"] / 1000, kernel_us=spent["kernel"] / 1000, other_us=spent["other"] / 1000)

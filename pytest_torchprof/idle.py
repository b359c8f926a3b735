"""Why a GPU, or one of its streams, did nothing between two operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Idle time by cause, in microseconds."""

    host_us: float = 0.0
    """The CPU launched the next operation only after the one before had ended."""
    kernel_us: float = 0.0
    """Launched in time, and the gap is short."""
    other_us: float = 0.0
    """Launched in time, yet it waited: for another stream, a dependency, or nobody knows what."""


def gaps(trace: Trace, in_order: Iterable[int]) -> list[Gap]:
    """Return the gaps between operations in the order of their start; overlapping ones leave none."""
    start, end, call_of, launched = trace.gpu.start, trace.gpu.end, trace.links.call_of, trace.calls.start
    found: list[Gap] = []
    reached: int | None = None
    for i in in_order:
        begin, until = start[i], end[i]
        if reached is None:
            reached = until
            continue
        if begin > reached:
            call = call_of[i]
            cause: Cause = "other"
            if call >= 0 and launched[call] > reached:
                cause = "host"
            elif begin - reached < KERNEL_WAIT_NS:
                cause = "kernel"
            found.append((reached, begin, cause, i))
        reached = max(reached, until)
    return found


def summed(found: Sequence[Gap]) -> Idle:
    """Return the gaps' time by cause."""
    spent: dict[Cause, int] = {"host": 0, "kernel": 0, "other": 0}
    for start, end, cause, _ in found:
        spent[cause] += end - start
    return Idle(host_us=spent["host"] / 1000, kernel_us=spent["kernel"] / 1000, other_us=spent["other"] / 1000)

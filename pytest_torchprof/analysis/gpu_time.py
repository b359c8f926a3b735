"""How long the GPU was busy, how well it was filled, and why it idled."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, compress, islice
from operator import mul, sub
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace


def by_device(trace: Trace, gpu_ops: Iterable[int]) -> dict[int, list[int]]:
    """Return the GPU operations by index of their device."""
    process = trace.gpu.process
    if len(trace.processes) == 1:
        listed = list(gpu_ops)
        return {trace.device_of[0]: listed} if listed else {}
    of_device = defaultdict(list)
    for i in gpu_ops:
        of_device[trace.device_of[process[i]]].append(i)
    return dict(of_device)


def busy_ns(trace: Trace, gpu_ops: Iterable[int]) -> int:
    """Return the length of the union of the intervals of operations in start order, per device, then summed."""
    start, end = trace.gpu.start, trace.gpu.end
    return sum(
        intervals.covered_length([start[i] for i in ops], sorted([end[i] for i in ops]))
        for ops in by_device(trace, gpu_ops).values()
    )


def window(trace: Trace) -> tuple[int, int]:
    """Return the first step's start and the later of the last step's end and the last GPU operation's end, in ns."""
    start = trace.steps[0].start_ns
    return start, max([step.end_ns for step in trace.steps] + ([max(trace.gpu.end)] if len(trace.gpu) else []))


class Occupation:
    """How the kernels of the whole window filled the GPUs: all of them, orphans too; kineto's formulas."""

    def __init__(self, trace: Trace) -> None:
        """Collect the kernels, clipped to the window."""
        begin, until = window(trace)
        self._window_ns = until - begin
        self._ran = len(trace.gpu) > 0
        gpu, kinds = trace.gpu, trace.gpu.kind
        kernels = [i for i in trace.gpu_order if kinds[i] == KERNEL]
        # Per device the columns start, end, blocks per SM and occupancy, in start order. Nothing ends after the window,
        # as it lasts until the last end.
        self._devices: list[tuple[list[int], list[int], list[float], list[float]]] = []
        for ops in by_device(trace, kernels).values():
            late = gpu.start[ops[0]] >= begin
            inside = ops if late else [i for i in ops if gpu.end[i] > begin]
            starts, ends = [gpu.start[i] for i in inside], [gpu.end[i] for i in inside]
            self._devices.append(
                (
                    starts if late else [max(start, begin) for start in starts],
                    ends,
                    [gpu.blocks_per_sm[i] for i in inside],
                    [gpu.occupancy[i] for i in inside],
                )
            )

    @property
    def utilization(self) -> float | None:
        """The share of the window in which a kernel ran, the mean over devices; kineto's "GPU Utilization".

        It is 0 where nothing but copies and fills ran, and None where nothing did.
        """
        if not self._ran or self._window_ns <= 0:
            return None
        if not self._devices:
            return 0.0
        covered = [intervals.covered_length(starts, sorted(ends)) for starts, ends, _, _ in self._devices]
        return sum(covered) / len(covered) / self._window_ns

    @property
    def sm_efficiency(self) -> float | None:
        """The integral of min(1, blocks per SM of what runs) over the window; kineto's "Est. SM Efficiency"."""
        if (
            self._window_ns <= 0
            or max([max(blocks, default=-1.0) for _, _, blocks, _ in self._devices], default=-1) < 0
        ):
            return None
        filled = [_filled_ns(zip(starts, ends, blocks, strict=True)) for starts, ends, blocks, _ in self._devices]
        return sum(filled) / len(filled) / self._window_ns

    @property
    def achieved_occupancy(self) -> float | None:
        """The mean of the launches' estimates weighted by kernel time, 0..1; kineto's "Est. Achieved Occupancy"."""
        spent, weighted = 0, 0.0
        for starts, ends, _, shares in self._devices:
            known = [share >= 0 for share in shares]
            lasted = list(compress(map(sub, ends, starts), known))
            spent += sum(lasted)
            weighted += sum(map(mul, compress(shares, known), lasted))
        return weighted / spent / 100 if spent else None


def _filled_ns(running: Iterable[tuple[int, int, float]]) -> float:
    """Return the integral over kernels in start order; those that overlap are taken together."""
    filled, reached, alone = 0.0, -(2**63), 0.0
    first = 0, 0, 0.0
    together: list[tuple[int, int, float]] = []
    for kernel in running:
        start, end, blocks = kernel
        if blocks <= 0 or end <= start:
            continue
        if start >= reached:
            filled += _together_ns(together) if together else alone
            # Most kernels run alone.
            alone = (end - start) * (blocks if blocks < 1 else 1.0)
            first, together, reached = kernel, [], end
        else:
            together = together or [first]
            together.append(kernel)
            reached = max(reached, end)
    return filled + (_together_ns(together) if together else alone)


def _together_ns(running: Sequence[tuple[int, int, float]]) -> float:
    """Return the integral over kernels that overlap."""
    edges = sorted([(start, blocks) for start, _, blocks in running] + [(end, -blocks) for _, end, blocks in running])
    filled, filling, since = 0.0, 0.0, 0
    for moment, change in edges:
        filled += (moment - since) * min(1.0, filling)
        filling += change
        since = moment
    return filled


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


def idle_gaps(trace: Trace, in_order: Iterable[int]) -> list[Gap]:
    """Return the gaps between operations in the order of their start; overlapping ones leave none."""
    order = list(in_order)
    call_of, launched = trace.links.call_of, trace.calls.start
    starts = [trace.gpu.start[i] for i in order]
    reached = accumulate([trace.gpu.end[i] for i in order], max)
    following = zip(reached, islice(starts, 1, None), islice(order, 1, None), strict=False)
    gaps: list[Gap] = []
    cause: Cause
    for since, until, i in following:
        if until > since:
            call = call_of[i]
            if call >= 0 and launched[call] > since:
                cause = "host"
            else:
                cause = "kernel" if until - since < KERNEL_WAIT_NS else "other"
            gaps.append((since, until, cause, i))
    return gaps


def idle_time(gaps: Sequence[Gap]) -> Idle:
    """Return the gaps' time by cause."""
    spent: dict[Cause, int] = {"host": 0, "kernel": 0, "other": 0}
    for start, end, cause, _ in gaps:
        spent[cause] += end - start
    return Idle(host_us=spent["host"] / 1000, kernel_us=spent["kernel"] / 1000, other_us=spent["other"] / 1000)

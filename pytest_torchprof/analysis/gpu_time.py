"""How long the GPU was busy, how well it was filled, and why it idled."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from operator import gt, lt, mul, not_, sub
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
        intervals.covered_length(picked(start, ops), sorted(picked(end, ops)))
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
            starts, ends = picked(gpu.start, inside), picked(gpu.end, inside)
            self._devices.append(
                (
                    starts if late else [max(start, begin) for start in starts],
                    ends,
                    picked(gpu.blocks_per_sm, inside),
                    picked(gpu.occupancy, inside),
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


KERNEL_WAIT_NS = 30_000
"""A shorter gap before an operation that was launched in time is the GPU's own way from one kernel to the next.

HolisticTraceAnalysis documents 30 ns, but compares 30 with a gap in the file's unit, microseconds: so in effect 30 us.
"""


class Gaps(Struct, frozen=True):
    """Times in which a device idled, as columns, because a recording has tens of thousands; in ns."""

    starts: list[int]
    ends: list[int]
    before: list[int]
    """The operation that ended it."""
    late: list[bool]
    """Whether that operation was launched only in the gap."""

    def __len__(self) -> int:
        return len(self.starts)

    def chosen(self, are: list[bool]) -> Gaps:
        """Return those of the gaps for which this is true."""
        if all(are):
            return self
        starts, ends, before = (list(compress(column, are)) for column in (self.starts, self.ends, self.before))
        return Gaps(starts, ends, before, list(compress(self.late, are)))

    def lengths(self) -> list[int]:
        """Return the length of each."""
        return list(map(sub, self.ends, self.starts))

    def triples(self) -> Iterator[tuple[int, int, int]]:
        """Yield from, to and the operation that ended it."""
        return zip(self.starts, self.ends, self.before, strict=True)


def joined_gaps(several: Iterable[Gaps]) -> Gaps:
    """Return the gaps of all."""
    listed = [gaps for gaps in several if len(gaps)]
    if len(listed) == 1:
        return listed[0]
    every = Gaps([], [], [], [])
    for gaps in listed:
        every.starts.extend(gaps.starts)
        every.ends.extend(gaps.ends)
        every.before.extend(gaps.before)
        every.late.extend(gaps.late)
    return every


class Idle(Struct, frozen=True, kw_only=True):
    """Idle time by cause, in microseconds."""

    host_us: float = 0.0
    """The CPU launched the next operation only after the one before had ended."""
    kernel_us: float = 0.0
    """Launched in time, and the gap is short."""
    other_us: float = 0.0
    """Launched in time, yet it waited: for another stream, a dependency, or nobody knows what."""


def idle_gaps(trace: Trace, gpu_ops: Iterable[int]) -> Gaps:
    """Return the gaps between operations, given in the order of their start; overlapping ones leave none."""
    order = list(gpu_ops)
    starts, ends = picked(trace.gpu.start, order), picked(trace.gpu.end, order)
    # No event ends before it begins. So nothing runs before a start exactly if as many have ended as have begun, and
    # then those are the ones that began before.
    reached = sorted(ends)
    since, until, before = reached[:-1], starts[1:], order[1:]
    # What no call launched was not launched late.
    launched = [*trace.calls.start, _LONG_AGO]
    launched_at = picked(launched, picked(trace.links.call_of, before))
    return Gaps(since, until, before, list(map(gt, launched_at, since))).chosen(list(map(lt, since, until)))


_LONG_AGO = -(2**80)


def idle_time(gaps: Gaps) -> Idle:
    """Return the gaps' time by cause."""
    lengths = gaps.lengths()
    in_time = list(compress(lengths, map(not_, gaps.late)))
    kernel_ns = sum([ns for ns in in_time if ns < KERNEL_WAIT_NS])
    in_time_ns = sum(in_time)
    return Idle(
        host_us=(sum(lengths) - in_time_ns) / 1000, kernel_us=kernel_ns / 1000, other_us=(in_time_ns - kernel_ns) / 1000
    )

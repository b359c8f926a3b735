"""How long the GPU was busy, and how well filled: unions and integrals over the intervals of its operations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.trace import Trace


def union_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length that the intervals cover together."""
    covered, reached = 0, -(2**63)
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def by_device(trace: Trace, gpu_ops: Iterable[int]) -> dict[int, list[int]]:
    """Return the GPU operations by index of their device."""
    process = trace.gpu.process
    if len(trace.processes) == 1:
        listed = list(gpu_ops)
        return {0: listed} if listed else {}
    found = defaultdict(list)
    for i in gpu_ops:
        found[trace.device_of[process[i]]].append(i)
    return dict(found)


def busy_ns(trace: Trace, gpu_ops: Iterable[int]) -> int:
    """Return the length of the union of the operations' intervals, per device, summed over devices."""
    start, end = trace.gpu.start, trace.gpu.end
    return sum(union_ns([(start[i], end[i]) for i in ops]) for ops in by_device(trace, gpu_ops).values())


def window(trace: Trace) -> tuple[int, int]:
    """Return the first step's start and the later of the last step's end and the last GPU operation's end, in ns."""
    start = trace.steps[0].start_ns
    return start, max([step.end_ns for step in trace.steps] + ([max(trace.gpu.end)] if len(trace.gpu) else []))


def utilization(trace: Trace) -> float | None:
    """Return the share of the window in which a kernel ran, orphans included, the mean over devices that ran any.

    kineto's formula for "GPU Utilization" on this window.
    """
    begin, until = window(trace)
    start, end = trace.gpu.start, trace.gpu.end
    shares = [
        union_ns([(max(start[i], begin), min(end[i], until)) for i in ops if end[i] > begin]) / (until - begin)
        for ops in by_device(trace, _kernels(trace)).values()
        if until > begin
    ]
    return sum(shares) / len(shares) if shares else None


def sm_efficiency(trace: Trace) -> float | None:
    """Return the share of the window times SMs that had a block, by the launch's blocks per SM; None if unrecorded.

    kineto's formula for "Est. SM Efficiency" on this window: the integral of min(1, blocks per SM of what runs).
    """
    begin, until = window(trace)
    kernels = _kernels(trace)
    if until <= begin or not any(trace.gpu.blocks_per_sm[i] >= 0 for i in kernels):
        return None
    filled = [_filled_ns(trace, ops, begin, until) for ops in by_device(trace, kernels).values()]
    return sum(filled) / len(filled) / (until - begin)


def _filled_ns(trace: Trace, kernels: Sequence[int], begin: int, until: int) -> float:
    gpu = trace.gpu
    filled, reached = 0.0, begin
    together: list[int] = []
    for i in sorted(kernels, key=gpu.start.__getitem__):
        start, end, blocks = max(gpu.start[i], begin), min(gpu.end[i], until), gpu.blocks_per_sm[i]
        if start >= end or blocks <= 0:
            continue
        if start >= reached:
            filled += _together_ns(trace, together, begin, until)
            together = []
        together.append(i)
        reached = max(reached, end)
    return filled + _together_ns(trace, together, begin, until)


def _together_ns(trace: Trace, kernels: Sequence[int], begin: int, until: int) -> float:
    """Return the integral of min(1, blocks per SM) over kernels that overlap; most often it is one alone."""
    gpu = trace.gpu
    edges = []
    for i in kernels:
        start, end, blocks = max(gpu.start[i], begin), min(gpu.end[i], until), gpu.blocks_per_sm[i]
        if len(kernels) == 1:
            return (end - start) * min(1.0, blocks)
        edges += [(start, blocks), (end, -blocks)]
    filled, running, since = 0.0, 0.0, begin
    for moment, change in sorted(edges):
        filled += (moment - since) * min(1.0, running)
        running += change
        since = moment
    return filled


def achieved_occupancy(trace: Trace) -> float | None:
    """Return the mean of the launches' estimated occupancy, 0..1, weighted by kernel time in the window, or None.

    kineto's formula for "Est. Achieved Occupancy" on this window.
    """
    begin, until = window(trace)
    gpu = trace.gpu
    known = [
        (gpu.occupancy[i], min(gpu.end[i], until) - max(gpu.start[i], begin))
        for i in _kernels(trace)
        if gpu.occupancy[i] >= 0 and gpu.end[i] > begin
    ]
    spent = sum(inside for _, inside in known)
    return sum(share * inside for share, inside in known) / spent / 100 if spent else None


def _kernels(trace: Trace) -> list[int]:
    return [i for i, kind in enumerate(trace.gpu.kind) if kind == KERNEL]

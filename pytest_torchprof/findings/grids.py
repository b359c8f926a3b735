"""Findings about kernels whose grids leave multiprocessors empty, or fill them with few warps."""

from __future__ import annotations

from itertools import pairwise
from operator import le
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.steps import once
from pytest_torchprof.findings.catalogue.kernels import LowOccupancy, SmallGrid
from pytest_torchprof.findings.evidence import evidence
from pytest_torchprof.findings.finding import (
    BLOCKS_PER_SM,
    OCCUPANCY,
    SLOW_KERNELS,
    Finding,
    Operations,
    Rule,
    Threshold,
    need_known_operations,
)
from pytest_torchprof.reasons.findings import BlocksOfSomeUnknown, WarpsOfSomeUnknown
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.findings.evidence import KernelFacts

FEW_BLOCKS = Threshold(
    "share", 0.2, "a fifth of the kernel time in grids that leave multiprocessors without a block is more than an edge"
)

LOW = Threshold("occupancy", 0.25, "below a quarter of the warps that fit, memory latency is no longer hidden")
BLOCKS = Threshold(
    "blocks_per_sm",
    16.0,
    "this many blocks of one warp each make a quarter of the warps that fit: then it is not the grid that is too small",
)
LOW_SHARE = Threshold("share", 0.1, "a tenth of the kernel time at such an occupancy is worth tuning its kernels for")

_NEARLY_FILLED = 0.9
"""Blocks per multiprocessor from which on no larger grid is worth having: it could save a tenth of the time at most."""

# These keep their data in registers and shared memory and run well with few warps; communication needs few.
_FEW_WARPS = frozenset({"gemm", "conv", "attention", "communication"})


def _small_grid(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels with fewer blocks than the GPU has multiprocessors."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    start, end, blocks = gpu.start, gpu.end, gpu.blocks_per_sm
    # Beside others a kernel fills no less: only those that alone leave room can be part of it.
    most_ns = sum([end[i] - start[i] for i in work.kernels if 0.0 <= blocks[i] < _NEARLY_FILLED])
    if most_ns / 1000 < at[FEW_BLOCKS] * work.kernel_time_us:
        return
    small = set(_small_grids(analysis).yes)
    partly = [time for time in _partly_filled(analysis) if not small.isdisjoint(time[4])]
    spent_ns = [
        (until - begin) * (len(small.intersection(kernels)) if len(kernels) > 1 else 1)
        for _, begin, until, _, kernels in partly
    ]
    spent = sum(spent_ns) / 1000
    if not spent or spent < at[FEW_BLOCKS] * work.kernel_time_us:
        return
    covered = [
        intervals.merged((begin, until) for on, begin, until, *_ in partly if on == device) for device in work.by_device
    ]
    facts: KernelFacts = {
        **evidence(work, sorted(small)),
        "time_us": spent,
        "share": sum(map(work.share_during, covered)) / len(covered),
    }
    unused = sum([(until - begin) * (1 - filled) for _, begin, until, filled, _ in partly]) / 1000
    yield SmallGrid(**facts, kernel_share=spent / work.kernel_time_us, unused_us=unused, saves_us=unused)


_PartlyFilled = tuple[int, int, int, float, tuple[int, ...]]
"""A time in which all kernels of a device together had fewer blocks than it has multiprocessors.

The device, from and to, the blocks per multiprocessor, and the kernels that ran. A plain tuple: a recording has tens of
thousands.
"""


@once
def _partly_filled(analysis: Analysis) -> Sequence[_PartlyFilled]:
    """Return the times in which a device was not filled, device after device."""
    return [*_partly_filled_times(analysis.gpu_work)]


def _partly_filled_times(work: GpuWork) -> Iterator[_PartlyFilled]:
    """Yield the times in which a device was not filled; kernels that run beside each other count together.

    A kernel without a recorded grid may fill any device.
    """
    gpu = work.trace.gpu
    start, end, blocks, kind = gpu.start, gpu.end, gpu.blocks_per_sm, gpu.kind

    def alone(device: int, kernels: Sequence[int]) -> list[_PartlyFilled]:
        return [(device, start[i], end[i], blocks[i], (i,)) for i in kernels if 0.0 <= blocks[i] < _NEARLY_FILLED]

    for device, ops in work.by_device.items():
        kernels = [i for i in ops if kind[i] == KERNEL]
        # Mostly none runs beside another, and nothing need be grouped.
        if all(map(le, picked(end, kernels), picked(start, kernels[1:]))):
            yield from alone(device, kernels)
            continue
        for together in _beside_each_other(kernels, start, end):
            if len(together) > 1:
                yield from ((device, *time) for time in _filled_together(together, start, end, blocks))
            else:
                yield from alone(device, together)


def _beside_each_other(kernels: Iterable[int], start: Sequence[int], end: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield groups of kernels, given in the order of their start: each begins before the others of it have ended."""
    together: list[int] = []
    reached = 0
    for i in kernels:
        if start[i] >= reached:
            if together:
                yield tuple(together)
            together, reached = [i], end[i]
        else:
            together.append(i)
            reached = max(reached, end[i])
    if together:
        yield tuple(together)


def _filled_together(
    kernels: Sequence[int], start: Sequence[int], end: Sequence[int], blocks: Sequence[float]
) -> Iterator[tuple[int, int, float, tuple[int, ...]]]:
    edges = sorted({edge for i in kernels for edge in (start[i], end[i])})
    for begin, until in pairwise(edges):
        running = tuple(i for i in kernels if start[i] <= begin and until <= end[i])
        filled = sum([blocks[i] for i in running])
        if running and filled < _NEARLY_FILLED and min([blocks[i] for i in running]) >= 0:
            yield begin, until, filled, running


@once
def _small_grids(analysis: Analysis) -> Operations:
    """Ask each kernel whether it leaves multiprocessors without a block, even with what runs beside it.

    Communication needs no more blocks, and neither do kernels that are made to take time.
    """
    gpu, work = analysis.trace.gpu, analysis.gpu_work
    blocks, talking = gpu.blocks_per_sm, work.communication
    if work.lasting:
        talking = talking.union(i for i in work.kernels if gpu.name[i] in work.lasting)
    partly = {i for *_, kernels in _partly_filled(analysis) for i in kernels}
    computing = [i for i in work.kernels if i not in talking] if talking else work.kernels
    # Lists, as a recording has tens of thousands.
    return Operations(
        yes=[i for i in computing if 0.0 <= blocks[i] < _NEARLY_FILLED and i in partly],
        not_known=[i for i in computing if blocks[i] < 0],
    )


def _low_occupancy(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that fill all multiprocessors with few warps each, products and attention aside."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    low = _with_few_warps(analysis, at[LOW], at[BLOCKS]).yes
    spent = work.time_us(low)
    if not spent or spent < at[LOW_SHARE] * work.kernel_time_us:
        return
    occupancy = analysis.trace.occupancies
    mean = sum(occupancy[i] * (gpu.end[i] - gpu.start[i]) for i in low) / 1000 / spent
    yield LowOccupancy(
        **evidence(work, low),
        kernel_share=spent / work.kernel_time_us,
        occupancy=mean / 100,
        saves_us=spent * (1 - mean / (100 * at[LOW])),
    )


def _with_few_warps(analysis: Analysis, least: float, enough: float) -> Operations:
    """Ask each kernel that needs many warps whether few of them fit, on a grid of enough blocks."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    recorded, blocks, named, percent = gpu.occupancy, gpu.blocks_per_sm, gpu.name, 100 * least
    names = {name for name, decoded in work.named.items() if decoded.family not in _FEW_WARPS} - work.lasting
    # What is not known may be as many as needed, or as low as 0.
    large = [i for i in work.kernels if named[i] in names and not 0.0 <= blocks[i] < enough]
    low = [i for i in large if recorded[i] < percent] if percent > 0 else []
    # Only a recorded 0 may be more than that, and to know what it is takes longer than all before.
    occupancy = analysis.trace.occupancies if low else recorded
    low = [i for i in low if occupancy[i] < percent]
    return Operations(
        yes=[i for i in low if occupancy[i] >= 0 and blocks[i] >= 0],
        not_known=[i for i in low if occupancy[i] < 0 or blocks[i] < 0],
    )


_SMALL_GRIDS_KNOWN = need_known_operations(BlocksOfSomeUnknown(), _small_grids, FEW_BLOCKS)


def _grids_known(analysis: Analysis, share: float) -> bool:
    """Whether kernels with an unknown grid could not make a finding together with those with a small one."""
    blocks = analysis.trace.gpu.blocks_per_sm
    all_known = min(picked(blocks, analysis.gpu_work.kernels), default=0.0) >= 0
    return all_known or _SMALL_GRIDS_KNOWN.there(analysis, share)


RULES = (
    Rule(
        code="small-grid",
        find=_small_grid,
        needs=(
            BLOCKS_PER_SM,
            replace(_SMALL_GRIDS_KNOWN, there=_grids_known),
        ),
        thresholds=(FEW_BLOCKS,),
        explains=(*SLOW_KERNELS, "min_sm_efficiency"),
    ),
    Rule(
        code="low-occupancy",
        find=_low_occupancy,
        needs=(
            OCCUPANCY,
            need_known_operations(WarpsOfSomeUnknown(), _with_few_warps, LOW, BLOCKS, LOW_SHARE),
        ),
        thresholds=(LOW, BLOCKS, LOW_SHARE),
        explains=SLOW_KERNELS,
    ),
)

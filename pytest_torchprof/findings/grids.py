"""Findings about kernels whose grids leave multiprocessors empty, or fill them with few warps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.catalogue.kernels import LowOccupancy, SmallGrid
from pytest_torchprof.findings.evidence import evidence
from pytest_torchprof.findings.finding import (
    BLOCKS_PER_SM,
    OCCUPANCY,
    SLOW_KERNELS,
    Finding,
    Rule,
    Threshold,
    told_of_each,
)
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, ask
from pytest_torchprof.reasons.findings import BlocksOfSomeUnknown, WarpsOfSomeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.kernels.reply import Replies, Reply

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

# These keep their data in registers and shared memory and run well with few warps; communication needs few.
_FEW_WARPS = frozenset({"gemm", "conv", "attention", "communication"})


def _small_grid(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels with fewer blocks than the GPU has multiprocessors."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    small = _small_grids(analysis).yes
    spent = work.time_us(small)
    if not spent or spent < at[FEW_BLOCKS] * work.kernel_time_us:
        return
    unused = sum((gpu.end[i] - gpu.start[i]) * (1 - gpu.blocks_per_sm[i]) for i in small) / 1000
    yield SmallGrid(
        **evidence(work, small), kernel_share=spent / work.kernel_time_us, unused_us=unused, saves_us=unused
    )


def _small_grids(analysis: Analysis) -> Replies[int]:
    """Ask each kernel whether it has fewer blocks than the GPU has multiprocessors; communication needs no more."""
    blocks, talking = analysis.trace.gpu.blocks_per_sm, analysis.gpu_work.communication

    def is_small(kernel: int) -> Reply:
        if blocks[kernel] >= 1 or kernel in talking:
            return NO
        return NOT_KNOWN if blocks[kernel] < 0 else YES

    return ask(analysis.gpu_work.kernels, is_small)


def _low_occupancy(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that fill all multiprocessors with few warps each, products and attention aside."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    low = _with_few_warps(analysis, at[LOW], at[BLOCKS]).yes
    spent = work.time_us(low)
    if not spent or spent < at[LOW_SHARE] * work.kernel_time_us:
        return
    mean = sum(gpu.occupancy[i] * (gpu.end[i] - gpu.start[i]) for i in low) / 1000 / spent
    yield LowOccupancy(
        **evidence(work, low),
        kernel_share=spent / work.kernel_time_us,
        occupancy=mean / 100,
        saves_us=spent * (1 - mean / (100 * at[LOW])),
    )


def _with_few_warps(analysis: Analysis, least: float, enough: float) -> Replies[int]:
    """Ask each kernel that needs many warps whether few of them fit, on a grid of enough blocks."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu

    def is_low(kernel: int) -> Reply:
        occupancy, blocks = gpu.occupancy[kernel], gpu.blocks_per_sm[kernel]
        if max(occupancy, 0) >= 100 * least or 0 <= blocks < enough:
            return NO
        return NOT_KNOWN if occupancy < 0 or blocks < 0 else YES

    return ask((i for i in work.kernels if work.named[gpu.name[i]].family not in _FEW_WARPS), is_low)


RULES = (
    Rule(
        code="small-grid",
        find=_small_grid,
        needs=(
            BLOCKS_PER_SM,
            told_of_each(BlocksOfSomeUnknown(), _small_grids, FEW_BLOCKS),
        ),
        thresholds=(FEW_BLOCKS,),
        explains=(*SLOW_KERNELS, "min_sm_efficiency"),
    ),
    Rule(
        code="low-occupancy",
        find=_low_occupancy,
        needs=(
            OCCUPANCY,
            told_of_each(WarpsOfSomeUnknown(), _with_few_warps, LOW, BLOCKS, LOW_SHARE),
        ),
        thresholds=(LOW, BLOCKS, LOW_SHARE),
        explains=SLOW_KERNELS,
    ),
)

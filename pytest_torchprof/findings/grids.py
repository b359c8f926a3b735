"""Findings about kernels whose grids leave multiprocessors empty, or fill them with few warps."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from pytest_torchprof.text import counted, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    names = _longest_names(analysis, small)
    yield Finding(
        message=f"{counted(len(small), 'kernel')} with fewer blocks than the GPU has multiprocessors took "
        f"{show_us(spent)} ({spent / work.kernel_time_us:.0%} of the kernel time), most {names[0]}",
        evidence={
            "time_us": spent,
            "share": work.share_of(small),
            "kernels": names,
            "count": len(small),
            "unused_us": unused,
            "source": work.source_of(max(small, key=lambda i: gpu.end[i] - gpu.start[i])),
        },
        saves_us=unused,
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
    names = _longest_names(analysis, low)
    yield Finding(
        message=f"{counted(len(low), 'kernel')} ran with {mean:.0f}% of the warps that fit, "
        f"{show_us(spent)} ({spent / work.kernel_time_us:.0%} of the kernel time), most {names[0]}",
        evidence={
            "time_us": spent,
            "share": work.share_of(low),
            "kernels": names,
            "count": len(low),
            "occupancy": mean / 100,
            "source": work.source_of(max(low, key=lambda i: gpu.end[i] - gpu.start[i])),
        },
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


def _longest_names(analysis: Analysis, kernels: Sequence[int]) -> list[str]:
    gpu = analysis.trace.gpu
    spent: dict[int, int] = {}
    for i in kernels:
        spent[gpu.name[i]] = spent.get(gpu.name[i], 0) + gpu.end[i] - gpu.start[i]
    return [analysis.gpu_work.named[name].short for name in sorted(spent, key=lambda name: -spent[name])[:5]]


RULES = (
    Rule(
        code="small-grid",
        title="Grids smaller than the GPU",
        find=_small_grid,
        needs=(
            BLOCKS_PER_SM,
            told_of_each("of some kernels it is not recorded how many blocks they have", _small_grids, FEW_BLOCKS),
        ),
        thresholds=(FEW_BLOCKS,),
        remedy="larger batches or sequences; several small products as one batched one; streams side by side",
        explains=(*SLOW_KERNELS, "min_sm_efficiency"),
    ),
    Rule(
        code="low-occupancy",
        title="Low occupancy",
        find=_low_occupancy,
        needs=(
            OCCUPANCY,
            told_of_each(
                "of some kernels occupancy or blocks are not recorded", _with_few_warps, LOW, BLOCKS, LOW_SHARE
            ),
        ),
        thresholds=(LOW, BLOCKS, LOW_SHARE),
        remedy="fewer registers or less shared memory per block, larger blocks; in Triton block sizes and num_warps",
        explains=SLOW_KERNELS,
    ),
)

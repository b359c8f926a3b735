"""Findings about kernels that take far longer than the GPU's peaks ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.efficiency import peak_of_trace
from pytest_torchprof.findings.finding import OPERATORS, SHAPES, SLOW_KERNELS, Finding, Need, Rule, Threshold
from pytest_torchprof.findings.products import odd_sizes
from pytest_torchprof.text import counted, cut, show_rate, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.efficiency import Peak
    from pytest_torchprof.analysis.gpu_work import Group
    from pytest_torchprof.kernels.operand_work import OperandWork

FAR = Threshold("times", 5.0, "tuned kernels take one to three times their bound; five times it is another kernel")
SMALL = Threshold(
    "least_us", 10.0, "with less work than this a kernel waits for memory latency; a bound below it counts as this"
)
COSTLY = Threshold("share", 0.05, "a twentieth of the kernel time that could be saved is worth another kernel")

_REMEDIES = {
    "conv": "channels_last, a type that tensor cores take, torch.backends.cudnn.benchmark = True; few input channels "
    "padded to 4 or 8, a patch embedding written as reshape and product",
    "gemm": "larger sizes where one of M, N, K is small (several products as one), contiguous operands, another kernel "
    '(torch.compile(mode="max-autotune"), torch.backends.cuda.preferred_blas_library)',
    "attention": "another backend (torch.nn.attention.sdpa_kernel); longer sequences or larger batches",
}
_MOVING = "contiguous operands: what is transposed, sliced or expanded is read in pieces; torch.compile to fuse it"


class _FarBelow(NamedTuple):
    group: Group
    work: OperandWork
    bound_us: float
    """What the peaks allow for one of them."""
    wasted_us: float
    """What all of them take beyond it."""


def _below_roofline(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that take many times what the peaks of the GPU allow, by operations or by bytes."""
    work, peak = analysis.gpu_work, peak_of_trace(analysis.trace)
    if peak is None:
        return
    slow = sorted(
        (one for group in work.groups if (one := _slow(analysis, group, peak, at)) is not None),
        key=lambda one: -one.wasted_us,
    )
    wasted = sum(one.wasted_us for one in slow)
    if not slow or wasted < at[COSTLY] * work.kernel_time_us:
        return
    worst, members = slow[0], [i for one in slow for i in one.group.members]
    spent, decoded = work.time_us(members), work.decoded(worst.group)
    yield Finding(
        message=f"{_describe(analysis, worst)}; {counted(len(members), 'such kernel')} took {show_us(spent)} "
        f"({spent / work.kernel_time_us:.0%} of the kernel time)",
        evidence={
            "time_us": spent,
            "share": work.share_of(members),
            "kernels": list(dict.fromkeys(work.decoded(one.group).short for one in slow))[:5],
            "ops": list(dict.fromkeys(str(work.op_name(one.group)) for one in slow))[:5],
            "count": len(members),
            "bound_us": worst.bound_us,
            "mean_us": worst.group.time_ns / 1000 / len(worst.group.members),
            "flops": worst.work.flops,
            "bytes": worst.work.bytes,
            "source": work.source_of(worst.group.members[0]),
        },
        remedy=_REMEDIES.get(decoded.family or "", ""),
        saves_us=wasted,
    )


def _slow(analysis: Analysis, group: Group, peak: Peak, at: Mapping[Threshold, float]) -> _FarBelow | None:
    """Return how far the group is below its roofline, None where it is not far or nobody knows."""
    work = analysis.gpu_work.operand_work(group)
    bound = _bound_us(analysis, group, work, peak)
    if bound is None or _explained(analysis, group):
        return None
    count = len(group.members)
    mean, least = group.time_ns / 1000 / count, max(bound, at[SMALL])
    return _FarBelow(group, work, bound, (mean - least) * count) if mean >= at[FAR] * least else None


def _bound_us(analysis: Analysis, group: Group, work: OperandWork, peak: Peak) -> float | None:
    """Return how long the GPU needs at its peaks, None where one of the two bounds is not known."""
    if work.bytes is None or peak.gb_per_s is None:
        return None
    moving = work.bytes / peak.gb_per_s / 1e3
    if work.flops is None:
        return moving
    tflops = peak.tflops.get(analysis.gpu_work.decoded(group).dtype or "")
    return None if tflops is None else max(moving, work.flops / tflops / 1e6)


def _explained(analysis: Analysis, group: Group) -> bool:
    """Whether another finding says why it is slow: a grid too small for the GPU, sizes that are not aligned."""
    blocks = analysis.trace.gpu.blocks_per_sm
    return odd_sizes(analysis, group) is not None or all(0 <= blocks[i] < 1 for i in group.members)


def _describe(analysis: Analysis, slow: _FarBelow) -> str:
    work, group = analysis.gpu_work, slow.group
    mean_us = group.time_ns / 1000 / len(group.members)
    shapes = [str(shape) for shape in work.shapes(group) or () if shape]
    rates = [f"{show_rate(slow.work.flops / mean_us / 1e6)} TFLOP/s"] if slow.work.flops else []
    rates += [f"{show_rate(slow.work.bytes / mean_us / 1e3)} GB/s"] if slow.work.bytes else []
    what = f"{work.decoded(group).short} of {work.op_name(group)} ({cut(', '.join(shapes), 80)})"
    return (
        f"{what} takes {show_us(mean_us)}, "
        f"where the GPU's peaks ask for {show_us(slow.bound_us)}: {' and '.join(rates)}"
    )


PEAKS_KNOWN = Need(
    missing="the peaks of the device are not known, in operations or in bytes a second",
    there=lambda analysis: (peak := peak_of_trace(analysis.trace)) is not None and peak.gb_per_s is not None,
)
WORK_KNOWN = Need(
    missing="the operands' shapes, strides and types tell of no kernel what it has to do",
    there=lambda analysis: any(
        analysis.gpu_work.operand_work(group).bytes is not None for group in analysis.gpu_work.groups
    ),
)

RULES = (
    Rule(
        code="below-roofline",
        title="Far below the roofline",
        find=_below_roofline,
        needs=(OPERATORS, SHAPES, PEAKS_KNOWN, WORK_KNOWN),
        thresholds=(FAR, SMALL, COSTLY),
        remedy=_MOVING,
        explains=SLOW_KERNELS,
    ),
)

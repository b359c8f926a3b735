"""Findings about kernels that take far longer than the GPU needs at its peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.efficiency import peak_of_trace
from pytest_torchprof.findings.catalogue.kernels import BelowRoofline
from pytest_torchprof.findings.evidence import evidence
from pytest_torchprof.findings.finding import OPERATORS, SHAPES, SLOW_KERNELS, Finding, Need, Rule, Threshold
from pytest_torchprof.findings.products import odd_sizes
from pytest_torchprof.reasons.findings import BoundsOfSomeUnknown, PeaksUnknown, WorkUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.efficiency import Peak
    from pytest_torchprof.analysis.gpu_work import Group
    from pytest_torchprof.kernels.operand_work import OperandWork

FAR = Threshold("times", 5.0, "tuned kernels take one to three times their bound; five times it is another kernel")
SMALL = Threshold(
    "least_us", 10.0, "with less work than this a kernel waits for memory latency; a bound below it counts as this"
)
COSTLY = Threshold("share", 0.05, "a twentieth of the kernel time that could be saved is worth another kernel")


class _FarBelow(Struct, frozen=True):
    group: Group
    work: OperandWork
    bound_us: float
    """The time that the peaks allow for one of these kernels."""
    wasted_us: float
    """The time that all of them together take beyond that."""


def _below_roofline(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that take many times as long as the GPU needs at its peaks for their operations and bytes."""
    work, peak = analysis.gpu_work, peak_of_trace(analysis.trace)
    if peak is None:
        return
    slow = _far_below(analysis, peak, at[FAR], at[SMALL])
    wasted = sum(each.wasted_us for each in slow)
    if not slow or wasted < at[COSTLY] * work.kernel_time_us:
        return
    worst, members = slow[0], [i for each in slow for i in each.group.members]
    decoded = work.decoded(worst.group)
    yield BelowRoofline(
        **evidence(work, members),
        kernel_share=work.time_us(members) / work.kernel_time_us,
        kernel=decoded.short,
        op=str(work.op_name(worst.group)),
        family=decoded.family,
        shapes=tuple(str(shape) for shape in work.shapes(worst.group) or () if shape),
        mean_us=worst.group.time_ns / 1000 / len(worst.group.members),
        bound_us=worst.bound_us,
        flops=worst.work.flops,
        bytes=worst.work.bytes,
        saves_us=wasted,
    )


def _far_below(analysis: Analysis, peak: Peak, times: float, small_us: float) -> list[_FarBelow]:
    """Return the kernels far below their roofline, the most wasteful first."""
    candidates = (_slow(analysis, group, peak, times, small_us) for group in analysis.gpu_work.groups)
    return sorted((each for each in candidates if each is not None), key=lambda each: -each.wasted_us)


def _slow(analysis: Analysis, group: Group, peak: Peak, times: float, small_us: float) -> _FarBelow | None:
    """Return how far the group is below its roofline, None if it is not far below or that is unknown."""
    count = len(group.members)
    mean = group.time_ns / 1000 / count
    if mean < times * small_us:
        # Too short for that, whatever its work is.
        return None
    work = analysis.gpu_work.operand_work(group)
    bound = _bound_us(analysis, group, work, peak)
    if bound is None or _explained(analysis, group):
        return None
    least = max(bound, small_us)
    return _FarBelow(group, work, bound, (mean - least) * count) if mean >= times * least else None


def _bound_us(analysis: Analysis, group: Group, work: OperandWork, peak: Peak) -> float | None:
    """Return how long the GPU needs at its peaks, None if one of the two bounds is unknown."""
    if work.bytes is None or peak.gb_per_s is None:
        return None
    moving = work.bytes / peak.gb_per_s / 1e3
    if work.flops is None:
        return moving
    tflops = peak.tflops.get(analysis.gpu_work.decoded(group).dtype or "")
    return None if tflops is None else max(moving, work.flops / tflops / 1e6)


def _bounds_known(analysis: Analysis, times: float, small_us: float, share: float) -> bool:
    """Whether kernels whose bound is unknown, as too little is recorded, could not waste enough to make a finding."""
    work, peak = analysis.gpu_work, peak_of_trace(analysis.trace)
    if peak is None:
        return False
    undecided_us = sum(_undecided_waste_us(analysis, group, peak, times, small_us) for group in work.groups)
    surely_us = sum(each.wasted_us for each in _far_below(analysis, peak, times, small_us))
    return not undecided_us or surely_us + undecided_us < share * work.kernel_time_us


def _undecided_waste_us(analysis: Analysis, group: Group, peak: Peak, times: float, small_us: float) -> float:
    """Return the most that a group of unknown bound may waste, 0 if its bound is known or has no formula."""
    work = analysis.gpu_work
    needed = work.operand_work(group)
    if _bound_us(analysis, group, needed, peak) is not None or not work.may_be_measured(group):
        return 0.0
    if _explained(analysis, group):
        return 0.0
    least_us = max(_least_bound_us(needed, peak), small_us)
    if work.operator_known(group) and group.inputs >= 0:
        mean_us = group.time_ns / 1000 / len(group.members)
        return _most_wasted_us([mean_us] * len(group.members), times, least_us)
    return _most_wasted_us([work.time_us([i]) for i in group.members], times, least_us)


def _most_wasted_us(lengths_us: Iterable[float], times: float, least_us: float) -> float:
    """Return the most that kernels waste if any of them may be launched with the same operands."""
    spent_us, count = 0.0, 0
    for length_us in sorted(lengths_us, reverse=True):
        if length_us <= least_us or spent_us + length_us < times * least_us * (count + 1):
            break
        spent_us, count = spent_us + length_us, count + 1
    return spent_us - least_us * count


def _least_bound_us(work: OperandWork, peak: Peak) -> float:
    """Return the least time the GPU needs at its peaks, by what is known of the two bounds."""
    moving = 0.0 if work.bytes is None or peak.gb_per_s is None else work.bytes / peak.gb_per_s / 1e3
    return max(moving, (work.flops or 0) / max(peak.tflops.values()) / 1e6)


def _explained(analysis: Analysis, group: Group) -> bool:
    """Whether another finding says why the group is slow: a grid too small for the GPU, or unaligned sizes."""
    blocks = analysis.trace.gpu.blocks_per_sm
    return odd_sizes(analysis, group) is not None or all(0 <= blocks[i] < 1 for i in group.members)


PEAKS_KNOWN = Need(
    missing=PeaksUnknown(),
    there=lambda analysis: (peak := peak_of_trace(analysis.trace)) is not None and peak.gb_per_s is not None,
)
WORK_KNOWN = Need(
    missing=WorkUnknown(),
    there=lambda analysis: any(
        analysis.gpu_work.operand_work(group).bytes is not None for group in analysis.gpu_work.groups
    ),
)

RULES = (
    Rule(
        code="below-roofline",
        find=_below_roofline,
        needs=(
            OPERATORS,
            SHAPES,
            PEAKS_KNOWN,
            WORK_KNOWN,
            Need(
                missing=BoundsOfSomeUnknown(),
                there=_bounds_known,
                by=(FAR, SMALL, COSTLY),
            ),
        ),
        thresholds=(FAR, SMALL, COSTLY),
        explains=SLOW_KERNELS,
    ),
)

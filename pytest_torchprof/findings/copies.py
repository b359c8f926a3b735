"""Findings about time that goes into moving data: copies between memories, and kernels that copy, cast or quantize."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.parts import copied_bytes, copy_direction
from pytest_torchprof.findings.catalogue.costs import CopiesTakeLong, CopyKernels
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.evidence import evidence, members
from pytest_torchprof.findings.finding import GPU_WORK, SLOW_KERNELS, WHICH_KERNELS, Finding, Rule, Threshold
from pytest_torchprof.findings.places import source_of_ops
from pytest_torchprof.findings.written_out import rms_norms
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.kernels.names import KernelName

COPYING = Threshold("share", 0.1, "a tenth of the time in copies is worth overlapping or leaving out")
OF_KERNELS = Threshold("share", 0.15, "casts and changes of layout at each end of a model take less than a seventh")


def _copies_take_long(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find copies between memories that take much of the window."""
    work, trace = analysis.gpu_work, analysis.trace
    copies = work.copies
    share = work.share_of(copies) if copies else 0.0
    if not copies or share < at[COPYING]:
        return
    gpu = trace.gpu
    lasted = {i: gpu.end[i] - gpu.start[i] for i in copies}
    directions: Counter[str] = Counter()
    for i in copies:
        directions[copy_direction(trace.names[gpu.name[i]]) or "not known"] += lasted[i]
    longest = max(copies, key=lasted.__getitem__)
    of_step = set(copies)
    alone = [
        intervals.length(
            intervals.without(
                work.covered(i for i in ops if i in of_step), work.covered(i for i in ops if gpu.kind[i] == KERNEL)
            )
        )
        for ops in work.by_device.values()
    ]
    yield CopiesTakeLong(
        time_us=work.time_us(copies),
        share=share,
        count=len(copies),
        bytes=copied_bytes(trace, copies),
        directions_us={name: ns / 1000 for name, ns in directions.most_common()},
        pageable_us=work.time_us(i for i in copies if "Pageable" in trace.names[gpu.name[i]]),
        alone_us=max(alone) / 1000,
        longest_us=lasted[longest] / 1000,
        longest=trace.names[gpu.name[longest]],
        source=source_of_ops(work, copies),
        events=Events(gpu_ops=tuple(copies)),
        saves_us=max(alone) / 1000,
    )


def _copy_kernels(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that copy, cast or quantize and take much of the kernel time."""
    work = analysis.gpu_work
    moving = members(group for group in work.groups if _moves(work.decoded(group)))
    spent = work.time_us(moving)
    if not spent or spent < at[OF_KERNELS] * work.kernel_time_us:
        return
    of_norms = {i for norm in rms_norms(analysis) for i in norm}
    casts_us = work.time_us(i for i in moving if i in of_norms)
    yield CopyKernels(
        **evidence(work, moving),
        kernel_share=spent / work.kernel_time_us,
        of_norms_us=casts_us,
        saves_us=spent - casts_us,
    )


def _moves(decoded: KernelName) -> bool:
    return decoded.family == "copy" or "quantize" in (decoded.stem or "")


RULES = (
    Rule(
        code="copies-take-long",
        find=_copies_take_long,
        needs=(GPU_WORK,),
        thresholds=(COPYING,),
        explains=("max_memcpys", "min_gpu_utilization", "min_sm_efficiency"),
    ),
    Rule(
        code="copy-kernels",
        find=_copy_kernels,
        needs=(GPU_WORK,),
        thresholds=(OF_KERNELS,),
        explains=(*WHICH_KERNELS, *SLOW_KERNELS),
    ),
)

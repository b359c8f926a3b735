"""Findings about single kernels and operators: the ones that take most time, run most often, or idle the GPU."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.steps import once
from pytest_torchprof.findings.catalogue.costs import CostlyChildren, Hotspot, ManySmallCalls
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.evidence import members
from pytest_torchprof.findings.finding import (
    CPU_SIDE,
    GPU_WORK,
    HOST_PACE,
    HOW_MANY_KERNELS,
    OPERATORS,
    SLOW_KERNELS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.findings.places import source_of_ops
from pytest_torchprof.reasons.findings import OperatorsOfSomeUnknown
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace.columns import Calls, Ranges


SHARE = Threshold(
    "share", 0.4, "two fifths of the kernel time in one place: made twice as fast, it saves more than anything else can"
)
NAMES = Threshold("names", 3, "of two kernels one always dominates")
BUSY = Threshold("busy", 0.5, "on a GPU that idles most of the time, a faster kernel ends in a longer gap")

CALLS = Threshold("calls", 100, "per step; at some 5 to 10 us of host time each, about a millisecond")
SMALL_US = Threshold("mean_us", 10.0, "about what the host needs to launch one from Python")
OF_CALLS = Threshold(
    "share", 0.1, "less than a tenth of the step's GPU operations is not what its launches are spent on"
)
TO_SPARE = Threshold("busy", 0.9, "a GPU that is busy nine tenths of the time does not wait for launches")

# Their number follows from the model; where they are small, their grids are.
_NOT_TO_BE_BATCHED = frozenset({"gemm", "conv", "attention", "communication"})

INSIDE = Threshold("inside", 0.9, "an operator that does a tenth of its work itself is only a name for what it calls")
OF_CPU_TIME = Threshold("share", 0.25, "a fourth of the time of all operators is worth a look inside")


def _hotspot(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find a kernel name that takes most of the kernel time, or else an operator that does with all it launches.

    Kernels that are made to take time are left out: they could be no faster.
    """
    trace, work = analysis.trace, analysis.gpu_work
    total = work.kernel_time_us
    if len(work.by_name) < at[NAMES] or not total:
        return
    by_op: dict[str, int] = defaultdict(int)
    for group in work.groups:
        if group.op >= 0 and group.name not in work.lasting:
            by_op[trace.names[group.op]] += group.time_ns
    computing = {name: groups for name, groups in work.by_name.items() if name not in work.lasting}
    spent = {name: sum(group.time_ns for group in groups) for name, groups in computing.items()}
    if not spent:
        return
    name = max(spent, key=lambda candidate: spent[candidate])
    op = max(by_op, key=lambda candidate: by_op[candidate], default=None)
    if spent[name] / 1000 >= at[SHARE] * total:
        groups = work.by_name[name]
        subject, spent_us = work.decoded(groups[0]).short, spent[name] / 1000
        launched = work.op_name(groups[0])
    elif op is not None and by_op[op] / 1000 >= at[SHARE] * total and not op.startswith("CompiledFunction"):
        groups = [group for group in work.groups if group.op >= 0 and trace.names[group.op] == op]
        subject, spent_us, launched = op, by_op[op] / 1000, op
    else:
        return
    kernels = members(groups)
    yield Hotspot(
        subject=subject,
        time_us=spent_us,
        share=work.share_of(kernels),
        kernel_share=spent_us / total,
        kernels=(trace.names[name],) if subject != launched else (),
        ops=(launched,) if launched else (),
        count=len(kernels),
        idle_share=work.idle_share if work.busy_share < at[BUSY] else None,
        source=source_of_ops(work, kernels),
        events=Events(gpu_ops=tuple(kernels)),
    )


def _operators_known(analysis: Analysis, share: float, names: float) -> bool:
    """Whether no operator could have most of the time even if it launched all kernels whose operator is unknown."""
    trace, work = analysis.trace, analysis.gpu_work
    by_op: Counter[int] = Counter()
    untold = 0
    for group in work.groups:
        if not work.operator_known(group):
            untold += group.time_ns
        elif group.op >= 0 and not trace.names[group.op].startswith("CompiledFunction"):
            by_op[group.op] += group.time_ns
    most = max(by_op.values(), default=0) + untold
    return not untold or len(work.by_name) < names or most / 1000 < share * work.kernel_time_us


def _many_small_calls(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the operators that launch very often, each time for a few microseconds, on a GPU with time to spare."""
    trace, work = analysis.trace, analysis.gpu_work
    steps = max(len(trace.steps), 1)
    launched = _to_be_batched(analysis)
    many = _many(analysis, at[CALLS], at[OF_CALLS])
    often = sorted((item for item in launched.items() if len(item[1]) >= many), key=lambda item: -len(item[1]))
    mean_us = {op: work.time_us(kernels) / len(kernels) for op, kernels in often}
    busy = {op: len(kernels) for op, kernels in often if mean_us[op] <= at[SMALL_US]}
    if not busy or not _waits_for_launches(analysis, at[TO_SPARE]):
        return
    launch_us = _launch_us(analysis)
    total, calls = sum(busy.values()), trace.calls
    small = members(group for group in work.groups if group.op in busy)
    launches = [call for i in small if (call := trace.links.call_of[i]) >= 0]
    yield ManySmallCalls(
        has_steps=trace.has_step_ranges,
        time_us=total * launch_us,
        share=work.share_during(intervals.of(calls, launches)),
        ops={trace.names[op]: count // steps for op, count in busy.items()},
        mean_us={trace.names[op]: mean_us[op] for op in busy},
        launch_us=launch_us,
        source=source_of_ops(work, (i for op in busy for i in launched[op])),
        events=Events(gpu_ops=tuple(i for op in busy for i in launched[op])),
        saves_us=total * launch_us,
    )


@once
def _to_be_batched(analysis: Analysis) -> dict[int, list[int]]:
    """Return for each operator its kernels that could be launched together; those of compiled code are already."""
    work = analysis.gpu_work
    by_operator: dict[int, list[int]] = defaultdict(list)
    for group in work.groups:
        if work.op_name(group) is not None and work.named[group.name].family not in _NOT_TO_BE_BATCHED:
            by_operator[group.op] += group.members
    return by_operator


def _many(analysis: Analysis, calls: float, share: float) -> float:
    """Return how many kernels an operator has to launch to be a finding."""
    return max(calls * max(len(analysis.trace.steps), 1), share * len(analysis.gpu_work.gpu_ops), 1)


def _waits_for_launches(analysis: Analysis, most: float) -> bool:
    return analysis.gpu_work.busy_share < most and not analysis.graph_launches


def _calls_known(analysis: Analysis, calls: float, small_us: float, share: float, most: float) -> bool:
    """Whether no operator could be a finding even if it launched every kernel whose operator is unknown."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    untold_us = sorted(
        work.time_us([i])
        for i in work.without_known_operator.intersection(work.kernels)
        if work.named[gpu.name[i]].family not in _NOT_TO_BE_BATCHED
    )
    if not untold_us or not _waits_for_launches(analysis, most):
        return True
    many = math.ceil(_many(analysis, calls, share))
    together_us, small = list(accumulate(untold_us, initial=0.0)), bisect_right(untold_us, small_us)
    for kernels in ([], *_to_be_batched(analysis).values()):
        # With the shortest ones the mean stays the lowest.
        more = max(many - len(kernels), small)
        if more <= len(untold_us) and work.time_us(kernels) + together_us[more] <= small_us * (len(kernels) + more):
            return False
    return True


def _launch_us(analysis: Analysis) -> float:
    """Return the median length of a launch call."""
    start, end = analysis.trace.calls.start, analysis.trace.calls.end
    lengths = sorted([end[i] - start[i] for i in analysis.trace.links.launches])
    return lengths[len(lengths) // 2] / 1000 if lengths else 0.0


def _costly_children(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the operator with the most time inside, nearly all of it in its children, and name the costliest of them."""
    trace, work = analysis.trace, analysis.gpu_work
    ops, names = trace.ops, trace.names
    roots = work.outermost
    if trace.has_step_ranges:
        roots = [i for i in roots if trace.step_at(ops.start[i]) >= 0]
    named = ops.name
    spent = _time_by_name(ops, roots)
    whole = sum(spent.values())
    name = max(spent, key=lambda candidate: spent[candidate], default=None)
    if name is None or spent[name] < at[OF_CPU_TIME] * whole or not names[name].startswith("aten::"):
        return
    parents = {i for i in roots if named[i] == name}
    children = trace.nesting.children(parents)
    inside = _time_by_name(ops, children)
    # An operator that calls itself, as copy_ does from another device's memory, is not its own child here.
    inside.pop(name, None)
    # Files of torch before 2.4 cut times to whole microseconds: children then seem to overlap.
    share = min(sum(inside.values()) / spent[name], 1.0) if spent[name] else 0.0
    if not inside or share < at[INSIDE]:
        return
    innermost, innermost_ns = _innermost(analysis, children, inside)
    costliest = max(inside, key=lambda candidate: inside[candidate])
    idle_us = work.window_us * work.idle_share
    yield CostlyChildren(
        time_us=spent[name] / 1000,
        share=work.share_during(intervals.of(ops, parents)),
        self_us=(spent[name] - sum(inside.values())) / 1000,
        inside_share=share,
        ops=(names[name], names[costliest]),
        child_us=inside[costliest] / 1000,
        events=Events(ops=tuple(sorted(parents))),
        innermost=names[innermost],
        innermost_us=innermost_ns / 1000,
        saves_us=min(spent[name] / 1000, idle_us),
    )


def _innermost(analysis: Analysis, children: Sequence[int], inside: Mapping[int, int]) -> tuple[int, int]:
    """Return the name and the time in ns of the costliest child, as deep as one child has half of the time.

    It is an operator, or a runtime call within the innermost operator. ``inside`` is the time of the ``children`` by
    name; some may be left out.
    """
    trace = analysis.trace
    ops, calls = trace.ops, trace.calls
    innermost, spent, holders = -1, 0, set[int]()
    while inside and (innermost < 0 or 2 * max(inside.values()) >= spent):
        innermost = max(inside, key=lambda candidate: inside[candidate])
        spent = inside[innermost]
        holders = {i for i in children if ops.name[i] == innermost}
        children = trace.nesting.children(holders)
        inside = _time_by_name(ops, children)
    by_call = _time_by_name(calls, where(trace.around_calls, holders))
    call = max(by_call, key=lambda candidate: by_call[candidate], default=None)
    return (innermost, spent) if call is None or 2 * by_call[call] < spent else (call, by_call[call])


def _time_by_name(columns: Calls | Ranges, members: Iterable[int]) -> dict[int, int]:
    named, start, end = columns.name, columns.start, columns.end
    # To add up is faster list by list.
    lengths: dict[int, list[int]] = defaultdict(list)
    for i in members:
        lengths[named[i]].append(end[i] - start[i])
    return {name: sum(those) for name, those in lengths.items()}


RULES = (
    Rule(
        code="hotspot",
        find=_hotspot,
        needs=(
            GPU_WORK,
            Need(
                missing=OperatorsOfSomeUnknown(),
                there=_operators_known,
                by=(SHARE, NAMES),
            ),
        ),
        thresholds=(SHARE, NAMES, BUSY),
        explains=SLOW_KERNELS,
    ),
    Rule(
        code="many-small-calls",
        find=_many_small_calls,
        needs=(
            OPERATORS,
            Need(
                missing=OperatorsOfSomeUnknown(),
                there=_calls_known,
                by=(CALLS, SMALL_US, OF_CALLS, TO_SPARE),
            ),
        ),
        thresholds=(CALLS, SMALL_US, OF_CALLS, TO_SPARE),
        explains=(*HOW_MANY_KERNELS, *HOST_PACE),
    ),
    Rule(
        code="costly-children",
        find=_costly_children,
        needs=(CPU_SIDE,),
        thresholds=(INSIDE, OF_CPU_TIME),
    ),
)

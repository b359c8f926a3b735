"""Findings about kernels by themselves: what takes most of the time, comes most often, or leaves the GPU unused."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import compress
from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import (
    BLOCKS_PER_SM,
    CPU_SIDE,
    GPU_WORK,
    HOST_PACE,
    HOW_MANY_KERNELS,
    OCCUPANCY,
    OPERATORS,
    SLOW_KERNELS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.text import counted, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis


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
    """Find a kernel name, or else an operator with all that it launches, that takes most of the kernel time."""
    trace, work = analysis.trace, analysis.gpu_work
    total = work.kernel_time_us
    if len(work.by_name) < at[NAMES] or not total:
        return
    by_op: dict[str, int] = defaultdict(int)
    for group in work.groups:
        if group.op >= 0:
            by_op[trace.names[group.op]] += group.time_ns
    spent = {name: sum(group.time_ns for group in groups) for name, groups in work.by_name.items()}
    name = max(spent, key=lambda one: spent[one])
    op = max(by_op, key=lambda one: by_op[one], default=None)
    if spent[name] / 1000 >= at[SHARE] * total:
        members = work.by_name[name]
        what, spent_us = work.decoded(members[0]).short, spent[name] / 1000
        launched = work.op_name(members[0])
    elif op is not None and by_op[op] / 1000 >= at[SHARE] * total and not op.startswith("CompiledFunction"):
        members = [group for group in work.groups if group.op >= 0 and trace.names[group.op] == op]
        what, spent_us, launched = op, by_op[op] / 1000, op
    else:
        return
    kernels = [i for group in members for i in group.members]
    yield Finding(
        message=f"{what} takes {spent_us / total:.0%} of the kernel time "
        f"({show_us(spent_us)}, {counted(len(kernels), 'kernel')})",
        evidence={
            "time_us": spent_us,
            "share": work.share_of(kernels),
            "kernel_share": spent_us / total,
            "kernels": [trace.names[name]] if launched is None or what != launched else [],
            "ops": [launched] if launched else [],
            "count": len(kernels),
            "source": work.source_of(kernels[0]),
        },
        remedy=""
        if work.busy_share >= at[BUSY]
        else f"the GPU idles {1 - work.busy_share:.0%} of the time: first give it work to do, then look at its kernels",
        severity="information",
    )


def _operators_told(analysis: Analysis, share: float, names: float) -> bool:
    """Whether no operator can have most of the time, had it launched all kernels of which the operator is not known."""
    trace, work = analysis.trace, analysis.gpu_work
    by_op: Counter[int] = Counter()
    untold = 0
    for group in work.groups:
        if not work.operator_told(group):
            untold += group.time_ns
        elif group.op >= 0 and not trace.names[group.op].startswith("CompiledFunction"):
            by_op[group.op] += group.time_ns
    most = max(by_op.values(), default=0) + untold
    return not untold or len(work.by_name) < names or most / 1000 < share * work.kernel_time_us


def _many_small_calls(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the operators that launch very often, each time for a few microseconds, on a GPU with time to spare."""
    trace, work = analysis.trace, analysis.gpu_work
    steps = max(len(trace.steps), 1)
    count: Counter[int] = Counter()
    spent: Counter[int] = Counter()
    example: dict[int, int] = {}
    for group in work.groups:
        if work.named[group.name].family in _NOT_TO_BE_BATCHED:
            continue
        count[group.op] += len(group.members)
        spent[group.op] += group.time_ns
        example.setdefault(group.op, group.members[0])
    busy = {
        op: calls
        for op, calls in count.most_common()
        if op >= 0
        and calls >= at[CALLS] * steps
        and calls >= at[OF_CALLS] * len(work.gpu_ops)
        and spent[op] / calls <= at[SMALL_US] * 1000
        and analysis.launching.op_name(analysis.launching.op_of[example[op]]) is not None
    }
    if not busy or work.busy_share >= at[TO_SPARE] or analysis.graph_launches:
        return
    launch_us = _launch_us(analysis)
    total, calls = sum(busy.values()), trace.calls
    members = (i for group in work.groups if group.op in busy for i in group.members)
    launches = {call for i in members if (call := trace.links.call_of[i]) >= 0}
    shown = ", ".join(
        f"{trace.names[op]} launches {counted(calls // steps, 'kernel')} of {show_us(spent[op] / calls / 1000)} each"
        for op, calls in list(busy.items())[:3]
    )
    yield Finding(
        message=f"in a step {shown}: to launch them costs more than what they do",
        evidence={
            "time_us": total * launch_us,
            "share": work.share_during((calls.start[call], calls.end[call]) for call in launches),
            "ops": {trace.names[op]: calls // steps for op, calls in busy.items()},
            "launch_us": launch_us,
            "source": work.source_of(example[next(iter(busy))]),
        },
        saves_us=total * launch_us,
    )


def _launch_us(analysis: Analysis) -> float:
    """Return the median length of a launch call."""
    calls = analysis.trace.calls
    lengths = sorted(calls.end[i] - calls.start[i] for i in analysis.trace.links.launches)
    return lengths[len(lengths) // 2] / 1000 if lengths else 0.0


def _costly_children(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find the operator with the most time inside, nearly all of it in its children, and name the costliest of them."""
    trace, work = analysis.trace, analysis.gpu_work
    ops, parent, names = trace.ops, trace.nesting.parent, trace.names
    roots = work.outermost
    if trace.has_step_ranges:
        roots = [i for i in roots if trace.step_at(ops.start[i]) >= 0]
    named, start, end = ops.name, ops.start, ops.end
    spent: dict[int, int] = defaultdict(int)
    for i in roots:
        spent[named[i]] += end[i] - start[i]
    whole = sum(spent.values())
    name = max(spent, key=lambda one: spent[one], default=None)
    if name is None or spent[name] < at[OF_CPU_TIME] * whole or not names[name].startswith("aten::"):
        return
    members = {i for i in roots if named[i] == name}
    inside: dict[int, int] = defaultdict(int)
    for i in compress(range(len(parent)), map(members.__contains__, parent)):
        inside[named[i]] += end[i] - start[i]
    # One that calls itself, as copy_ does from another device's memory, is no child to look at.
    inside.pop(name, None)
    # Files of torch before 2.4 cut times to whole microseconds: children then seem to overlap.
    share = min(sum(inside.values()) / spent[name], 1.0) if spent[name] else 0.0
    if not inside or share < at[INSIDE]:
        return
    costliest = max(inside, key=lambda one: inside[one])
    yield Finding(
        message=f"{names[name]} takes {show_us(spent[name] / 1000)} of CPU time, {share:.0%} of it in what it "
        f"calls, most in {names[costliest]} ({show_us(inside[costliest] / 1000)})",
        evidence={
            "time_us": spent[name] / 1000,
            "share": work.share_during((start[i], end[i]) for i in members),
            "self_us": (spent[name] - sum(inside.values())) / 1000,
            "ops": [names[name], names[costliest]],
        },
        severity="information",
    )


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
    blocks, talking = gpu.blocks_per_sm, work.communication
    small = [i for i in work.kernels if 0 <= blocks[i] < 1 and i not in talking]
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


def _low_occupancy(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that fill all multiprocessors with few warps each, products and attention aside."""
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    percent, enough = 100 * at[LOW], at[BLOCKS]
    low = [
        i
        for i in work.kernels
        if 0 <= gpu.occupancy[i] < percent
        and gpu.blocks_per_sm[i] >= enough
        and work.named[gpu.name[i]].family not in _FEW_WARPS
    ]
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
        saves_us=spent * (1 - mean / percent),
    )


def _longest_names(analysis: Analysis, kernels: list[int]) -> list[str]:
    gpu = analysis.trace.gpu
    spent: dict[int, int] = {}
    for i in kernels:
        spent[gpu.name[i]] = spent.get(gpu.name[i], 0) + gpu.end[i] - gpu.start[i]
    return [analysis.gpu_work.named[name].short for name in sorted(spent, key=lambda name: -spent[name])[:5]]


RULES = (
    Rule(
        code="hotspot",
        title="Hotspot",
        find=_hotspot,
        needs=(
            GPU_WORK,
            Need(
                missing="of some kernels it is not known which operator launched them",
                there=_operators_told,
                by=(SHARE, NAMES),
            ),
        ),
        thresholds=(SHARE, NAMES, BUSY),
        remedy="start here: what it does not take cannot be won",
        explains=SLOW_KERNELS,
    ),
    Rule(
        code="many-small-calls",
        title="Many small calls",
        find=_many_small_calls,
        needs=(OPERATORS,),
        thresholds=(CALLS, SMALL_US, OF_CALLS, TO_SPARE),
        remedy="batch them (one call on stacked tensors, _foreach_ and fused variants), or let torch.compile fuse them",
        explains=(*HOW_MANY_KERNELS, *HOST_PACE),
    ),
    Rule(
        code="costly-children",
        title="Costly children",
        find=_costly_children,
        needs=(CPU_SIDE,),
        thresholds=(INSIDE, OF_CPU_TIME),
        remedy="look at the children, not at the operator itself",
    ),
    Rule(
        code="small-grid",
        title="Grids smaller than the GPU",
        find=_small_grid,
        needs=(BLOCKS_PER_SM,),
        thresholds=(FEW_BLOCKS,),
        remedy="larger batches or sequences; several small products as one batched one; streams side by side",
        explains=(*SLOW_KERNELS, "min_sm_efficiency"),
    ),
    Rule(
        code="low-occupancy",
        title="Low occupancy",
        find=_low_occupancy,
        needs=(OCCUPANCY,),
        thresholds=(LOW, BLOCKS, LOW_SHARE),
        remedy="fewer registers or less shared memory per block, larger blocks; in Triton block sizes and num_warps",
        explains=SLOW_KERNELS,
    ),
)

"""Findings about calls that block: the host that waits for the GPU, and the GPU that waits for other GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import HOST_PACE, LAUNCHES, OPERATORS, SLOW_KERNELS, Finding, Rule, Threshold
from pytest_torchprof.text import counted, show_us
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork

WORK = Threshold("work", 0.1, "a call that waits ten times as long as the GPU works waits for something else")
WAIT_US = Threshold(
    "wait_us", 50.0, "a blocking call itself takes some 10 us; what is shorter than five of them is not worth a word"
)

EXPOSED = Threshold(
    "share",
    0.05,
    "from a twentieth of the time on, hiding communication behind computation pays; TensorBoard's plugin warns at 10 %",
)


def _blocking(analysis: Analysis) -> list[int]:
    """Return the blocking calls of the steps, the profiler's own aside."""
    trace = analysis.trace
    return [i for i in trace.blocking if i != trace.flush and trace.step_of_call[i] >= 0]


def _sync_over_little_work(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find long blocking calls during which the GPU was hardly busy."""
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    idle_ns: dict[int, int] = {}
    for i in _blocking(analysis):
        spent = calls.end[i] - calls.start[i]
        if spent > at[WAIT_US] * 1000:
            worked = work.worked_ns(calls.start[i], calls.end[i])
            if worked < at[WORK] * spent:
                idle_ns[i] = spent - worked
    if not idle_ns:
        return
    together = intervals.within(intervals.merged((calls.start[i], calls.end[i]) for i in idle_ns), [work.window])
    idle_us = sum(end - start - work.worked_ns(start, end) for start, end in together) / 1000
    wasted, longest = sum(idle_ns.values()) / 1000, max(idle_ns, key=idle_ns.__getitem__)
    names = Counter(trace.names[calls.name[i]] for i in idle_ns)
    yield Finding(
        message=f"{counted(len(idle_ns), 'blocking call')} ({', '.join(names)}) took {show_us(wasted)} "
        "in which the GPU was nearly idle: the awaited work was launched late, is itself waiting, or runs elsewhere",
        evidence={
            "time_us": wasted,
            "share": work.share(idle_us),
            "calls": dict(names),
            "source": work.source_of_call(longest),
        },
        saves_us=wasted,
    )


def _implicit_sync(analysis: Analysis) -> Iterator[Finding]:
    """Find blocking calls that an operator made: the program did not ask for a synchronization.

    A copy from or to memory that is not pinned waits in its own call, before the synchronization that follows.
    """
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    around, copies = trace.nesting.around_each(calls, _blocking(analysis)), _waiting_copies(analysis)
    synchronized = set(around.values())
    asked = _operators(analysis, synchronized.union(copies.values()))
    found: dict[str, list[int]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    for i, op in around.items():
        name = asked[op]
        if name is not None:
            found[name].append(i)
            spent[name] += (calls.end[i] - calls.start[i]) / 1000
    for i, op in copies.items():
        name = asked[op]
        if name is not None:
            spent[name] += (calls.end[i] - calls.start[i]) / 1000
            if op not in synchronized:
                found[name].append(i)
    if not found:
        return
    order = sorted(found, key=lambda name: (-spent[name], name))
    waited = [i for i, op in (*around.items(), *copies.items()) if asked[op] is not None]
    total, count = sum(spent.values()), sum(map(len, found.values()))
    shown = ", ".join(f"{name} x{len(found[name])}" for name in order[:4]) + (" and others" if len(order) > 4 else "")
    idle_us = max((work.window_us - intervals.length(busy) / 1000 for busy in work.busy.values()), default=0.0)
    longest = max(found[order[0]], key=lambda i: calls.end[i] - calls.start[i])
    yield Finding(
        message=f"{shown} made the CPU wait for the GPU: {counted(count, 'time')}, {show_us(total)} in all",
        evidence={
            "time_us": total,
            "share": work.share_during((calls.start[i], calls.end[i]) for i in waited),
            "ops": {name: len(found[name]) for name in order},
            "syncs": count,
            "source": work.source_of_call(longest),
        },
        # While the CPU waits for a busy GPU nothing is lost: no more than the idle time can be won.
        saves_us=min(total, idle_us),
    )


def _waiting_copies(analysis: Analysis) -> dict[int, int]:
    """Return the calls of copies from or to pageable memory that came back only when the copy was done, by operator."""
    trace = analysis.trace
    name, end, called = trace.gpu.name, trace.gpu.end, trace.calls.end
    call_of, op_of = trace.links.call_of, analysis.launching.op_of
    pageable = {one for one, text in enumerate(trace.names) if text.startswith("Memcpy") and "Pageable" in text}
    found = [i for i in analysis.gpu_work.copies if name[i] in pageable and call_of[i] >= 0]
    return {call_of[i]: op_of[i] for i in found if called[call_of[i]] >= end[i]}


def _operators(analysis: Analysis, ops: Iterable[int]) -> dict[int, str | None]:
    """Return the outermost aten operator around each, which is what the program called, else the innermost operator."""
    trace = analysis.trace
    named, parent = trace.ops.name, trace.nesting.parent
    aten = {i for i, name in enumerate(trace.names) if name.startswith("aten::")}
    found: dict[int, str | None] = {}
    for op in ops:
        outermost, holder = ABSENT, op
        while holder >= 0:
            if named[holder] in aten:
                outermost = named[holder]
            holder = parent[holder]
        found[op] = trace.names[outermost] if outermost >= 0 else analysis.launching.op_name(op)
    return found


def _exposed_communication(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find time in which a device ran a collective and computed nothing."""
    work = analysis.gpu_work
    if not work.communication:
        return
    exposed = [_exposed_ns(work, ops) / 1000 for ops in work.by_device.values()]
    lost = max(exposed)
    if work.share(lost) < at[EXPOSED]:
        return
    gpu = analysis.trace.gpu
    spent: Counter[str] = Counter()
    for i in work.communication:
        spent[analysis.launching.decoded(i).collective or "other"] += gpu.end[i] - gpu.start[i]
    ordered = [name for name, _ in spent.most_common()]
    yield Finding(
        message=f"{show_us(lost)} ({work.share(lost):.0%} of the time) the GPU only communicates "
        f"({', '.join(ordered[:3])}), with nothing to compute meanwhile",
        evidence={
            "time_us": lost,
            "share": work.share(lost),
            "collectives_us": {name: spent[name] / 1000 for name in ordered},
        },
        saves_us=lost,
    )


def _exposed_ns(work: GpuWork, ops: list[int]) -> int:
    kind = work.trace.gpu.kind
    talking = work.covered(i for i in ops if i in work.communication)
    computing = work.covered(i for i in ops if kind[i] == KERNEL and i not in work.communication)
    return intervals.length(intervals.without(talking, computing))


RULES = (
    Rule(
        code="sync-over-little-work",
        title="Waiting for little",
        find=_sync_over_little_work,
        needs=(LAUNCHES,),
        thresholds=(WORK, WAIT_US),
        remedy="leave the synchronization out, or do it once at the end; queue the work before waiting for it",
        explains=(*HOST_PACE, "max_syncs"),
    ),
    Rule(
        code="implicit-sync",
        title="Hidden synchronization",
        find=_implicit_sync,
        needs=(OPERATORS,),
        remedy="keep the value on the GPU or read it once after the loop; masks by torch.where instead of indexing; "
        "copies with non_blocking=True from pinned memory",
        explains=(*HOST_PACE, "max_memcpys", "max_syncs"),
    ),
    Rule(
        code="exposed-communication",
        title="Exposed communication",
        find=_exposed_communication,
        thresholds=(EXPOSED,),
        remedy="overlap it with computation (DDP buckets, prefetch in FSDP, async_op=True); a collective that only "
        "waits shows that another rank is late: compare the ranks",
        explains=SLOW_KERNELS,
    ),
)

"""Findings about waiting: the GPU for the host, the host for the GPU, and GPUs for one another."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.parts import copy_direction
from pytest_torchprof.analysis.waits import waiting_copies
from pytest_torchprof.findings.catalogue.waiting import (
    ComputeBound,
    ExposedCommunication,
    ImplicitSync,
    LaunchDelay,
    LaunchGaps,
    OverheadBound,
    SyncOverLittleWork,
)
from pytest_torchprof.findings.finding import (
    GPU_WORK,
    HOST_PACE,
    LAUNCHES,
    OPERATORS,
    SLOW_KERNELS,
    Finding,
    Rule,
    Threshold,
)
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.trace.intervals import Spans


LATE = Threshold(
    "late_launches",
    0.5,
    "where half of the operations were launched only after the GPU had run dry, it is the host that sets the pace",
)
BUSY = Threshold(
    "busy", 0.5, "below half of the time busy, the GPU waits more than it works; TensorBoard's plugin warns there too"
)

COMPUTING = Threshold("share", 0.9, "a GPU that computes nine tenths of the time cannot be fed much better")

WAITING = Threshold(
    "share", 0.1, "a tenth of the time lost between kernels is worth a look; below that other things pay first"
)
LOADING = Threshold("data_loading", 0.05, "TensorBoard's plugin advises more workers from 5 % of the step on")
SYNCHRONIZING = Threshold("after_waits", 0.05, "a twentieth of the time, as for loading data, is worth a change")

FIRST_US = Threshold(
    "first_us",
    1000.0,
    "a launch reaches an idle GPU in about 10 us; what takes a hundred times as long was not the launch",
)
FIRST_TIMES = Threshold("first_times", 10.0, "where all launches take long, it is the queue; ten medians are no queue")
MEDIAN_US = Threshold("median_us", 50.0, "five times what a launch takes to reach an idle GPU")

_WRAPPERS: Final[tuple[tuple[Literal["ddp", "fsdp"], re.Pattern[str]], ...]] = (
    ("ddp", re.compile(r"DistributedDataParallel\.forward|torch\.distributed\.ddp\.")),
    ("fsdp", re.compile(r"FullyShardedDataParallel\.|FSDP::")),
)
_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


def _late(work: GpuWork) -> float:
    """Return the share of GPU operations that the device had to wait for."""
    # Where the profiler's own time cuts a gap into pieces, it is still one operation that came late.
    return len({before for _, _, cause, before in work.gaps if cause == "host"}) / max(len(work.gpu_ops), 1)


def _overhead_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that most operations were launched too late while the GPU was mostly idle and the CPU was not waiting."""
    work = analysis.gpu_work
    busy_us = sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
    # What is done once is the cold start's: it would not be there in a second recording.
    cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps) - work.setup_us
    warm = work.window_us - work.setup_us
    if not busy_us or cpu_us <= busy_us or work.busy_share * work.window_us > at[BUSY] * warm:
        return
    # Figures in the finding are those of all reports, set-up included.
    ratio = analysis.median.cpu_gpu_ratio
    if ratio is None or ratio <= 1:
        return
    late = _late(work)
    longest_ns, before = max(((end - start, before) for start, end, _, before in work.gaps), default=(0, ABSENT))
    if before == ABSENT or late < at[LATE]:
        return
    waited = work.idle.host_us / len(work.by_device)
    yield OverheadBound(
        time_us=waited,
        share=work.share_of_window(waited),
        cpu_gpu_ratio=ratio,
        busy_share=work.busy_share,
        late_launches=late,
        setup_us=work.setup_us,
        setup_share=work.share_of_window(work.setup_us),
        busy_us=busy_us,
        longest_us=longest_ns / 1000,
        longest_before=_awaited(analysis, before),
        saves_us=waited,
    )


def _compute_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    work = analysis.gpu_work
    kind, talking = analysis.trace.gpu.kind, work.communication
    computing = [
        work.covered_us([i for i in ops if kind[i] == KERNEL and i not in talking]) for ops in work.by_device.values()
    ]
    share = work.share_of_window(sum(computing) / len(computing)) if computing else 0.0
    if share >= at[COMPUTING]:
        yield ComputeBound(time_us=sum(computing), share=share)


def _launch_gaps(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find idle time between GPU operations of which the next one was not yet launched; of several GPUs the mean.

    The classes are HTA's, by when the launch began. But what of a gap lies behind the launch's end is not the host's.
    """
    work, trace = analysis.gpu_work, analysis.trace
    idle, call_of, ends = work.idle, trace.links.call_of, trace.calls.end
    late = [
        (length, before, start)
        for start, end, cause, before in work.gaps
        if cause == "host" and (length := min(end, ends[call_of[before]]) - start) > 0
    ]
    devices = max(len(work.by_device), 1)
    waited_us = sum([length for length, _, _ in late]) / 1000 / devices
    if not late or work.share_of_window(waited_us) < at[WAITING]:
        return
    longest_ns, before, _ = max(late)
    loading_us = _loading_us(analysis)
    gaps, capturing = [(start, start + length) for length, _, start in late], _calls_that_capture(analysis)
    after_waits_us = _after_waits_ns(analysis, gaps) / 1000 / devices
    captured_ns = sum(intervals.length(intervals.within([gap], capturing)) for gap in gaps)
    yield LaunchGaps(
        time_us=waited_us,
        share=work.share_of_window(waited_us),
        host_wait_us=idle.host_us,
        kernel_wait_us=idle.kernel_us,
        other_us=idle.other_us,
        gaps=len(late),
        longest_us=longest_ns / 1000,
        longest_before=_awaited(analysis, before),
        data_loading_us=loading_us,
        loads_long=work.share_of_window(loading_us) >= at[LOADING],
        after_waits_us=after_waits_us,
        waits_long=work.share_of_window(after_waits_us) >= at[SYNCHRONIZING],
        capturing_us=captured_ns / 1000 / devices,
        graphs=bool(analysis.graph_launches),
        source=work.source_of(before),
        saves_us=waited_us,
    )


def _awaited(analysis: Analysis, gpu_op: int) -> str:
    """Return the operator that launched it, else what it is called."""
    launched_by = analysis.launching.op_name(analysis.launching.op_of[gpu_op])
    return launched_by or decode(analysis.trace.names[analysis.trace.gpu.name[gpu_op]]).short


def _after_waits_ns(analysis: Analysis, gaps: Iterable[tuple[int, int]]) -> int:
    """Return how long those gaps are at whose beginning the CPU waited for the GPU, and launched the next work after.

    A call that began in a gap did not make it: the GPU had run dry before.
    """
    calls = analysis.trace.calls
    waits = intervals.merged((calls.start[i], calls.end[i]) for i in {*_blocking(analysis), *_waiting_copies(analysis)})
    begun = [start for start, _ in waits]
    total = 0
    for start, end in gaps:
        at = bisect_right(begun, start) - 1
        if at >= 0 and start <= waits[at][1] <= end:
            total += end - start
    return total


def _calls_that_capture(analysis: Analysis) -> Spans:
    """Return when outermost operators ran in which a CUDA graph was captured: such a call warms up and compiles too."""
    ops = analysis.trace.ops
    captured = analysis.gpu_work.setup.get("graph capture", [])
    ran = ((ops.start[i], ops.end[i]) for i in analysis.gpu_work.outermost) if captured else ()
    return intervals.merged(span for span in ran if any(span[0] <= start and end <= span[1] for start, end in captured))


def _loading_us(analysis: Analysis) -> float:
    trace = analysis.trace
    spans = [span for prefix in _LOADING for span in trace.spans_in_steps(prefix)]
    return intervals.length(intervals.merged((span.start_ns, span.end_ns) for span in spans)) / 1000


def _launch_delay(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that the way from a launch to its kernel is long although the GPU has nothing else to do."""
    trace, work = analysis.trace, analysis.gpu_work
    call_of, launched = trace.links.call_of, trace.calls.start
    linked = [i for i in work.kernels if call_of[i] >= 0]
    if not linked:
        return
    delays = [(trace.gpu.start[i] - launched[call_of[i]]) / 1000 for i in linked]
    first_launched = min(range(len(linked)), key=lambda at: launched[call_of[linked[at]]])
    first, middle = delays[first_launched], sorted(delays)[len(delays) // 2]
    started_idle = not any(trace.gpu.end[i] > launched[call_of[linked[first_launched]]] for i in trace.links.orphans)
    slow_start = first >= at[FIRST_US] and first >= at[FIRST_TIMES] * middle and started_idle
    if not slow_start and not (middle >= at[MEDIAN_US] and _late(work) >= at[LATE]):
        return
    late_us = first - middle
    yield LaunchDelay(
        first_us=first, median_us=middle, time_us=late_us, share=work.share_of_window(max(late_us, middle))
    )


WORK = Threshold("work", 0.1, "a call that waits ten times as long as the GPU works waits for something else")
WAIT_US = Threshold(
    "wait_us",
    50.0,
    "a blocking call itself takes some 10 us; what is shorter than five of them is not worth mentioning",
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
    yield SyncOverLittleWork(
        time_us=wasted,
        share=work.share_of_window(idle_us),
        calls=names,
        source=work.source_of_call(longest),
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
    waits: dict[str, list[int]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    for i, op in around.items():
        name = asked[op]
        if name is not None:
            waits[name].append(i)
            spent[name] += (calls.end[i] - calls.start[i]) / 1000
    for i, op in copies.items():
        name = asked[op]
        if name is not None:
            spent[name] += (calls.end[i] - calls.start[i]) / 1000
            if op not in synchronized:
                waits[name].append(i)
    if not waits:
        return
    order = sorted(waits, key=lambda name: (-spent[name], name))
    waited = [i for i, op in (*around.items(), *copies.items()) if asked[op] is not None]
    total = sum(spent.values())
    idle_us = max((work.window_us - intervals.length(busy) / 1000 for busy in work.busy.values()), default=0.0)
    longest = max(waits[order[0]], key=lambda i: calls.end[i] - calls.start[i])
    yield ImplicitSync(
        time_us=total,
        share=work.share_during((calls.start[i], calls.end[i]) for i in waited),
        ops={name: len(waits[name]) for name in order},
        syncs=sum(map(len, waits.values())),
        directions=_directions(analysis, {op for op, name in asked.items() if name in ImplicitSync.COPYING}),
        source=work.source_of_call(longest),
        # While the CPU waits for a busy GPU nothing is lost: no more than the idle time can be won.
        saves_us=min(total, idle_us),
    )


def _directions(analysis: Analysis, ops: Collection[int]) -> dict[str, int]:
    """Return in which directions these operators copied, and how often."""
    trace, op_of = analysis.trace, analysis.launching.op_of
    copied = [copy_direction(trace.names[trace.gpu.name[i]]) for i in analysis.gpu_work.copies if op_of[i] in ops]
    return dict(Counter(direction for direction in copied if direction is not None).most_common())


def _waiting_copies(analysis: Analysis) -> dict[int, int]:
    """Return the calls of copies from or to pageable memory that came back only when the copy was done, by operator."""
    call_of, op_of = analysis.trace.links.call_of, analysis.launching.op_of
    return {call_of[i]: op_of[i] for i in waiting_copies(analysis.trace, analysis.gpu_work.copies)}


def _operators(analysis: Analysis, ops: Iterable[int]) -> dict[int, str | None]:
    """Return the outermost aten operator around each, which is what the program called, else the innermost operator."""
    trace = analysis.trace
    named, parent = trace.ops.name, trace.nesting.parent
    aten = {i for i, name in enumerate(trace.names) if name.startswith("aten::")}
    operators: dict[int, str | None] = {}
    for op in ops:
        outermost, holder = ABSENT, op
        while holder >= 0:
            if named[holder] in aten:
                outermost = named[holder]
            holder = parent[holder]
        operators[op] = trace.names[outermost] if outermost >= 0 else analysis.launching.op_name(op)
    return operators


def _exposed_communication(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find time in which a device ran a collective and computed nothing."""
    work = analysis.gpu_work
    if not work.communication:
        return
    exposed = [_exposed_ns(work, ops) / 1000 for ops in work.by_device.values()]
    lost = max(exposed)
    if work.share_of_window(lost) < at[EXPOSED]:
        return
    gpu = analysis.trace.gpu
    spent: Counter[str] = Counter()
    for i in work.communication:
        decoded = analysis.launching.decoded(i)
        spent[decoded.collective or decoded.stem] += gpu.end[i] - gpu.start[i]
    job = None if analysis.in_job is None else analysis.in_job.job
    yield ExposedCommunication(
        time_us=lost,
        share=work.share_of_window(lost),
        kind=None if job is None else job.kind,
        wait_share=None if job is None else job.wait_share,
        collectives_us={name: ns / 1000 for name, ns in spent.most_common()},
        wrappers=tuple(name for name, sign in _WRAPPERS if any(map(sign.match, analysis.trace.names))),
        saves_us=lost,
    )


def _exposed_ns(work: GpuWork, ops: list[int]) -> int:
    kind = work.trace.gpu.kind
    talking = work.covered(i for i in ops if i in work.communication)
    computing = work.covered(i for i in ops if kind[i] == KERNEL and i not in work.communication)
    return intervals.length(intervals.without(talking, computing))


RULES = (
    Rule(
        code="overhead-bound",
        find=_overhead_bound,
        needs=(LAUNCHES,),
        thresholds=(LATE, BUSY),
        explains=HOST_PACE,
    ),
    Rule(
        code="compute-bound",
        find=_compute_bound,
        needs=(GPU_WORK,),
        thresholds=(COMPUTING,),
    ),
    Rule(
        code="launch-gaps",
        find=_launch_gaps,
        needs=(LAUNCHES,),
        thresholds=(WAITING, LOADING, SYNCHRONIZING),
        explains=HOST_PACE,
    ),
    Rule(
        code="launch-delay",
        find=_launch_delay,
        needs=(LAUNCHES,),
        thresholds=(FIRST_US, FIRST_TIMES, MEDIAN_US, LATE),
    ),
    Rule(
        code="sync-over-little-work",
        find=_sync_over_little_work,
        needs=(LAUNCHES,),
        thresholds=(WORK, WAIT_US),
        explains=(*HOST_PACE, "max_syncs"),
    ),
    Rule(
        code="implicit-sync",
        find=_implicit_sync,
        needs=(OPERATORS,),
        explains=(*HOST_PACE, "max_memcpys", "max_syncs"),
    ),
    Rule(
        code="exposed-communication",
        find=_exposed_communication,
        needs=(GPU_WORK,),
        thresholds=(EXPOSED,),
        explains=SLOW_KERNELS,
    ),
)

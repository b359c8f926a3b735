"""Findings about waiting: the GPU for the host, the host for the GPU, and GPUs for one another."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.parts import copy_direction
from pytest_torchprof.findings.catalogue.waiting import (
    ComputeBound,
    ExposedCommunication,
    ImplicitSync,
    LaunchDelay,
    LaunchGaps,
    OverheadBound,
    SyncOverLittleWork,
)
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import (
    GPU_WORK,
    HOST_PACE,
    LAUNCHES,
    OPERATORS,
    SLOW_KERNELS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.findings.queued import launched_waits
from pytest_torchprof.findings.silence import silent_times
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.reasons.limits import CollectiveTimesUnknown
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.findings.catalogue.waiting import WaitedFor
    from pytest_torchprof.trace import Trace
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
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_COUNTING = frozenset({"aten::nonzero", "aten::masked_select", "aten::masked_scatter", "aten::argwhere"})
"""Operators whose result is as large as a mask says, for which the CPU has to wait."""
_COPYING = frozenset({"aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu", "aten::cuda"})
_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


def _late(work: GpuWork) -> float:
    """Return the share of GPU operations that the device had to wait for."""
    # Where the profiler's own time cuts a gap into pieces, it is still one operation that came late.
    return len({before for _, _, cause, before in work.gaps_from_start if cause == "host"}) / max(len(work.gpu_ops), 1)


def _overhead_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that most operations were launched too late while the GPU was mostly idle and the CPU was launching."""
    work = analysis.gpu_work
    busy_us = sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
    launching_us = intervals.length(launching_times(analysis)) / 1000
    warm = work.window_us - work.setup_us
    if not busy_us or launching_us <= busy_us or work.busy_share * work.window_us > at[BUSY] * warm:
        return
    late, gaps = _late(work), list(_late_gaps(analysis))
    if not gaps or late < at[LATE]:
        return
    waited = sum([end - start for start, end, _ in gaps]) / 1000 / len(work.by_device)
    longest_ns, before = max((end - start, before) for start, end, before in gaps)
    set_up_us = _set_up_us(analysis, [(start, end) for start, end, _ in gaps])
    yield OverheadBound(
        time_us=waited,
        share=work.share_of_window(waited),
        gaps=len(gaps),
        launch_ratio=launching_us / busy_us,
        launching_us=launching_us,
        late_launches=late,
        busy_us=busy_us,
        longest_us=longest_ns / 1000,
        longest_before=_awaited(analysis, before),
        source=work.source_of(before),
        events=Events(gaps=tuple(gaps)),
        set_up_us=set_up_us,
        saves_us=max(waited - set_up_us, 0.0),
    )


def launching_times(analysis: Analysis) -> Spans:
    """Return when, inside the steps, the CPU was at work for the GPU, as far as events tell.

    Left out are calls that wait for the GPU, copies that return only when they are done among them; what is done once,
    which is the cold start's; data being loaded; the profiler's own buffers; and time in which nothing is recorded.
    """
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    waits = {*trace.blocking, *work.waiting_copies}
    other = [
        *((calls.start[i], calls.end[i]) for i in waits),
        *work.setup_spans,
        *work.profilers_own,
        *loading_times(trace),
        *silent_times(analysis),
    ]
    steps = ((place.start_ns, place.end_ns) for step in analysis.steps for place in step.part.ranges)
    return intervals.without(intervals.merged(steps), intervals.merged(other))


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
    work = analysis.gpu_work
    idle = work.idle_by_cause
    late = [(end - start, before, start) for start, end, before in _late_gaps(analysis)]
    devices = max(len(work.by_device), 1)
    waited_us = sum([length for length, _, _ in late]) / 1000 / devices
    if not late or work.share_of_window(waited_us) < at[WAITING]:
        return
    longest_ns, before, _ = max(late)
    gaps, capturing = [(start, start + length) for length, _, start in late], work.capturing_calls
    silent = silent_times(analysis)
    loading_us = _loading_ns(analysis, gaps) / 1000 / devices
    after_waits_us = _after_waits_ns(analysis, gaps) / 1000 / devices
    captured_ns = sum(intervals.length(intervals.within([gap], capturing)) for gap in gaps) if capturing else 0
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
        silent_us=sum(intervals.length(intervals.within([gap], silent)) for gap in gaps) / 1000 / devices,
        source=work.source_of(before),
        events=Events(gaps=tuple((start, start + length, before) for length, before, start in late)),
        saves_us=max(waited_us - _set_up_us(analysis, gaps), 0.0),
    )


def _set_up_us(analysis: Analysis, gaps: Iterable[tuple[int, int]]) -> float:
    """Return how much of gaps passed in what is done once, which is the cold start's; of several GPUs the mean."""
    work = analysis.gpu_work
    inside = sum(intervals.length(intervals.within([gap], work.setup_spans)) for gap in gaps) if work.setup else 0
    return inside / 1000 / max(len(work.by_device), 1)


def _late_gaps(analysis: Analysis) -> Iterator[tuple[int, int, int]]:
    """Yield the gaps, each up to the end of the launching call, that end with what was launched only in them."""
    trace = analysis.trace
    call_of, ends = trace.links.call_of, trace.calls.end
    for start, end, cause, before in analysis.gpu_work.gaps_from_start:
        if cause == "host" and (until := min(end, ends[call_of[before]])) > start:
            yield start, until, before


def late_gaps(analysis: Analysis) -> Spans:
    """Return when a device idled because the next operation was not launched yet."""
    return intervals.merged((start, end) for start, end, _ in _late_gaps(analysis))


def _awaited(analysis: Analysis, gpu_op: int) -> str:
    """Return the operator that launched it, else what it is called."""
    launched_by = analysis.launching.op_name(analysis.launching.op_of[gpu_op])
    return launched_by or decode(analysis.trace.names[analysis.trace.gpu.name[gpu_op]]).short


def _after_waits_ns(analysis: Analysis, gaps: Iterable[tuple[int, int]]) -> int:
    """Return how long those gaps are at whose beginning the CPU waited for the GPU, and launched the next work after.

    A call that began in a gap did not make it: the GPU had run dry before.
    """
    calls = analysis.trace.calls
    waits = intervals.merged(
        (calls.start[i], calls.end[i]) for i in {*analysis.gpu_work.blocking, *analysis.gpu_work.waiting_copies}
    )
    begun = [start for start, _ in waits]
    total = 0
    for start, end in gaps:
        at = bisect_right(begun, start) - 1
        if at >= 0 and start <= waits[at][1] <= end:
            total += end - start
    return total


def loading_times(trace: Trace) -> Spans:
    """Return when data was loaded."""
    spans = [span for prefix in _LOADING for span in trace.spans_in_steps(prefix)]
    return intervals.merged((span.start_ns, span.end_ns) for span in spans)


def _loading_ns(analysis: Analysis, gaps: Iterable[tuple[int, int]]) -> int:
    """Return how much of those gaps passed while data was loaded."""
    loading = loading_times(analysis.trace)
    return sum(intervals.length(intervals.within([gap], loading)) for gap in gaps) if loading else 0


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
        first_us=first,
        median_us=middle,
        time_us=late_us,
        share=work.share_of_window(max(late_us, middle)),
        events=Events(gpu_ops=(linked[first_launched],)),
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


def _sync_over_little_work(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find long blocking calls during which the GPU was hardly busy."""
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    idle_ns = _idle_in_calls(analysis, at[WORK], at[WAIT_US])
    if not idle_ns:
        return
    together = intervals.within(intervals.merged((calls.start[i], calls.end[i]) for i in idle_ns), [work.window])
    idle_us = sum(end - start - work.worked_ns(start, end) for start, end in together) / 1000
    held_ns = intervals.length(intervals.within(together, held_on_gpu(analysis)))
    wasted, longest = sum(idle_ns.values()) / 1000, max(idle_ns, key=idle_ns.__getitem__)
    names = Counter(trace.names[calls.name[i]] for i in idle_ns)
    yield SyncOverLittleWork(
        time_us=wasted,
        share=work.share_of_window(idle_us),
        calls=names,
        source=work.source_of_call(longest),
        events=Events(calls=tuple(idle_ns)),
        saves_us=max(wasted - held_ns / 1000, 0.0),
    )


def _idle_in_calls(analysis: Analysis, most: float, longer_us: float) -> dict[int, int]:
    """Return by call that blocks for longer, and in which the GPU works for less than that share, how long it idled."""
    work, calls = analysis.gpu_work, analysis.trace.calls
    idle_ns: dict[int, int] = {}
    for i in analysis.gpu_work.blocking:
        spent = calls.end[i] - calls.start[i]
        if spent > longer_us * 1000:
            worked = work.worked_ns(calls.start[i], calls.end[i])
            if worked < most * spent:
                idle_ns[i] = spent - worked
    return idle_ns


def waits_for_little(analysis: Analysis) -> Spans:
    """Return when the CPU waited long for a GPU that hardly worked."""
    calls = analysis.trace.calls
    waited = _idle_in_calls(analysis, WORK.value, WAIT_US.value)
    return intervals.merged((calls.start[i], calls.end[i]) for i in waited)


def _implicit_sync(analysis: Analysis) -> Iterator[Finding]:
    """Find blocking calls that an operator made: the program did not ask for a synchronization.

    A copy from or to memory that is not pinned waits in its own call, before the synchronization that follows.
    """
    work, calls = analysis.gpu_work, analysis.trace.calls
    around, copies, asked = _waits_and_operators(analysis)
    synchronized = set(around.values())
    waits: dict[str, list[int]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    causes: Counter[WaitedFor] = Counter()
    cause_of = _causes(analysis, asked)
    for i, op in (*around.items(), *copies.items()):
        name = asked[op]
        if name is not None:
            spent[name] += (calls.end[i] - calls.start[i]) / 1000
            causes[cause_of[op]] += calls.end[i] - calls.start[i]
            if i in around or op not in synchronized:
                waits[name].append(i)
    if not waits:
        return
    order = sorted(waits, key=lambda name: (-spent[name], name))
    waited = waits_in_operators(analysis)
    total = sum(spent.values())
    held = held_on_gpu(analysis)
    # What is idle while the CPU waits, apart from what the GPU waits itself, and what runs dry behind it.
    meanwhile = intervals.without(intervals.within(waited, [work.window]), held)
    idle_ns = max((intervals.length(intervals.without(meanwhile, busy)) for busy in work.busy.values()), default=0)
    behind_ns = _after_waits_ns(analysis, [(start, end) for start, end, _ in _late_gaps(analysis)])
    free_us = (idle_ns + behind_ns) / 1000
    held_us = intervals.length(intervals.within(waited, held)) / 1000
    longest = max(waits[order[0]], key=lambda i: calls.end[i] - calls.start[i])
    yield ImplicitSync(
        time_us=total,
        share=work.share_during(waited),
        ops={name: len(waits[name]) for name in order},
        syncs=sum(map(len, waits.values())),
        causes_us={cause: ns / 1000 for cause, ns in causes.most_common()},
        source=work.source_of_call(longest),
        events=Events(calls=tuple(i for name in order for i in waits[name])),
        # While the CPU waits for a busy GPU nothing is lost, and nothing can be won of what the GPU waits itself.
        saves_us=min(max(total - held_us, 0.0), free_us),
    )


def _waits_and_operators(analysis: Analysis) -> tuple[dict[int, int], dict[int, int], dict[int, str | None]]:
    """Return the calls that block and those of copies that do, each with its operator, and what the program called."""
    trace = analysis.trace
    work = analysis.gpu_work
    around, copies = trace.nesting.around_each(trace.calls, work.blocking), work.waiting_copies
    return around, copies, _operators(analysis, {*around.values(), *copies.values()})


def waits_in_operators(analysis: Analysis) -> Spans:
    """Return when calls made the CPU wait for which the program did not ask: operators made them."""
    calls = analysis.trace.calls
    around, copies, asked = _waits_and_operators(analysis)
    waited = [i for i, op in (*around.items(), *copies.items()) if asked[op] is not None]
    return intervals.merged((calls.start[i], calls.end[i]) for i in waited)


def held_on_gpu(analysis: Analysis) -> Spans:
    """Return when a device idled although work was launched: who waits for it then waits for what it waits for."""
    return intervals.merged((start, end) for start, end, _ in launched_waits(analysis))


def _causes(analysis: Analysis, ops: Collection[int]) -> dict[int, WaitedFor]:
    """Return by operator in which the CPU waited what it waited for."""
    trace, op_of = analysis.trace, analysis.launching.op_of
    wanted = set(ops)
    directions: dict[int, set[str | None]] = defaultdict(set)
    for i in analysis.gpu_work.copies:
        if op_of[i] in wanted:
            directions[op_of[i]].add(copy_direction(trace.names[trace.gpu.name[i]]))
    return {op: _cause(analysis.launching.chain(op), directions[op]) for op in wanted}


def _cause(chain: Sequence[str], directions: Collection[str | None]) -> WaitedFor:
    """Return what the innermost operator of a chain waits for, which copied in these directions."""
    if not _COUNTING.isdisjoint(chain):
        return "masks"
    if chain[-1:] and chain[-1] in _COPYING:
        to_gpu, to_cpu = "HtoD" in directions, "DtoH" in directions
        if to_gpu == to_cpu:
            return "copies"
        return "to_cpu" if to_cpu else "to_gpu" if _INDEXING.isdisjoint(chain) else "indices"
    return "value" if _INDEXING.isdisjoint(chain) else "masks"


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
    if not analysis.trace.device_kind.has_launches:
        yield from _exposed_on_cpu(analysis, at[EXPOSED])
        return
    work = analysis.gpu_work
    if not work.communication:
        return
    exposed = [_exposed_ns(work, ops) / 1000 for ops in work.by_device.values()]
    lost = max(exposed)
    if work.share_of_window(lost) < at[EXPOSED]:
        return
    trace, gpu = analysis.trace, analysis.trace.gpu
    # Kernels of old versions of NCCL are named alike, whatever they carry out; who asked for it tells.
    asked = {(each.device, each.stream, each.start_ns): each.name for each in analysis.communication.collectives}
    spent: Counter[str] = Counter()
    for i in work.communication:
        decoded = analysis.launching.decoded(i)
        name = asked.get((trace.device_of[gpu.process[i]], trace.streams[gpu.stream[i]], gpu.start[i]))
        spent[name or decoded.collective or decoded.stem] += gpu.end[i] - gpu.start[i]
    yield _exposed(analysis, lost, spent)


def _exposed_on_cpu(analysis: Analysis, least: float) -> Iterator[Finding]:
    """Find time in which a backend on the CPU, such as gloo, carried out a collective and no operator computed."""
    lost = sum(step.exposed_us for step in analysis.communication_of_steps)
    if not lost or analysis.gpu_work.share_of_window(lost) < least:
        return
    ran: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in analysis.collectives:
        if each.start_ns is not None and each.dur_ns is not None:
            ran[each.name or "communication"].append((each.start_ns, each.start_ns + each.dur_ns))
    # A backend carries out several at once.
    spent = Counter({name: intervals.length(intervals.merged(spans)) for name, spans in ran.items()})
    yield _exposed(analysis, lost, spent)


def _exposed(analysis: Analysis, lost_us: float, spent_ns: Counter[str]) -> Finding:
    job = None if analysis.in_job is None else analysis.in_job.job
    return ExposedCommunication(
        time_us=lost_us,
        share=analysis.gpu_work.share_of_window(lost_us),
        on_cpu=not analysis.trace.device_kind.has_launches,
        kind=None if job is None else job.kind,
        wait_share=None if job is None else job.wait_share,
        collectives_us={name: ns / 1000 for name, ns in spent_ns.most_common()},
        wrappers=tuple(name for name, sign in _WRAPPERS if any(map(sign.match, analysis.trace.names))),
        events=Events(gpu_ops=tuple(sorted(analysis.gpu_work.communication))),
        saves_us=lost_us,
    )


def _exposed_ns(work: GpuWork, ops: list[int]) -> int:
    kind = work.trace.gpu.kind
    talking = work.covered(i for i in ops if i in work.communication)
    computing = work.covered(i for i in ops if kind[i] == KERNEL and i not in work.communication)
    return intervals.length(intervals.without(talking, computing))


def _collective_times_known(analysis: Analysis) -> bool:
    """Whether it is known when collectives ran: on a GPU their kernels tell, on the CPU the ranges of their backend."""
    on_gpu = analysis.trace.device_kind.has_launches
    return on_gpu or all(step.why_no_time is None for step in analysis.communication_of_steps)


COLLECTIVE_TIMES = Need(missing=CollectiveTimesUnknown(Gap.NO_RANGE), there=_collective_times_known)

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
        needs=(COLLECTIVE_TIMES,),
        thresholds=(EXPOSED,),
        explains=SLOW_KERNELS,
    ),
)

"""Findings about the bounds of the speed: a GPU that waits for the host, or one that is always busy."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from math import inf
from operator import lt, sub
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.regions import REGION
from pytest_torchprof.analysis.steps import once
from pytest_torchprof.devices.range_names import LOADING_DATA
from pytest_torchprof.findings.catalogue.waiting import (
    ComputeBound,
    LaunchDelay,
    LaunchGaps,
    OverheadBound,
)
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import (
    GPU_WORK,
    HOST_PACE,
    LAUNCHES,
    Finding,
    Rule,
    Threshold,
)
from pytest_torchprof.findings.places import ranges_around, source_of_times
from pytest_torchprof.findings.silence import silent_ns, silent_place, silent_times
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, picked, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_time import Gaps
    from pytest_torchprof.analysis.gpu_work import GpuWork
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


def _late(work: GpuWork) -> float:
    """Return the share of GPU operations that the device had to wait for."""
    # Where the profiler's own time cuts a gap into pieces, it is still one operation that came late.
    gaps = work.gaps_from_start
    return len(set(compress(gaps.before, gaps.late))) / max(len(work.gpu_ops), 1)


def _overhead_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that most operations were launched too late while the GPU was mostly idle and the CPU was launching."""
    work = analysis.gpu_work
    busy_us = sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
    warm = work.window_us - work.set_up.time_us
    # Most recordings end at what costs little to know.
    if not busy_us or work.busy_share * work.window_us > at[BUSY] * warm:
        return
    launching_us = launching_ns(analysis) / 1000
    if launching_us <= busy_us:
        return
    late, gaps = _late(work), _late_gaps(analysis)
    if not gaps or late < at[LATE]:
        return
    lengths = _late_ns(analysis)
    waited = sum(lengths) / 1000 / len(work.by_device)
    longest_ns, before, since, until = _longest_late(analysis)
    set_up_us = late_us(analysis, work.set_up.spans)
    within, within_too = _late_within(analysis)
    yield OverheadBound(
        time_us=waited,
        share=work.share_of_window(waited),
        gaps=len(gaps),
        launch_ratio=launching_us / busy_us,
        launching_us=launching_us,
        late_launches=late,
        busy_us=busy_us,
        longest_us=longest_ns / 1000,
        longest_gap_us=_gap_around_us(work, since, until),
        longest_before=_awaited(analysis, before),
        within=within,
        within_too=within_too,
        source=_late_source(analysis),
        events=Events(idled=(gaps.starts, gaps.ends, gaps.before)),
        set_up_us=set_up_us,
        compiled=2 * late_us(analysis, _compiled_times(analysis.trace)) >= waited,
        stacks=len(analysis.trace.frames) > 0,
        saves_us=max(waited - set_up_us, 0.0),
    )


def _gap_around_us(work: GpuWork, since: int, until: int) -> float:
    """Return for how long a device idled around a wait, which ends when the launch of the next operation returns."""
    around = [idle.around(since, until) for idle in work.idle.values()]
    return max((end - start for start, end in filter(None, around)), default=until - since) / 1000


def launching_ns(analysis: Analysis) -> int:
    """Return how long, inside the steps, the CPU was at work for the GPU, as far as events tell.

    Left out are calls that wait for the GPU, such as copies that return only when they are done; what is done once,
    which belongs to the cold start; loading of data; the profiler's own buffers; and time without any event.
    """
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    steps = intervals.merged((place.start_ns, place.end_ns) for step in analysis.steps for place in step.part.ranges)
    once = intervals.union_of([work.set_up.spans, work.profilers_own, loading_times(trace)])
    waits = intervals.of(calls, [*trace.blocking, *work.waiting_copies])
    # A wait is an event: only the others may lie in time without any.
    silent = intervals.within(silent_times(analysis), steps)
    without_event_ns = silent_ns(analysis, silent) - intervals.length_within(silent, once)
    aside = intervals.within(intervals.union_of([waits, once]) if once else waits, steps)
    return intervals.length(steps) - without_event_ns - intervals.length(aside)


def _compiled_times(trace: Trace) -> Spans:
    """Return when compiled code ran."""
    return intervals.merged((span.start_ns, span.end_ns) for span in trace.spans_in_steps(REGION))


def _compute_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    work = analysis.gpu_work
    # It computes no longer than it is busy, but for what sums are rounded by.
    if work.busy_share < at[COMPUTING] * (1 - 1e-9):
        return
    kind, talking = analysis.trace.gpu.kind, work.communication
    computing = [
        work.covered_us([i for i in ops if kind[i] == KERNEL and i not in talking]) for ops in work.by_device.values()
    ]
    share = work.share_of_window(sum(computing) / len(computing)) if computing else 0.0
    if share >= at[COMPUTING]:
        busy_us = sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
        ratio = _at_work_ns(analysis) / 1000 / busy_us if busy_us else 0.0
        yield ComputeBound(time_us=sum(computing), share=share, launch_ratio=ratio)


def _at_work_ns(analysis: Analysis) -> int:
    """Return for how long, inside the steps, an operator, a call or Python ran that did not wait for the GPU."""
    trace, work, ops, calls = analysis.trace, analysis.gpu_work, analysis.trace.ops, analysis.trace.calls
    steps = intervals.merged((place.start_ns, place.end_ns) for step in analysis.steps for place in step.part.ranges)
    ran = intervals.union(
        [*picked(ops.start, work.outermost), *calls.start, *trace.frames.start],
        [*picked(ops.end, work.outermost), *calls.end, *trace.frames.end],
    )
    at_work = intervals.without(ran, intervals.of(calls, [*trace.blocking, *work.waiting_copies]))
    return intervals.length_within(at_work, steps)


def _launch_gaps(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find idle time of the GPU in which its next operation was not launched yet; of several GPUs the mean.

    The classes are HTA's, by when the launch began. But the part of a gap after the launch's end is not the host's.
    """
    work = analysis.gpu_work
    idle = work.idle_by_cause
    late = _late_gaps(analysis)
    devices = max(len(work.by_device), 1)
    lengths = _late_ns(analysis)
    waited_us = sum(lengths) / 1000 / devices
    if not late or work.share_of_window(waited_us) < at[WAITING]:
        return
    longest_ns, before, since, until = _longest_late(analysis)
    silent_us = late_silent_us(analysis)
    # Where most of it has no event, what is around that tells where to look.
    place = silent_place(analysis) if 2 * silent_us >= waited_us else None
    loading = loading_times(analysis.trace)
    loading_us = late_us(analysis, loading)
    # What is done once is the cold start's, and what is captured again has a finding of its own.
    others = intervals.union_of([work.set_up.spans, work.graph_captures.repeated_calls])
    # Where it is called waiting for data, it is the data's time that the remedy saves.
    saves_us = (
        late_us(analysis, intervals.without(loading, others))
        if 2 * loading_us >= waited_us
        else max(waited_us - late_us(analysis, others), 0.0)
    )
    after_waits_us = after_waits_ns(analysis) / 1000 / devices
    within, within_too = _late_within(analysis)
    yield LaunchGaps(
        time_us=waited_us,
        share=work.share_of_window(waited_us),
        host_wait_us=idle.host_us,
        kernel_wait_us=idle.kernel_us,
        other_us=idle.other_us,
        gaps=len(late),
        longest_us=longest_ns / 1000,
        longest_gap_us=_gap_around_us(work, since, until),
        longest_before=_awaited(analysis, before),
        data_loading_us=loading_us,
        loads_long=work.share_of_window(loading_us) >= at[LOADING],
        after_waits_us=after_waits_us,
        waits_long=work.share_of_window(after_waits_us) >= at[SYNCHRONIZING],
        capturing_us=late_us(analysis, work.graph_captures.new_calls),
        graphs=bool(analysis.graph_launches),
        silent_us=silent_us,
        silent_after=None if place is None else place[0],
        silent_before=None if place is None else place[1],
        stacks=len(analysis.trace.frames) > 0,
        within=within,
        within_too=within_too,
        source=_late_source(analysis),
        events=Events(idled=(late.starts, late.ends, late.before)),
        saves_us=saves_us,
    )


def late_us(analysis: Analysis, spans: Spans) -> float:
    """Return for how long the GPU waited for launches in these spans; of several GPUs the mean."""
    of_devices = _late_gaps_of_devices(analysis) if spans else ()
    inside = sum(intervals.length_within(gaps, spans) for gaps in of_devices)
    return inside / 1000 / max(len(analysis.gpu_work.by_device), 1)


def late_before_us(analysis: Analysis, gpu_ops: Iterable[int]) -> float:
    """Return for how long the GPU waited for the launches of these operations; of several GPUs the mean."""
    late, those = _late_gaps(analysis), set(gpu_ops)
    waited = sum(compress(_late_ns(analysis), map(those.__contains__, late.before)))
    return waited / 1000 / max(len(analysis.gpu_work.by_device), 1)


@once
def late_silent_us(analysis: Analysis) -> float:
    """Return for how long the GPU waited for launches while there was no event; of several GPUs the mean."""
    return late_us(analysis, silent_times(analysis))


@once
def _late_gaps_of_devices(analysis: Analysis) -> Sequence[Spans]:
    late, process = _late_gaps(analysis), analysis.trace.gpu.process
    if len(analysis.gpu_work.by_device) == 1:
        return [late_gaps(analysis)]
    of_device: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end, before in late.triples():
        of_device[process[before]].append((start, end))
    return [*map(intervals.merged, of_device.values())]


@once
def _late_gaps(analysis: Analysis) -> Gaps:
    """Return the gaps that end with an operation launched only in them, each up to the end of the launching call."""
    trace, gaps = analysis.trace, analysis.gpu_work.gaps_from_start
    late = gaps.chosen(gaps.late)
    returned = picked(trace.calls.end, picked(trace.links.call_of, late.before))
    until = [
        end if end < over else over  # noqa: FURB136 - at a third of the cost of min
        for end, over in zip(late.ends, returned, strict=True)
    ]
    return replace(late, ends=until).chosen(list(map(lt, late.starts, until)))


@once
def _late_ns(analysis: Analysis) -> Sequence[int]:
    """Return the length of each of these gaps."""
    return _late_gaps(analysis).lengths()


def _longest_late(analysis: Analysis) -> tuple[int, int, int, int]:
    """Return the longest of these gaps: its length, the operation that ended it, its start and its end."""
    late, lengths = _late_gaps(analysis), _late_ns(analysis)
    longest_ns = max(lengths)
    return max((longest_ns, late.before[i], late.starts[i], late.ends[i]) for i in where(lengths, {longest_ns}))


@once
def late_gaps(analysis: Analysis) -> Spans:
    """Return when a device idled because the next operation was not launched yet."""
    late = _late_gaps(analysis)
    return intervals.union(late.starts, late.ends)


@once
def _late_within(analysis: Analysis) -> tuple[str | None, str | None]:
    """Return the range, or the two, in which a device waited so for most of the time."""
    return ranges_around(analysis.trace, late_gaps(analysis))


@once
def _late_source(analysis: Analysis) -> str | None:
    """Return the user's line, or function, for whose work a device waited so most of the time."""
    waited = zip(_late_gaps(analysis).before, _late_ns(analysis), strict=True)
    return source_of_times(analysis.gpu_work, waited)


def _awaited(analysis: Analysis, gpu_op: int) -> str:
    """Return the name of the operator that launched it, else its own name."""
    launched_by = analysis.launching.op_name(analysis.launching.op_of[gpu_op])
    return launched_by or decode(analysis.trace.names[analysis.trace.gpu.name[gpu_op]]).short


@once
def after_waits_ns(analysis: Analysis) -> int:
    """Return the length of the late gaps that follow a wait of the CPU: it launched the next work only after the wait.

    A call that began in a gap did not make it: the GPU had run dry before.
    """
    waits, late = analysis.gpu_work.waits, _late_gaps(analysis)
    # Each gap with the end of the wait that began last before it; without a wait that end is never.
    last = picked([-inf, *waits.ends], intervals.passed(waits.starts, late.starts))
    waited = [start <= over <= end for start, end, over in zip(late.starts, late.ends, last, strict=True)]
    return sum(compress(_late_ns(analysis), waited))


def loading_times(trace: Trace) -> Spans:
    """Return when data was loaded."""
    spans = [span for prefix in LOADING_DATA for span in trace.spans_in_steps(prefix)]
    return intervals.merged((span.start_ns, span.end_ns) for span in spans)


def _launch_delay(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find a long delay from launches to their kernels although the GPU has nothing else to do."""
    trace, work = analysis.trace, analysis.gpu_work
    call_of, launched = trace.links.call_of, trace.calls.start
    linked = [i for i in work.kernels if call_of[i] >= 0]
    if not linked:
        return
    launched_at = picked(launched, picked(call_of, linked))
    delays_ns = list(map(sub, picked(trace.gpu.start, linked), launched_at))
    first_launched = launched_at.index(min(launched_at))
    first, middle = delays_ns[first_launched] / 1000, sorted(delays_ns)[len(delays_ns) // 2] / 1000
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
)

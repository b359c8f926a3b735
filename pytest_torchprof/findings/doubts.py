"""Findings that put a recording in doubt: missing work, work from before it, a cold start, times that vary."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from pytest_torchprof.analysis.set_up import FIRST_CALL
from pytest_torchprof.analysis.validity import at_stake
from pytest_torchprof.devices.range_names import is_users
from pytest_torchprof.findings.catalogue.recordings import (
    ColdRecording,
    KernelsInFlight,
    KernelsLost,
    KernelTimeVaries,
    NothingLaunched,
    ProfilerGap,
)
from pytest_torchprof.findings.events import Events, events_of_spans, events_of_steps
from pytest_torchprof.findings.finding import GPU_WORK, HOST_PACE, LAUNCHES, SLOW_KERNELS, Finding, Rule, Threshold
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.trace import Trace

    class _Cold(TypedDict, total=False):
        """The facts of a cold start, as far as they are seen; see `ColdRecording`."""

        first_step_us: float
        first_step_took_us: float
        other_steps_us: float
        slowest_other_us: float
        setup_us: float
        setup_idle_us: float
        setup: dict[str, int]
        first_call_us: float
        first_took_us: float
        usual_us: float
        entered: str


def _no_gpu_work(analysis: Analysis) -> Iterator[Finding]:
    """Find steps in which nothing was launched and nothing ran; launches without GPU work are lost kernels."""
    if not analysis.trace.device_kind.has_launches:
        return
    empty = [step for step in analysis.steps if not step.part.gpu_ops and not step.launches]
    if not empty:
        return
    last = analysis.steps[-1]
    ends_early = len(analysis.steps) > 1 and empty == [last] and _has_nothing(analysis.trace, last)
    yield NothingLaunched(
        steps=tuple(step.name for step in empty),
        of_steps=len(analysis.steps),
        ends_early=ends_early,
        calls_recorded=len(analysis.trace.calls) > 0,
        events=events_of_steps(analysis.trace, (step.name for step in empty)),
    )


def _has_nothing(trace: Trace, step: StepProfile) -> bool:
    """Whether no operator began in a step, and no runtime call except those with which a profiler ends."""
    spans = [(place.start_ns, place.end_ns) for place in step.part.ranges]
    begun = [*trace.ops.start, *(trace.calls.start[i] for i in trace.links.launches)]
    return not any(start <= instant < end for start, end in spans for instant in begun)


def _lost_kernels(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    stake = at_stake(trace)
    launches = len(stake.launches)
    lost = len(stake.lost) if len(trace.gpu) else launches
    if lost:
        events = Events(calls=tuple(stake.lost if len(trace.gpu) else stake.launches))
        yield KernelsLost(lost_kernels=lost, launches=launches, events=events)


def _in_flight_kernels(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    if trace.orphans:
        orphans = trace.links.orphans
        yield KernelsInFlight(
            orphans=trace.orphans,
            time_us=analysis.gpu_work.time_us(orphans),
            events=Events(gpu_ops=tuple(sorted(orphans))),
        )


def _profiler_gap(analysis: Analysis) -> Iterator[Finding]:
    """Find time in which a device idled while the profiler asked for or emptied its own buffers."""
    work = analysis.gpu_work
    if not work.profilers_own:
        return
    own = intervals.within(work.profilers_own, work.whole)
    idle = [intervals.without(own, busy) for busy in work.busy.values()]
    lost = max(map(intervals.length, idle), default=0) / 1000
    if lost > 0:
        events = Events(overheads=tuple(work.profilers_own_events))
        yield ProfilerGap(time_us=lost, share=work.share_of_window(lost), events=events)


STEPS = Threshold("steps", 3, "of two steps nobody knows which one is the odd one")
FIRST_STEP = Threshold(
    "first_step", 2.0, "a first step twice as long as the others was not warm; steady ones differ by far less"
)
FIRST_STEP_US = Threshold(
    "first_step_us",
    1000.0,
    "in a warm process the first operators under a profiler take up to 0.6 ms longer than later ones (seen beside an "
    "H200); what is loaded or made once takes milliseconds",
)
FUNCTION_US = Threshold(
    "function_us",
    20.0,
    "where Python functions are recorded, each that is seen for the first time takes some 20 us longer (seen beside an "
    "H200): so much of the first step is the recording's own",
)
GAP_US = Threshold(
    "gap_us", 100.0, "entering a range and calling an operator takes about 5 us, some 10 with Python between them"
)
GAP_TIMES = Threshold("gap_times", 10.0, "where Python does much before the first operator, it does so each time")
SETUP = Threshold(
    "setup",
    0.02,
    "loading code, allocating memory, recording graphs happen once; a fiftieth of the time is no accident",
)

SLOWER = Threshold("times", 1.5, "half as long again as its own median is beyond what clocks do between two steps")
RUN_US = Threshold(
    "run_us", 20.0, "shorter kernels vary by a microsecond or two, which is much of them and little time"
)
EXCESS = Threshold("share", 0.02, "a fiftieth of all kernel time lost to slow runs moves a benchmark")
RUNS = Threshold("runs", 5, "fewer runs of a kernel within one step make no median")
IN_ONE_STEP = 0.8
"""An excess of which one step has four fifths is called that step's, else it is spread over them."""

# Families whose time depends on the data, or on other GPUs, and not on sizes alone.
_ITS_OWN_TIME = frozenset({"index", "sort", "communication", "other", "rng", None})


def _cold_start(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find a long first step, loading of code, allocation of memory, or a range whose first call comes late."""
    seen: _Cold = {**_long_first_step(analysis, at), **_setup(analysis, at), **_late_first_call(analysis, at)}
    if not seen:
        return
    lost_us = max(seen.get("first_step_us", 0.0), seen.get("setup_us", 0.0), seen.get("first_call_us", 0.0))
    work = analysis.gpu_work
    yield ColdRecording(
        time_us=lost_us,
        share=work.share_of_window(min(lost_us, work.window_us)),
        steps=(analysis.steps[0].name,),
        **seen,
        events=_cold_events(analysis, seen),
        # What the GPU computes during the set-up remains to be computed.
        saves_us=max(seen.get("first_step_us", 0.0), seen.get("setup_idle_us", 0.0), seen.get("first_call_us", 0.0)),
    )


def _cold_events(analysis: Analysis, seen: _Cold) -> Events:
    """Return the events of what was done once, of a long first step, and of the range whose first call came late."""
    trace, work = analysis.trace, analysis.gpu_work
    first_step = events_of_steps(trace, [analysis.steps[0].name] if seen.get("first_step_us") else [])
    late = [span for name in (seen.get("entered"),) if name is not None for span in trace.ranges(name)[:1]]
    set_up = seen.get("setup") is not None
    return Events(
        annotations=(*first_step.annotations, *events_of_spans(trace, late).annotations),
        calls=tuple(work.set_up.calls) if set_up else (),
        ops=tuple(work.set_up.ops) if set_up else (),
        overheads=tuple(work.set_up.overheads) if set_up else (),
    )


def _length_us(step: StepProfile) -> float:
    on_cpu = sum(place.end_ns - place.start_ns for place in step.part.ranges) / 1000
    return max(on_cpu, step.gpu_span_us or 0.0)


def _long_first_step(analysis: Analysis, at: Mapping[Threshold, float]) -> _Cold:
    lengths = [_length_us(step) for step in analysis.steps]
    if len(lengths) < max(at[STEPS], 2):
        return {}
    rest = sorted(lengths[1:])
    usual = rest[len(rest) // 2]
    beside_recording = lengths[0] - at[FUNCTION_US] * _functions_in_first_step(analysis)
    if beside_recording <= at[FIRST_STEP] * usual or beside_recording - usual < at[FIRST_STEP_US]:
        return {}
    return {
        "first_step_us": lengths[0] - usual,
        "first_step_took_us": lengths[0],
        "other_steps_us": usual,
        "slowest_other_us": rest[-1],
    }


def _functions_in_first_step(analysis: Analysis) -> int:
    """Return how many functions of Python's are recorded there, each counted once."""
    frames = analysis.trace.frames
    spans = [(place.start_ns, place.end_ns) for place in analysis.steps[0].part.ranges]
    return len({frames.name[i] for i, at in enumerate(frames.start) if any(start <= at < end for start, end in spans)})


def _setup(analysis: Analysis, at: Mapping[Threshold, float]) -> _Cold:
    work = analysis.gpu_work
    if not work.set_up.by_name or work.share_of_window(work.set_up.time_us) < at[SETUP]:
        return {}
    order = sorted(work.set_up.by_name, key=lambda name: -intervals.length(work.set_up.by_name[name]))
    # A first call counts once, however many stretches of it are long.
    first = {f"{FIRST_CALL}{analysis.trace.names[stretch.name]}": set[int]() for stretch in work.set_up.first_calls}
    for stretch in work.set_up.first_calls:
        if analysis.trace.step_at(stretch.start) >= 0:
            first[f"{FIRST_CALL}{analysis.trace.names[stretch.name]}"].add(stretch.member)
    counts = {name: len(first.get(name) or work.set_up.by_name[name]) for name in order}
    return {"setup_us": work.set_up.time_us, "setup_idle_us": work.idle_during_us(work.set_up.spans), "setup": counts}


def _late_first_call(analysis: Analysis, at: Mapping[Threshold, float]) -> _Cold:
    """Return how late the first operator of a user's range began, if it begins at once in the range's other runs."""
    trace = analysis.trace
    notes, least = trace.annotations, max(at[STEPS], 2)
    often = {name for name, count in Counter(notes.name).items() if count >= least and is_users(trace.names[name])}
    entered = sorted((notes.start[i], i) for i, name in enumerate(notes.name) if name in often)
    gaps: dict[str, list[int]] = defaultdict(list)
    for start, i in entered:
        first = trace.nesting.next_start(notes.thread[i], start)
        if first is not None and first < notes.end[i] and trace.step_at(start) >= 0:
            gaps[trace.names[notes.name[i]]].append(first - start)
    for name, waits in gaps.items():
        usual = sorted(waits[1:])[len(waits[1:]) // 2] if len(waits) >= least else None
        if usual is not None and waits[0] > max(at[GAP_US] * 1000, at[GAP_TIMES] * usual):
            return {
                "first_call_us": (waits[0] - usual) / 1000,
                "first_took_us": waits[0] / 1000,
                "usual_us": usual / 1000,
                "entered": name,
            }
    return {}


class _Slow(Struct, frozen=True):
    """A kernel that took longer than other runs of the same kernel, in ns."""

    gpu_op: int
    step: int
    took: int
    usual: int


def _kernel_time_varies(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that take half as long again as the same kernel on the same sizes elsewhere in the recording."""
    work = analysis.gpu_work
    slow = list(_slow_across_steps(analysis, at) if len(analysis.steps) >= at[STEPS] else _slow_within_a_step(work, at))
    excess = sum(run.took - run.usual for run in slow) / 1000
    if not slow or excess < at[EXCESS] * work.kernel_time_us:
        return
    by_step = Counter(dict.fromkeys(range(len(analysis.steps)), 0))
    for run in slow:
        by_step[run.step] += run.took - run.usual
    worst_step, in_it = by_step.most_common(1)[0]
    one_step = len(analysis.steps) > 1 and in_it / 1000 >= IN_ONE_STEP * excess
    worst = max(slow, key=lambda run: run.took - run.usual)
    yield KernelTimeVaries(
        time_us=excess,
        share=work.share_of(run.gpu_op for run in slow) * excess / (sum(run.took for run in slow) / 1000),
        kernels=(analysis.launching.decoded(worst.gpu_op).short,),
        count=len(slow),
        kind="outlier" if one_step else "drift",
        steps=tuple(analysis.steps[step].name for step, spent in by_step.items() if spent > 0),
        worst_step=analysis.steps[worst_step].name,
        of_steps=len(analysis.steps),
        took_us=worst.took / 1000,
        usual_us=worst.usual / 1000,
        events=Events(gpu_ops=tuple(run.gpu_op for run in slow)),
        saves_us=excess,
    )


def _slow_across_steps(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[_Slow]:
    """Compare the n-th run of a kernel on the same operands in each step, where all steps have equally many runs."""
    trace, work = analysis.trace, analysis.gpu_work
    gpu, step_of = trace.gpu, trace.step_of_gpu_op
    start, end = gpu.start, gpu.end
    steps, enough = len(analysis.steps), 1000 * at[RUN_US]
    for group in work.groups:
        if group.time_ns < enough or max([end[i] - start[i] for i in group.members]) < enough:
            continue
        if work.named[group.name].family in _ITS_OWN_TIME or len(group.members) % steps:
            continue
        runs: list[list[int]] = [[] for _ in range(steps)]
        for i in sorted(group.members, key=start.__getitem__):
            runs[step_of[i]].append(i)
        if len({len(of_step) for of_step in runs}) == 1:
            for same in zip(*runs, strict=True):
                yield from _slower(trace, same, at)


def _slow_within_a_step(work: GpuWork, at: Mapping[Threshold, float]) -> Iterator[_Slow]:
    """Compare the runs of a kernel on the same recorded operands; without sizes nobody knows which runs are alike."""
    trace, gpu = work.trace, work.trace.gpu
    least, start, end = at[RUNS], gpu.start, gpu.end
    for group in work.groups:
        if len(group.members) < least or group.time_ns < 1000 * at[RUN_US]:
            continue
        if max([end[i] - start[i] for i in group.members]) < 1000 * at[RUN_US]:
            continue
        if work.named[group.name].family in _ITS_OWN_TIME or not work.shapes(group):
            continue
        alike: dict[tuple[int, float], list[int]] = defaultdict(list)
        for i in group.members:
            alike[trace.step_of_gpu_op[i], gpu.blocks_per_sm[i]].append(i)
        for same in alike.values():
            if len(same) >= least:
                yield from _slower(trace, same, at)


def _slower(trace: Trace, same: Sequence[int], at: Mapping[Threshold, float]) -> Iterator[_Slow]:
    start, end, step_of = trace.gpu.start, trace.gpu.end, trace.step_of_gpu_op
    lengths = sorted(end[i] - start[i] for i in same)
    usual, enough = lengths[len(lengths) // 2], at[RUN_US] * 1000
    if lengths[-1] < enough or lengths[-1] <= at[SLOWER] * usual:
        return
    for i in same:
        if end[i] - start[i] > at[SLOWER] * usual and end[i] - start[i] >= enough:
            yield _Slow(i, step_of[i], end[i] - start[i], usual)


RULES = (
    Rule(
        code="no-gpu-work",
        find=_no_gpu_work,
        needs=(GPU_WORK,),
        explains=("min_kernels", "min_gpu_utilization", "min_sm_efficiency"),
    ),
    Rule(
        code="lost-kernels",
        find=_lost_kernels,
        needs=(GPU_WORK,),
    ),
    Rule(
        code="in-flight-kernels",
        find=_in_flight_kernels,
        needs=(GPU_WORK,),
    ),
    Rule(
        code="profiler-gap",
        find=_profiler_gap,
        needs=(GPU_WORK,),
        explains=("min_gpu_utilization", "min_sm_efficiency"),
    ),
    Rule(
        code="cold-start",
        find=_cold_start,
        needs=(LAUNCHES,),
        thresholds=(STEPS, FIRST_STEP, FIRST_STEP_US, FUNCTION_US, GAP_US, GAP_TIMES, SETUP),
        explains=HOST_PACE,
    ),
    Rule(
        code="kernel-time-varies",
        find=_kernel_time_varies,
        needs=(GPU_WORK,),
        thresholds=(SLOWER, RUN_US, EXCESS, STEPS, RUNS),
        explains=SLOW_KERNELS,
    ),
)

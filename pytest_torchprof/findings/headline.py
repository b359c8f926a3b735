"""The headline of a recording: the one sentence above everything else, as facts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.catalogue.headlines import (
    MUCH_SET_UP,
    CpuComputed,
    GpuBusy,
    GpuCommunicated,
    GpuHeldUp,
    GpuIdled,
    Headline,
    IdleDevice,
    NotMeasuredHeadline,
)
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.exposed import beyond_usual_us
from pytest_torchprof.findings.finding import WORTH_TELLING
from pytest_torchprof.findings.queued import launched_waits, waits_from_before
from pytest_torchprof.findings.recaptured import recaptured_from_us, recaptures, recapturing
from pytest_torchprof.findings.silence import held_up, is_held_up, silent_times
from pytest_torchprof.findings.waiting import late_silent_us, late_us, loading_times
from pytest_torchprof.kernels.names.kernelname import shortened
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.findings.catalogue.headlines import Meanwhile
    from pytest_torchprof.trace.intervals import Spans

MUCH: Final = 0.2
"""The share of the time from which on a GPU that idles or only communicates is what matters."""


_SOME: Final = 0.05
"""The share of the time from which on work outside of all steps, or loading of data, is worth a word."""
_MOST: Final = 0.5
"""Of the idle time, from where on it is told by what the recording begins with; of a gap, by what went on in it."""


def headline_of(analysis: Analysis) -> Headline:
    """Return the headline, as facts."""
    if (reason := analysis.doubt or analysis.kernels_unknown) is not None:
        return NotMeasuredHeadline(reason=portable(reason))
    if not analysis.trace.device_kind.has_launches:
        return _headline_of_cpu(analysis)
    if not analysis.gpu_work.gpu_ops or analysis.gpu_work.window_us <= 0:
        return _headline_of_nothing(analysis)
    work = analysis.gpu_work
    idle, alone = work.idle_share, _communicating_share(analysis)
    if idle >= max(MUCH, alone):
        return _held_up(analysis, idle) or _idled(analysis, idle, alone)
    return _communicated(analysis, alone, idle) if alone >= MUCH else _busy(analysis)


def _held_up(analysis: Analysis, share: float) -> Headline | None:
    """Return the headline of a recording whose idle time went mostly into work from before it; None for any other."""
    held = waits_from_before(analysis)
    work, devices = analysis.gpu_work, len(analysis.gpu_work.by_device)
    held_us = sum(end - start for start, end, _ in held) / 1000 / devices
    if not held or held_us < _MOST * share * work.window_us:
        return None
    start, end, before = max(held, key=lambda wait: wait[1] - wait[0])
    return GpuHeldUp(
        window_us=work.window_us,
        share=work.share_of_window(held_us),
        devices=devices,
        longest_us=(end - start) / 1000,
        name=_name_of(analysis, before),
        source=work.source_of(before),
        held_us=held_us,
        events=Events(idled=((start,), (end,), (before,))),
    )


def _idled(analysis: Analysis, share: float, communicating: float) -> Headline:
    trace, work = analysis.trace, analysis.gpu_work
    set_up_us = work.idle_during_us(work.set_up.spans)
    longest = start, end, device = _longest_gap(work)
    once_us = None
    other = _longest_not_set_up(work) if _is_set_up(work, longest) else longest
    # Where the cold start is not the only cause, another gap is the one that comes again.
    if set_up_us < MUCH_SET_UP * share * work.window_us or _length(other) >= _MOST * _length(longest):
        start, end, device = other
        once_us = None if (start, end) == longest[:2] else _length(longest) / 1000
    ops, starts, ends = work.by_device[device], trace.gpu.start, trace.gpu.end
    following = next((i for i in ops if starts[i] >= end), None)
    beside = following if following is not None else max(ops, key=ends.__getitem__)
    step = trace.step_of_gpu_op[beside]
    begins = following is not None and step >= 0 and beside == _first_of_step(work, ops, step)
    aside = 1 - work.busy_share - share
    waited_us = late_us(analysis, work.whole)
    loading_us, late_once_us = late_us(analysis, loading_times(trace)), late_us(analysis, work.set_up.spans)
    silent_us = late_silent_us(analysis)
    return GpuIdled(
        window_us=work.window_us,
        share=share,
        devices=len(work.by_device),
        longest_us=(end - start) / 1000,
        name=_name_of(analysis, beside),
        source=work.source_of(beside),
        gaps=sum(map(len, work.idle.values())),
        once_us=once_us,
        is_last=following is None,
        begins=begins,
        begins_step=trace.steps[step].name if begins and len(trace.steps) > 1 else None,
        profiler_us=max(aside, 0.0) * work.window_us,
        communicating_share=communicating if communicating >= MUCH else None,
        set_up_us=set_up_us,
        queued_us=sum(end - start for start, end, _ in launched_waits(analysis)) / 1000 / len(work.by_device),
        late_us=waited_us,
        late_once_us=late_once_us if late_once_us >= WORTH_TELLING * work.window_us else None,
        stacks=len(trace.frames) > 0,
        loading_us=loading_us if loading_us >= _SOME * work.window_us else None,
        silent_us=silent_us if silent_us >= _MOST * waited_us > 0 else None,
        recaptured_us=work.idle_during_us(recaptures(analysis)),
        recaptured_in=recapturing(analysis),
        recaptured_from_us=recaptured_from_us(analysis),
        meanwhile=_meanwhile(analysis, (start, end), beside),
        events=Events(idled=((start,), (end,), (beside,))),
    )


def _longest_gap(work: GpuWork) -> tuple[int, int, int]:
    """Return from when to when a device idled longest, and the device; of several the first one's first."""
    of_devices = []
    for device, idle in work.idle.items():
        if lengths := intervals.lengths(idle):
            at = lengths.index(max(lengths))
            of_devices.append((idle.starts[at], idle.ends[at], device))
    return max(of_devices, key=_length)


def _longest_not_set_up(work: GpuWork) -> tuple[int, int, int]:
    """Return the longest gap that went into something else than one-time work; if there is none, the longest gap."""
    gaps = [(start, end, device) for device, idle in work.idle.items() for start, end in idle]
    gaps.sort(key=_length, reverse=True)
    return next((gap for gap in gaps if not _is_set_up(work, gap)), gaps[0])


def _first_of_step(work: GpuWork, ops: list[int], step: int) -> int:
    """Return the first operation of a device, given in the order of their start, that belongs to a step."""
    step_of = work.trace.step_of_gpu_op
    return next(i for i in ops if step_of[i] == step)


def _length(gap: tuple[int, int, int]) -> int:
    return gap[1] - gap[0]


def _is_set_up(work: GpuWork, gap: tuple[int, int, int]) -> bool:
    """Whether most of a gap went into one-time work."""
    return intervals.length_within(intervals.span(*gap[:2]), work.set_up.spans) >= _MOST * _length(gap)


def _meanwhile(analysis: Analysis, gap: tuple[int, int], beside: int) -> Meanwhile | None:
    """Return the activity that filled most of a gap beside an operation; None if no event shows one."""
    spent: dict[Meanwhile, Spans] = {
        "set_up": analysis.gpu_work.set_up.spans,
        "recaptured": recaptures(analysis),
        "loading": loading_times(analysis.trace),
        "queued": intervals.merged((start, end) for start, end, before in launched_waits(analysis) if before == beside),
        "silent": silent_times(analysis),
    }
    half = _MOST * (gap[1] - gap[0])
    return next(
        (what for what, spans in spent.items() if intervals.length_within(intervals.span(*gap), spans) >= half),
        None,
    )


def _communicated(analysis: Analysis, share: float, idle: float) -> Headline:
    work, gpu = analysis.gpu_work, analysis.trace.gpu
    longest = max(work.communication, key=lambda i: (gpu.end[i] - gpu.start[i], -i))
    beyond_us = beyond_usual_us(analysis)
    held_us = work.idle_during_us(held_up(analysis)) if is_held_up(analysis) else 0.0
    return GpuCommunicated(
        window_us=work.window_us,
        share=share,
        devices=len(work.by_device),
        longest_us=work.time_us([longest]),
        name=_collective_and_kernel(analysis, longest),
        held_us=held_us if held_us >= _MOST * idle * work.window_us > 0 else None,
        idle_share=idle if idle >= MUCH else None,
        beyond_usual_us=beyond_us if beyond_us >= _MOST * share * work.window_us else None,
        source=work.source_of(longest),
        events=Events(gpu_ops=(longest,)),
    )


def _collective_and_kernel(analysis: Analysis, gpu_op: int) -> str:
    decoded = analysis.launching.decoded(gpu_op)
    kernel = shortened(decoded.stem)
    return kernel if decoded.collective is None else f"{decoded.collective} ({kernel})"


def _communicating_share(analysis: Analysis) -> float:
    """Return the share of the window in which a device ran collectives and nothing else, the mean over devices."""
    work = analysis.gpu_work
    if not work.communication:
        return 0.0
    alone = [_alone(analysis, ops) for ops in work.by_device.values()]
    return work.share_of_window(sum(map(intervals.length, alone)) / 1000 / len(alone))


def _alone(analysis: Analysis, ops: list[int]) -> Spans:
    work = analysis.gpu_work
    talking, others = ([i for i in ops if (i in work.communication) is asked] for asked in (True, False))
    return intervals.without(work.covered(talking), work.covered(others))


def _busy(analysis: Analysis) -> Headline:
    trace, work = analysis.trace, analysis.gpu_work
    spent: Counter[str] = Counter()
    for group in work.groups:
        spent[work.decoded(group).short] += group.time_ns
    (name, ns), *_ = spent.most_common(1) or [("", 0)]
    of_name = [i for group in work.groups if work.decoded(group).short == name for i in group.members]
    longest = max(of_name or work.gpu_ops, key=lambda i: trace.gpu.end[i] - trace.gpu.start[i])
    earlier = _working_on_others_share(analysis)
    return GpuBusy(
        window_us=work.window_us,
        share=work.busy_share,
        devices=len(work.by_device),
        longest_us=work.time_us([longest]),
        name=name or trace.names[trace.gpu.name[longest]],
        name_share=ns / spent.total() if spent else 0.0,
        op=analysis.launching.op_name(analysis.launching.op_of[longest]),
        in_graph=analysis.launching.is_in_graph(longest),
        earlier_share=earlier if earlier >= _SOME else None,
        source=work.source_of(longest),
        events=Events(gpu_ops=(longest,)),
    )


def _working_on_others_share(analysis: Analysis) -> float:
    """Return the share of the window in which a device only ran launches from before it, the mean over devices."""
    work, trace = analysis.gpu_work, analysis.trace
    call_of, step_of, begun = trace.links.call_of, trace.step_of_gpu_op, trace.gpu.start
    first = min((begun[i] for i in work.gpu_ops), default=0)
    # What ran ahead of all that the steps launched was launched before, also where its launch is not recorded.
    earlier = {
        i
        for ops in work.by_device.values()
        for i in ops
        if step_of[i] < 0
        and (begun[i] < first if call_of[i] < 0 else trace.calls.start[call_of[i]] < trace.steps[0].start_ns)
    }
    others = [
        intervals.without(work.busy[device], work.covered([i for i in ops if i not in earlier]))
        for device, ops in work.by_device.items()
    ]
    return work.share_of_window(sum(map(intervals.length, others)) / 1000 / len(others)) if others else 0.0


def _name_of(analysis: Analysis, gpu_op: int) -> str:
    """Return the name of the operator that launched it, else its own name."""
    trace, launching = analysis.trace, analysis.launching
    launched_by = launching.op_name(launching.op_of[gpu_op])
    if launched_by is not None:
        return launched_by
    return launching.decoded(gpu_op).short if trace.gpu.kind[gpu_op] == KERNEL else trace.names[trace.gpu.name[gpu_op]]


def _headline_of_nothing(analysis: Analysis) -> Headline:
    trace, work, ops = analysis.trace, analysis.gpu_work, analysis.trace.ops
    roots = [i for i in work.outermost if trace.step_at(ops.start[i]) >= 0]
    of_gpu = trace.device_kind.has_launches
    if not roots:
        return IdleDevice(window_us=work.window_us, of_gpu=of_gpu)
    longest = max(roots, key=lambda i: ops.end[i] - ops.start[i])
    return IdleDevice(
        window_us=work.window_us,
        of_gpu=of_gpu,
        longest_us=(ops.end[longest] - ops.start[longest]) / 1000,
        name=trace.names[ops.name[longest]],
        events=Events(ops=(longest,)),
    )


def _headline_of_cpu(analysis: Analysis) -> Headline:
    trace, ops, launching = analysis.trace, analysis.trace.ops, analysis.launching
    computing = [op for part in launching.parts for op in part.operators]
    window = intervals.span(trace.steps[0].start_ns, max(step.end_ns for step in trace.steps))
    window_us = intervals.length(window) / 1000
    spent: Counter[str] = Counter()
    for op in computing:
        spent[trace.names[ops.name[op]]] += ops.end[op] - ops.start[op]
    (name, ns), *_ = spent.most_common(1) or [("", 0)]
    if not ns or window_us <= 0:
        return _headline_of_nothing(analysis)
    longest = max(
        (op for op in computing if trace.names[ops.name[op]] == name), key=lambda op: ops.end[op] - ops.start[op]
    )
    covered = intervals.within(intervals.of(ops, computing), window)
    origin = launching.origins.of_operator(longest)
    communicating = sum(step.exposed_us or 0.0 for step in analysis.communication_of_steps) / window_us
    return CpuComputed(
        window_us=window_us,
        share=intervals.length(covered) / 1000 / window_us,
        longest_us=(ops.end[longest] - ops.start[longest]) / 1000,
        name=name,
        name_share=ns / spent.total(),
        communicating_share=communicating if communicating >= MUCH else None,
        source=origin.source if origin else None,
        events=Events(ops=(longest,)),
    )

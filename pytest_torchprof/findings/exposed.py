"""Findings about exposed communication: collectives during which a device computes nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.collective_calls import BACKENDS_ON_CPU
from pytest_torchprof.analysis.steps import once
from pytest_torchprof.findings.catalogue.ranks import ExposedCommunication
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import SLOW_KERNELS, Finding, Need, Rule, Threshold
from pytest_torchprof.findings.silence import is_held_up
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.reasons.findings import CollectiveTimesUnknown
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.gpu_work import GpuWork


EXPOSED = Threshold(
    "share",
    0.05,
    "from a twentieth of the time on, hiding communication behind computation pays; TensorBoard's plugin warns at 10 %",
)

_ENOUGH: Final = 4
"""Collectives alike, of which a quarter says how long it takes to send."""
_WRAPPERS: Final[tuple[tuple[Literal["ddp", "fsdp"], str], ...]] = (
    ("ddp", r"DistributedDataParallel\.forward|torch\.distributed\.ddp\."),
    ("fsdp", r"FullyShardedDataParallel\.|FSDP::"),
)


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
    yield _exposed(analysis, lost, spent, Events(gpu_ops=tuple(sorted(work.communication))))


def _exposed_on_cpu(analysis: Analysis, least: float) -> Iterator[Finding]:
    """Find time in which a backend on the CPU, such as gloo, carried out a collective and no operator computed."""
    lost = sum(step.exposed_us for step in analysis.communication_of_steps)
    if not lost or analysis.gpu_work.share_of_window(lost) < least:
        return
    ran: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in analysis.collectives:
        if each.start_ns is not None and each.dur_ns is not None:
            ran[each.name or "communication"].append((each.start_ns, each.start_ns + each.dur_ns))
    # A backend carries out several collectives at once.
    spent = Counter({name: intervals.length(intervals.merged(spans)) for name, spans in ran.items()})
    yield _exposed(analysis, lost, spent, _ranges_of_backends(analysis))


def _ranges_of_backends(analysis: Analysis) -> Events:
    """Return the ranges in which backends on the CPU carried out the collectives of the steps."""
    trace, notes = analysis.trace, analysis.trace.annotations
    meant = {i for i in set(notes.name) if trace.names[i].partition(":")[0] in BACKENDS_ON_CPU}
    # As this rank recorded them: those of a job are on a clock that all of its ranks share.
    ran = {
        (each.start_ns, each.start_ns + (each.dur_ns or 0))
        for each in analysis.communication.collectives
        if each.start_ns is not None
    }
    return Events(annotations=tuple(i for i in where(notes.name, meant) if (notes.start[i], notes.end[i]) in ran))


def _exposed(analysis: Analysis, lost_us: float, spent_ns: Counter[str], events: Events) -> Finding:
    job = None if analysis.in_job is None else analysis.in_job.job
    beyond_us, uncompared_us = beyond_usual_us(analysis), _uncompared_us(analysis)
    computing_us = _computing_us(analysis)
    return ExposedCommunication(
        time_us=lost_us,
        share=analysis.gpu_work.share_of_window(lost_us),
        on_cpu=not analysis.trace.device_kind.has_launches,
        kind=None if job is None else job.kind,
        wait_share=None if job is None else job.wait_share,
        beyond_usual_us=beyond_us,
        computing_us=computing_us,
        cpu_held_up=is_held_up(analysis),
        collectives_us={name: ns / 1000 for name, ns in spent_ns.most_common()},
        wrappers=tuple(name for name, sign in _WRAPPERS if any(re.match(sign, each) for each in analysis.trace.names)),
        events=events,
        # What overlaps needs something to compute, and what waits, or may wait, another rank that comes earlier.
        saves_us=min(lost_us, beyond_us + uncompared_us + computing_us),
    )


def beyond_usual_us(analysis: Analysis) -> float:
    """Return by how much collectives took longer than the fastest quarter of those of their kind, size and group."""
    return _beyond_usual_ns(analysis)[0] / 1000


def _uncompared_us(analysis: Analysis) -> float:
    return _beyond_usual_ns(analysis)[1] / 1000


@once
def _beyond_usual_ns(analysis: Analysis) -> tuple[int, int]:
    """Return by how much collectives took longer than the lower quartile of those of the same kind, size and group.

    The second value is for how long other collectives ran exposed: those with too few of their kind to compare.

    To send the same takes the same time, and the fastest quarter hardly waited: what takes longer, while nothing is
    computed that slows it, has waited for another rank. Of several devices it is the one that waited for longest.
    """
    alike: dict[tuple[object, ...], list[Collective]] = defaultdict(list)
    beyond, uncompared = Counter[int | None](), Counter[int | None]()
    for each in analysis.communication.collectives:
        if each.dur_ns is not None and each.sent.bytes_in is not None:
            alike[each.name, each.sent, each.group.name, each.group.size, each.device].append(each)
        else:
            uncompared[each.device] += (each.dur_ns or 0) - (each.hidden_ns or 0)
    for those in alike.values():
        times = [each.dur_ns or 0 for each in those]
        if len(times) >= _ENOUGH:
            usual = sorted(times)[(len(times) - 1) // 4]
            for each, ns in zip(those, times, strict=True):
                beyond[each.device] += max(min(ns - usual, ns - (each.hidden_ns or 0)), 0)
        else:
            for each in those:
                uncompared[each.device] += (each.dur_ns or 0) - (each.hidden_ns or 0)
    return max(beyond.values(), default=0), max(uncompared.values(), default=0)


def _computing_us(analysis: Analysis) -> float:
    """Return for how long the device that computed longest computed; without a GPU, for how long operators ran."""
    work, kind = analysis.gpu_work, analysis.trace.gpu.kind
    if not analysis.trace.device_kind.has_launches:
        return sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
    computing = (
        work.covered([i for i in ops if kind[i] == KERNEL and i not in work.communication])
        for ops in work.by_device.values()
    )
    return max(map(intervals.length, computing), default=0) / 1000


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
        code="exposed-communication",
        find=_exposed_communication,
        needs=(COLLECTIVE_TIMES,),
        thresholds=(EXPOSED,),
        explains=SLOW_KERNELS,
    ),
)

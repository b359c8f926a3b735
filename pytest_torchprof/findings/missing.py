"""Findings about GPU work that is missing from the recording, does not belong to it, or was made by the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.analysis.validity import at_stake
from pytest_torchprof.findings.finding import Finding, Rule
from pytest_torchprof.text import counted, show_us
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.analysis.analysis import Analysis


def _no_gpu_work(analysis: Analysis) -> Iterator[Finding]:
    """Find steps in which nothing was launched and nothing ran; launches without GPU work are lost kernels."""
    if not analysis.trace.device_kind.has_launches:
        return
    empty = [step for step in analysis.steps if not step.part.gpu_ops and not step.launches]
    if not empty:
        return
    everywhere = len(empty) == len(analysis.steps)
    where = "" if everywhere else f" in {len(empty)} of {counted(len(analysis.steps), 'step')}"
    yield Finding(
        message=f"nothing was launched{where}: the code ran on another device, or a compiler removed results that "
        "nobody uses",
        evidence={"steps": [step.name for step in empty]},
        severity="recording",
    )


def _lost_kernels(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    stake = at_stake(trace)
    launches = len(stake.launches)
    lost = len(stake.lost) if len(trace.gpu) else launches
    if lost:
        all_of_them = "the GPU side of the recording is missing" if lost == launches else "the profiler lost events"
        yield Finding(
            message=f"{lost} of {counted(launches, 'launch')} {'has' if lost == 1 else 'have'} no kernel in the "
            f"recording: {all_of_them}",
            evidence={"lost_kernels": lost, "launches": launches},
            severity="recording",
        )


def _in_flight_kernels(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    if trace.orphans:
        spent = analysis.gpu_work.time_us(trace.links.orphans)
        yield Finding(
            message=f"{counted(trace.orphans, 'GPU operation')} ({show_us(spent)}) launched before the "
            "recording began; they belong to no step",
            evidence={"orphans": trace.orphans, "time_us": spent},
            severity="information",
        )


def _profiler_gap(analysis: Analysis) -> Iterator[Finding]:
    """Find time in which a device idled while the profiler asked for or emptied its own buffers."""
    work = analysis.gpu_work
    if not work.profilers_own:
        return
    own = intervals.within(work.profilers_own, [work.window])
    idle = [intervals.without(own, busy) for busy in work.busy.values()]
    lost = max(map(intervals.length, idle), default=0) / 1000
    if lost > 0:
        yield Finding(
            message=f"for {show_us(lost)} the GPU idled while the profiler handled its own buffers; this is "
            "left out of idle times; without the profiler it does not occur",
            evidence={"time_us": lost, "share": work.share(lost)},
            severity="information",
        )


RULES = (
    Rule(
        code="no-gpu-work",
        title="No GPU work",
        find=_no_gpu_work,
        remedy="check that model and inputs are on the GPU, and return what the code computes",
        explains=("min_kernels", "min_gpu_utilization", "min_sm_efficiency"),
    ),
    Rule(
        code="lost-kernels",
        title="Lost kernels",
        find=_lost_kernels,
        remedy="synchronize every device before the profiler stops; look for a second profiler (nsys, ncu, DCGM)",
    ),
    Rule(
        code="in-flight-kernels",
        title="Kernels in flight",
        find=_in_flight_kernels,
        remedy="synchronize every device before the profiler starts",
    ),
    Rule(
        code="profiler-gap",
        title="The profiler's own gap",
        find=_profiler_gap,
        remedy="none needed; record more steps to see that it does not come back in each",
        explains=("min_gpu_utilization", "min_sm_efficiency"),
    ),
)

"""Findings about a GPU that idles although it has work: what was launched waits for something other than the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.analysis.gpu_time import KERNEL_WAIT_NS
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.findings.catalogue.waiting import LaunchedWorkWaits
from pytest_torchprof.findings.finding import LAUNCHES, SLOW_KERNELS, Finding, Rule, Threshold
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis

WAITING = Threshold("share", 0.1, "a tenth of the time, as for the gaps that are the host's")


def _queued_work_waits(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find idle time before operations whose launch had returned; of several GPUs the mean."""
    work, trace = analysis.gpu_work, analysis.trace
    waits = sorted(_waits(analysis), reverse=True)
    waited_us = sum(length for length, _ in waits) / 1000 / max(len(work.by_device), 1)
    if not waits or work.share_of_window(waited_us) < at[WAITING]:
        return
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    of_graphs = {before for _, before in waits if trace.calls.name[trace.links.call_of[before]] in graphs}
    longest_ns, before = waits[0]
    name = trace.names[trace.gpu.name[before]]
    yield LaunchedWorkWaits(
        time_us=waited_us,
        share=work.share_of_window(waited_us),
        gaps=len(waits),
        gaps_in_graphs=len(of_graphs),
        longest_us=longest_ns / 1000,
        longest_before=decode(name).short if trace.gpu.kind[before] == KERNEL else name,
        longest_in_graph=before in of_graphs,
        streams=max(len({trace.gpu.stream[i] for i in ops}) for ops in work.by_device.values()),
        communicates=bool(work.communication),
        source=work.source_of(before),
        saves_us=waited_us,
    )


def _waits(analysis: Analysis) -> Iterator[tuple[int, int]]:
    """Yield how long a device idled after an operation's launch had returned, and the operation."""
    work, trace = analysis.gpu_work, analysis.trace
    call_of, returned, started = trace.links.call_of, trace.calls.end, trace.gpu.start
    gaps = [(start, end, before) for start, end, _, before in work.gaps]
    for ops in work.by_device.values():
        # Before the first operation there is no gap between two.
        alone = intervals.without([(work.window[0], max(started[ops[0]], work.window[0]))], work.profilers_own)
        gaps += [(start, end, ops[0]) for start, end in alone if trace.step_of_gpu_op[ops[0]] >= 0]
    for start, end, before in gaps:
        call = call_of[before]
        waited = end - max(start, returned[call]) if call >= 0 else 0
        if waited >= KERNEL_WAIT_NS:
            yield waited, before


RULES = (
    Rule(
        code="queued-work-waits",
        find=_queued_work_waits,
        needs=(LAUNCHES,),
        thresholds=(WAITING,),
        explains=(*SLOW_KERNELS, "min_gpu_utilization", "min_sm_efficiency"),
    ),
)

"""Findings about a GPU that idles although work is queued: launched work waits for something other than the host."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.cut_replays import counts_are_known
from pytest_torchprof.analysis.gpu_time import KERNEL_WAIT_NS
from pytest_torchprof.analysis.steps import once
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.findings.catalogue.queued import LaunchedWorkWaits
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import LAUNCHES, SLOW_KERNELS, Rule, Threshold
from pytest_torchprof.findings.places import range_around, source_of_times
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.reasons.lost_work import GraphsSeemCut
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace

WAITING = Threshold("share", 0.1, "a tenth of the time, as for the gaps that are the host's")


def _queued_work_waits(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[LaunchedWorkWaits]:
    """Find idle time before operations whose launch had returned; of several GPUs the mean."""
    work, trace = analysis.gpu_work, analysis.trace
    waits = sorted(((end - start, before, end) for start, end, before in launched_waits(analysis)), reverse=True)
    devices = max(len(work.by_device), 1)
    waited_us = sum(length for length, *_ in waits) / 1000 / devices
    if not waits or work.share_of_window(waited_us) < at[WAITING]:
        return
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    of_graphs = {before for _, before, _ in waits if trace.calls.name[trace.links.call_of[before]] in graphs}
    starting = of_graphs & _first_of_their_calls(trace)
    graph_waits = [(length, i) for length, i, _ in waits if i in starting]
    from_before = {before: end - start for start, end, before in waits_from_before(analysis)}
    from_before_us = sum(from_before.values()) / 1000 / devices
    known_us = sum(length for length, i, _ in waits if i not in of_graphs and i not in from_before) / 1000
    longest_ns, before, until = waits[0]
    cpu_waited_us, waited_in, within = _cpu_meanwhile(analysis)
    name = trace.names[trace.gpu.name[before]]
    yield LaunchedWorkWaits(
        time_us=waited_us,
        share=work.share_of_window(waited_us),
        gaps=len(waits),
        gaps_in_graphs=len(of_graphs),
        longest_us=longest_ns / 1000,
        longest_before=decode(name).short if trace.gpu.kind[before] == KERNEL else name,
        longest_in_graph=before in of_graphs,
        in_graphs_us=sum([length for length, i, _ in waits if i in of_graphs]) / 1000 / devices,
        graph_starts_us=sum([length for length, _ in graph_waits]) / 1000 / devices,
        graphs_again_us=sum([length for length, i in graph_waits if trace.step_of_gpu_op[i] > 0]) / 1000 / devices,
        cpu_waited_us=cpu_waited_us,
        cpu_waited_in=waited_in,
        cpu_waited_within=within,
        after_other_gpu=any(
            until - KERNEL_WAIT_NS < trace.gpu.end[i] <= until
            for ops in work.by_device.values()
            if before not in set(ops)
            for i in ops
        ),
        begins_with_it=trace.metadata is None and before in _first_of_their_streams(work),
        source=source_of_times(work, ((before, length) for length, before, _ in waits)),
        events=Events(
            idled=([end - length for length, _, end in waits], [end for *_, end in waits], [i for _, i, _ in waits])
        ),
        may_lack_work=not counts_are_known(trace),
        from_before_us=from_before_us,
        # Operations that wait in a graph, or for work that is not recorded, were launched in time.
        saves_us=known_us / devices,
    )


@once
def graphs_seem_cut(analysis: Analysis) -> Reason | None:
    """Return the reason to think that kernels of CUDA graphs are missing in the recording; None if there is none."""
    if not analysis.trace.call_names(frozenset({CallKind.GRAPH_LAUNCH})):
        return None
    waits = next(_queued_work_waits(analysis, {WAITING: WAITING.value}), None)
    if waits is None or waits.is_from_before or not waits.lacks_work:
        return None
    return GraphsSeemCut(waits.inside_graphs_us)


def _cpu_meanwhile(analysis: Analysis) -> tuple[float, str | None, str | None]:
    """Return for how long the CPU waited for a GPU meanwhile, and the operator and the range with most of that wait.

    The operator is the one that the program called; without an operator it is the call that waited.
    """
    trace, work, launching = analysis.trace, analysis.gpu_work, analysis.launching
    idle = intervals.merged((start, end) for start, end, _ in launched_waits(analysis))
    operator_of = {**{i: trace.around_calls[i] for i in work.blocking}, **work.waiting_copies}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, op in operator_of.items():
        name = launching.called_operator(op) or trace.names[trace.calls.name[i]]
        spans[name].append((trace.calls.start[i], trace.calls.end[i]))
    waited = {name: intervals.within(intervals.merged(those), idle) for name, those in spans.items()}
    together = intervals.union_of(waited.values())
    if not together:
        return 0.0, None, None
    longest = max(waited, key=lambda name: intervals.length(waited[name]))
    return intervals.length(together) / 1000, longest, range_around(trace, waited[longest])


def _first_of_their_calls(trace: Trace) -> set[int]:
    """Return the operation of each call that started first."""
    first: dict[int, int] = {}
    for i in trace.gpu_order:
        first.setdefault(trace.links.call_of[i], i)
    return set(first.values())


def _first_of_their_streams(work: GpuWork) -> set[int]:
    """Return the operation of each device's streams that started first."""
    stream = work.trace.gpu.stream
    first: dict[tuple[int, int], int] = {}
    for device, ops in work.by_device.items():
        for i in ops:
            first.setdefault((device, stream[i]), i)
    return set(first.values())


def waits_from_before(analysis: Analysis) -> list[tuple[int, int, int]]:
    """Return the waits of the first operation of a stream, in a recording that may begin anywhere.

    The work it waits for was launched before the recording and has no event: the device may well have been busy.
    """
    if analysis.trace.metadata is not None or not launched_waits(analysis):
        return []
    trace, first = analysis.trace, _first_of_their_streams(analysis.gpu_work)
    # After a wait for the whole device nothing is left of what came before.
    synchronized = {i for i, name in enumerate(trace.names) if "DeviceSynchronize" in name}
    ends = (trace.calls.end[i] for i in where(trace.calls.name, synchronized))
    emptied = min(ends, default=inf)
    return [
        wait
        for wait in launched_waits(analysis)
        if wait[2] in first and trace.calls.start[trace.links.call_of[wait[2]]] < emptied
    ]


@once
def launched_waits(analysis: Analysis) -> Sequence[tuple[int, int, int]]:
    """Return when a device idled after an operation's launch had returned (start, end), and the operation."""
    work, trace = analysis.gpu_work, analysis.trace
    call_of, returned = trace.links.call_of, trace.calls.end
    gaps = work.gaps_from_start
    # Of tens of thousands a few are long enough, and an operation that was launched late has hardly waited.
    return [
        (max(start, returned[call]), end, before)
        for start, end, before in gaps.triples()
        if end - start >= KERNEL_WAIT_NS and (call := call_of[before]) >= 0 and end - returned[call] >= KERNEL_WAIT_NS
    ]


RULES = (
    Rule(
        code="queued-work-waits",
        find=_queued_work_waits,
        needs=(LAUNCHES,),
        thresholds=(WAITING,),
        explains=(*SLOW_KERNELS, "min_gpu_utilization", "min_sm_efficiency"),
    ),
)

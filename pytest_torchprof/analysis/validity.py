"""Whether a recording can be believed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import compress, count, pairwise, repeat
from math import inf
from operator import itemgetter, le, sub
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.compilation import FX_GRAPH, fx_graphs
from pytest_torchprof.analysis.cut_replays import cut_replays
from pytest_torchprof.analysis.graph_numbers import wrong_numbers
from pytest_torchprof.analysis.other_threads import launched_elsewhere
from pytest_torchprof.analysis.regions import PACKAGES, REGION, regions_of
from pytest_torchprof.analysis.user_ranges import instead_of
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import CallKind, OperatorWork
from pytest_torchprof.devices.range_names import step_name
from pytest_torchprof.reasons.decoding import from_plain
from pytest_torchprof.reasons.lost_work import (
    GraphWithoutKernels,
    LaunchesUntied,
    LossNoted,
    LostGraphKernels,
    LostKernels,
    LostLaunches,
    PackageMayHaveRun,
    PackageRan,
    RanBeforeLaunch,
    RanOnOtherThread,
    UnplacedLaunches,
    UntimedKernels,
)
from pytest_torchprof.reasons.own_steps import (
    EarlierWork,
    LostSteps,
    NoGpuOperations,
    NoSentinel,
    OtherSteps,
    SawNothingOfGpu,
    SentinelLaunchedNothing,
    StepsOverlap,
    StepsOverlapOnThreads,
)
from pytest_torchprof.reasons.recordings import (
    CompiledBefore,
    GpuNotRecorded,
    MadeWithoutGpu,
    NoLaunches,
    NoOperator,
    UnknownWork,
)
from pytest_torchprof.text.expressions import Expression
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.columns import ABSENT, picked, where
from pytest_torchprof.trace.gpus import listed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.analysis.cut_replays import Cut
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Span, Trace
    from pytest_torchprof.trace.compile_evidence import CompileEvidence
    from pytest_torchprof.trace.metadata import Metadata

_CUT_NS = 2000
_APART_NS = 30_000
"""The profiler puts the GPU's times on the CPU's clock to a few microseconds; beyond that the two disagree."""
_LOGS = ("ERROR", "WARNING", "INFO")
# libkineto/src: CuptiActivityApi.cpp, RoctracerLogger.cpp, CuptiActivityProfiler.cpp ("Record counts").
_LOSS = Expression(
    r"Dropped [1-9]\d* activity records|Exceeded max GPU buffer count.*|CUPTI stopped early\? = 1",
    words="Dropped Exceeded stopped",
)


def doubt_of(trace: Trace) -> Reason | None:
    """Return why the recording's numbers cannot be believed; None if they can."""
    return (
        _why_no_ranges(trace)
        or _reported_loss(trace)
        or _unknown_work(trace)
        or wrong_numbers(trace)
        or _why_not(trace)
    )


def _unknown_work(trace: Trace) -> Reason | None:
    """Return the reason if work of an unknown kind ran on the GPU; else None."""
    if not trace.unknown_work or not trace.device_kind.has_launches:
        return None
    category, count = max(trace.unknown_work.items(), key=itemgetter(1))
    return UnknownWork(count, category)


def _why_no_ranges(trace: Trace) -> Reason | None:
    """Return the reason if the range whose occurrences are to be the steps is missing; else None."""
    name = None if trace.adoption is None else trace.adoption.step
    if name is None or trace.steps is not trace.profiler_steps:
        return None
    from pytest_torchprof.reasons.names_asked import NoSuchRange  # noqa: PLC0415 - for what is refused alone

    return NoSuchRange(name, *instead_of(trace, name))


def _why_not(trace: Trace) -> Reason | None:
    if trace.metadata is not None:
        return _own(trace, trace.metadata)
    if not trace.device_kind.has_launches:
        return _overlapping_steps(trace) or (None if len(trace.ops) else NoOperator())
    if not len(trace.gpu) and not trace.links.launches:
        listed = next(iter(listed_names(trace.header)), None)
        return MadeWithoutGpu() if listed is None else GpuNotRecorded(listed)
    return _overlapping_steps(trace) or _gpu_side(trace, at_stake(trace)) or _stray(trace)


def _stray(trace: Trace) -> Reason | None:
    """Return that operations ran in the steps whose launch was lost; what was queued before the window has lower ids.

    CUPTI numbers all calls in their order. Where the first calls of the window were lost, only what the CPU did tells.
    """
    gpu = trace.gpu
    if trace.links.orphans and not trace.links.launches:
        return NoLaunches(len(trace.links.orphans))
    orphans = [i for i in trace.links.orphans if trace.step_at(gpu.start[i]) >= 0]
    if not orphans:
        return None
    first = min((correlation for correlation in trace.calls.correlation if correlation > 0), default=0)
    if count := sum(gpu.correlation[i] >= first for i in orphans):
        return LostLaunches(count)
    idle = _idle_at_the_head(trace)
    return LostLaunches(len(orphans), idle) if idle else None


def _idle_at_the_head(trace: Trace) -> str | None:
    """Return an operator that ran before the first launch, or "step", if all others of its kind launch something."""
    calls, ops, launches = trace.calls, trace.ops, trace.links.launches
    if not launches:
        return None
    first = min(calls.start[i] for i in launches)
    launching = trace.nesting.around_all(map(trace.around_calls.__getitem__, launches))
    early = _silent(trace, compress(count(), map(le, ops.end, repeat(first))), launching)
    suspects = {ops.name[i] for i in early} & {ops.name[i] for i in launching if ops.thread[i] != trace.captured.lane}
    idle = _silent(trace, where(ops.name, suspects), launching) if suspects else []
    if suspects := suspects - {ops.name[i] for i in idle if ops.end[i] > first}:
        return trace.names[min(suspects)]
    ended = sum(step.end_ns <= first for step in trace.steps)
    launched_in = {trace.step_of_call[i] for i in launches}
    return "step" if ended and launched_in.issuperset(range(ended, len(trace.steps))) else None


def _silent(trace: Trace, ops: Iterable[int], launching: AbstractSet[int]) -> list[int]:
    """Return those of the operators that launched nothing, without those of which a graph was captured."""
    lane, thread = trace.captured.lane, trace.ops.thread
    return [i for i in ops if i not in launching and thread[i] != lane]


class Stake(Struct, frozen=True):
    """The events that must be complete for the numbers to be right."""

    launches: Sequence[int]
    lost: Sequence[int]
    """The launches among these whose kernel is missing."""
    orphans: Sequence[int]


def at_stake(trace: Trace) -> Stake:
    """Return the launches and orphans on which the numbers rest; of a recording that is not ours all.

    Ours begins with the sentinel, where the profiler may lose what it likes, and which waits for all that was queued
    before. It ends with a wait too. What other threads launch around these two falls into no step. The sentinel's wait
    may miss the work of a call that is still under way: it then begins while the sentinel waits, or later. What had
    begun before the sentinel and outlasts it was not waited for. Orphans have lower correlation ids than the sentinel's
    launches, so none of them is a lost launch of a step.
    """
    links, sentinel = trace.links, _sentinel(trace)
    if trace.metadata is None or sentinel is None:
        return Stake(links.launches, links.lost, sorted(links.orphans))
    begin, end, launched, gpu = sentinel.end_ns, trace.steps[-1].end_ns, trace.calls.start, trace.gpu
    return Stake(
        [i for i in links.launches if begin <= launched[i] < end],
        [i for i in links.lost if begin <= launched[i] < end],
        sorted(i for i in links.orphans if gpu.start[i] < sentinel.start_ns and begin < gpu.end[i]),
    )


def _overlapping_steps(trace: Trace) -> Reason | None:
    """Return the reason if steps overlap, which one profiler's do not: launches then belong to no single step."""
    for earlier, later in pairwise(trace.steps):
        # Files of torch before 2.4 cut times to whole microseconds.
        if later.start_ns + _CUT_NS < earlier.end_ns:
            if earlier.tid != later.tid and trace.steps is not trace.profiler_steps:
                return StepsOverlapOnThreads(str(earlier.name), str(later.name))
            return StepsOverlap(str(earlier.name), str(later.name))
    return None


def _own(trace: Trace, metadata: Metadata) -> Reason | None:
    """Return the flaw of a recording of ours, which has the sentinel's range first, and every step and no more."""
    if metadata.problems:
        return from_plain(metadata.problems[0])
    sentinel = _sentinel(trace)
    if not sentinel:
        return NoSentinel(SENTINEL)
    reason = _own_steps(trace, metadata.steps)
    return _own_gpu_side(trace, sentinel) if reason is None and trace.device_kind.has_launches else reason


def _own_steps(trace: Trace, promised: int) -> Reason | None:
    names = [step.name for step in trace.profiler_steps if step.name is not None]
    if len(names) < promised:
        return LostSteps(len(names), promised)
    if names != [*map(step_name, range(promised))]:
        return OtherSteps(len(names), promised)
    return None


def _own_gpu_side(trace: Trace, sentinel: Span) -> Reason | None:
    if not trace.links.launches:
        return SawNothingOfGpu()
    stake = at_stake(trace)
    reason = _gpu_side(trace, stake)
    if reason is None and not _ran(trace, sentinel):
        return SentinelLaunchedNothing()
    if reason is None:
        reason = _unplaced(trace) or launched_elsewhere(trace)
    if reason is None and stake.orphans:
        return EarlierWork(len(stake.orphans))
    return reason


def _unplaced(trace: Trace) -> Reason | None:
    unplaced = sum(len(steps) > 1 for steps in trace.steps_of_unrecorded.values())
    return UnplacedLaunches(unplaced) if unplaced else None


def _gpu_side(trace: Trace, stake: Stake) -> Reason | None:
    if trace.links.launches and not len(trace.gpu):
        return NoGpuOperations(len(trace.links.launches))
    if reason := _untied(trace, stake):
        return reason
    if lost := len(stake.lost):
        return LostKernels(lost, len(stake.launches), _same_in_each_step(trace, stake.lost))
    if cut := cut_replays(trace):
        return _lost_of_graphs(trace, cut)
    if trace.untimed:
        return UntimedKernels(trace.untimed)
    return _ran_before_launch(trace)


def _ran_before_launch(trace: Trace) -> Reason | None:
    """Return the reason if operations began before their launches by more than clocks are apart; else None."""
    gpu = trace.gpu
    # What has no launch, -1, finds the last entry.
    launched = [*trace.calls.start, -inf]
    ahead_ns = list(map(sub, picked(launched, trace.links.call_of), gpu.start))
    if not ahead_ns or (most := max(ahead_ns)) <= _APART_NS:
        return None
    operations = sum(ns > _APART_NS for ns in ahead_ns)
    return RanBeforeLaunch(operations, trace.names[gpu.name[ahead_ns.index(most)]], most / 1000)


def _untied(trace: Trace, stake: Stake) -> Reason | None:
    """Return the reason if it cannot be known to which launches kernels of collectives belong; else None."""
    untied = trace.links.untied
    if trace.metadata is not None:
        untied = frozenset(i for i in untied if trace.gpu.start[i] >= trace.steps[0].start_ns)
    if not untied or (trace.metadata is None and not stake.lost):
        return None
    return LaunchesUntied(len(untied))


def _same_in_each_step(trace: Trace, lost: Sequence[int]) -> bool:
    """Return whether each of several steps lacks the kernels of the same launches: a loss would not keep to them."""
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    if len(trace.steps) == 1 or any(trace.calls.name[i] in graphs for i in lost):
        return False
    missing_of: list[list[int]] = [[] for _ in trace.steps]
    seen, missing = [0] * len(trace.steps), set(lost)
    for i in sorted(trace.links.launches, key=trace.calls.start.__getitem__):
        step = trace.step_of_call[i]
        if step != ABSENT:
            if i in missing:
                missing_of[step].append(seen[step])
            seen[step] += 1
    same = all(numbers == missing_of[0] for numbers in missing_of)
    return same and bool(missing_of[0]) and len(missing_of[0]) < min(seen)


def _lost_of_graphs(trace: Trace, cut: Sequence[Cut]) -> Reason:
    first = cut[0]
    return LostGraphKernels(
        graph=first.graph or None,
        step=first.step + 1,
        steps=len(trace.steps),
        found=first.recorded,
        whole=first.whole,
        others=len(cut) - 1,
    )


def _sentinel(trace: Trace) -> Span | None:
    return next(iter(trace.spans(SENTINEL)), None)


def _ran(trace: Trace, sentinel: Span) -> bool:
    """Return whether a GPU operation that was launched inside of the range is in the recording."""
    calls, thread = trace.calls, trace.threads.index(sentinel.tid)
    launched = (call for call in trace.links.call_of if call >= 0 and calls.thread[call] == thread)
    return any(sentinel.start_ns <= calls.start[call] < sentinel.end_ns for call in launched)


def unprofiled(trace: Trace) -> Reason | None:
    """Return why kernels on the CPU cannot be counted: code ran that leaves no event; None if none did."""
    metadata = trace.metadata
    if trace.device_kind.has_launches:
        return None
    if metadata is None:
        return _without_kernels(trace)
    if metadata.threads:
        return RanOnOtherThread(metadata.threads[0])
    from pytest_torchprof.analysis.unseen import work_without_events  # noqa: PLC0415 - only the CPU needs it

    return _package(trace, metadata.compile) or _compiled_before(trace, metadata.compile) or work_without_events(trace)


def _package(trace: Trace, evidence: CompileEvidence | None) -> Reason | None:
    if any(map(trace.spans_in_steps, PACKAGES)):
        return PackageRan()
    if evidence is not None and evidence.package_is_bound:
        return PackageMayHaveRun()
    return None


def _without_kernels(trace: Trace) -> Reason | None:
    """Return the reason if compiled code ran without a kernel of Inductor's in somebody else's recording of a CPU."""
    graphs = trace.spans_in_steps(FX_GRAPH) or trace.spans_in_steps(REGION)
    began: dict[int | str, list[int]] = defaultdict(list)
    for span in trace.spans() if graphs else ():
        if operator_work(span.name) is OperatorWork.FUSED:
            began[span.tid].append(span.start_ns)
    if all(
        bisect_left(began[graph.tid], graph.start_ns) < bisect_left(began[graph.tid], graph.end_ns) for graph in graphs
    ):
        return None
    return GraphWithoutKernels()


def _compiled_before(trace: Trace, evidence: CompileEvidence | None) -> Reason | None:
    """Return the reason if a graph of Inductor's ran that was compiled without ranges around its kernels; else None."""
    if evidence is None:
        return None
    ran = {graph.hash for graph in fx_graphs(trace, evidence)}
    # Where the calls of graphs leave no range, any of them may have run in a region.
    any_may = evidence.graphs_are_marked is False and bool(regions_of(trace).regions)
    for graph in evidence.fx_graphs:
        if graph.unprofiled and (any_may or graph.hash in ran):
            return CompiledBefore(graph.code_path or str(graph.hash))
    return None


def _reported_loss(trace: Trace) -> Reason | None:
    """Return why the recording is not whole by its own words; None where it says nothing of that."""
    for log in _LOGS:
        lines = trace.header.get(log)
        for line in lines if isinstance(lines, list) else ():
            if match := _LOSS.search(str(line)):
                return LossNoted(match[0])
    return None

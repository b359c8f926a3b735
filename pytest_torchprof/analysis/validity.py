"""Whether a recording may be believed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.analysis.compilation import FX_GRAPH, fx_graphs
from pytest_torchprof.analysis.cut_replays import cut_replays
from pytest_torchprof.analysis.graph_numbers import wrong_numbers
from pytest_torchprof.analysis.losses_told import loss_told
from pytest_torchprof.analysis.other_threads import launched_elsewhere
from pytest_torchprof.analysis.regions import PACKAGES, REGION, regions_of
from pytest_torchprof.analysis.unseen import work_without_events
from pytest_torchprof.analysis.user_ranges import say_instead_of
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import CallKind, OperatorWork
from pytest_torchprof.text import counted, printable_line
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.cut_replays import Cut
    from pytest_torchprof.recording.metadata import CompileEvidence, Metadata
    from pytest_torchprof.trace import Span, Trace

_CUT_NS = 2000


def why_not(trace: Trace) -> str | None:
    """Return why the recording's numbers may not be believed, None when they may."""
    return _why_no_ranges(trace) or loss_told(trace) or _unknown_work(trace) or wrong_numbers(trace) or _why_not(trace)


def _unknown_work(trace: Trace) -> str | None:
    """Return that work of a kind nobody knows ran on the GPU."""
    if not trace.unknown_work or not trace.device_kind.has_launches:
        return None
    category, count = max(trace.unknown_work.items(), key=itemgetter(1))
    said = f"{counted(count, 'event')} on a stream of the category {printable_line(category, 40)!r}"
    return coded(f"{said}, which is not known: they may be kernels, copies or fills", Code.UNKNOWN_WORK)


def _why_no_ranges(trace: Trace) -> str | None:
    """Return that the range whose occurrences are to be the steps is not there."""
    name = None if trace.adoption is None else trace.adoption.step
    if name is None or trace.steps is not trace.profiler_steps:
        return None
    said = f"the range {printable_line(name, 80)!r} that is to be the step is not in the recording"
    return coded(f"{said}; {say_instead_of(trace, name)}", Code.NO_SUCH_RANGE)


def _why_not(trace: Trace) -> str | None:
    if trace.metadata is not None:
        return _own(trace, trace.metadata)
    if not trace.device_kind.has_launches:
        return _overlapping_steps(trace) or (
            None if len(trace.ops) else coded("the recording has no operator", Code.NOTHING_RAN)
        )
    if not len(trace.gpu) and not trace.links.launches:
        said = (
            "the recording has no GPU operation and no launch: it was made without the GPU (where the CPU was to be "
            'measured, say so: --device cpu, load(path, device="cpu"))'
        )
        return coded(said, Code.NO_GPU_SIDE)
    return _overlapping_steps(trace) or _gpu_side(trace, at_stake(trace)) or _stray(trace)


def _stray(trace: Trace) -> str | None:
    """Return that operations ran in the steps whose launch was lost; what was queued before the window has lower ids.

    CUPTI numbers all calls in their order. Where the first calls of the window were lost, only what the CPU did tells.
    """
    gpu = trace.gpu
    if trace.links.orphans and not trace.links.launches:
        said = f"no launch is in the recording, and {counted(len(trace.links.orphans), 'GPU operation')}"
        return coded(f"{said} ran: events were lost", Code.LOST_LAUNCHES)
    orphans = [i for i in trace.links.orphans if trace.step_at(gpu.start[i]) >= 0]
    if not orphans:
        return None
    first = min((one for one in trace.calls.correlation if one > 0), default=0)
    count, lost = sum(gpu.correlation[i] >= first for i in orphans), "events were lost"
    if not count and (idle := _idle_at_the_head(trace)):
        count, lost = len(orphans), f"{lost}: the first {idle} launched nothing, all later ones did"
    if not count:
        return None
    whose = "launch is" if count == 1 else "launches are"
    said = f"{counted(count, 'GPU operation')} ran in the steps whose {whose} not in the recording ({lost})"
    return coded(said, Code.LOST_LAUNCHES)


def _idle_at_the_head(trace: Trace) -> str | None:
    """Return an operator that ran before the first launch, or "step", if all others of its kind launch something."""
    calls, ops, launches = trace.calls, trace.ops, trace.links.launches
    if not launches:
        return None
    first = min(calls.start[i] for i in launches)
    launching = {
        op for holder in trace.nesting.around_each(calls, launches).values() for op in trace.nesting.chain(holder)
    }
    early, idle, busy = set[int](), set[int](), set[int]()
    for i, name in enumerate(ops.name):
        if ops.thread[i] == trace.captured.lane:
            continue
        (busy if i in launching else early if ops.end[i] <= first else idle).add(name)
    if found := (early & busy) - idle:
        return trace.names[min(found)]
    ended = sum(step.end_ns <= first for step in trace.steps)
    launched_in = {trace.step_of_call[i] for i in launches}
    return "step" if ended and launched_in.issuperset(range(ended, len(trace.steps))) else None


class Stake(NamedTuple):
    """What must be whole for the numbers to be right."""

    launches: Sequence[int]
    lost: Sequence[int]
    """Those of the launches whose kernel is missing."""
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


def _overlapping_steps(trace: Trace) -> str | None:
    """One profiler's steps come one after the other; where they do not, what is launched belongs to no one step."""
    for one, other in pairwise(trace.steps):
        # Files of torch before 2.4 cut times to whole microseconds.
        if other.start_ns + _CUT_NS < one.end_ns:
            if one.tid != other.tid and trace.steps is not trace.profiler_steps:
                said = (
                    f"{one.name} and {other.name} overlap on two threads, so that what was launched belongs to neither"
                )
                return coded(said, Code.OVERLAPPING_STEPS)
            return coded(
                f"{one.name} and {other.name} overlap: the recording holds the work of several processes or profilers; "
                "read the recording of each by itself",
                Code.OVERLAPPING_STEPS,
            )
    return None


def _own(trace: Trace, metadata: Metadata) -> str | None:
    """Our recordings begin with the sentinel's range, hold every step, and nothing from before."""
    if metadata.problems:
        return metadata.problems[0]
    sentinel = _sentinel(trace)
    if not sentinel:
        return coded(
            f"the range {SENTINEL} with which our recordings begin is missing: "
            "another profiler took the events, or they were lost",
            Code.LOST_SENTINEL,
        )
    reason = _own_steps(trace, metadata.steps)
    return _own_gpu_side(trace, sentinel) if reason is None and trace.device_kind.has_launches else reason


def _own_steps(trace: Trace, promised: int) -> str | None:
    found = [step.name for step in trace.profiler_steps if step.name is not None]
    if len(found) < promised:
        said = f"{len(found)} of {counted(promised, 'step')} are in the recording (the profiler lost events)"
        return coded(said, Code.LOST_STEPS)
    if found != [f"ProfilerStep#{number}" for number in range(promised)]:
        measured = f"{promised} {'was' if promised == 1 else 'were'} measured"
        said = f"{counted(len(found), 'step range')} in the recording, {measured} (another profiler's schedule ran)"
        return coded(said, Code.ANOTHER_PROFILER)
    return None


def _own_gpu_side(trace: Trace, sentinel: Span) -> str | None:
    if not trace.links.launches:
        said = "no launch is in the recording, not even the sentinel's (the profiler saw nothing of the GPU)"
        return coded(said, Code.NO_GPU_SIDE)
    stake = at_stake(trace)
    reason = _gpu_side(trace, stake)
    if reason is None and not _ran(trace, sentinel):
        return coded(
            "no kernel of the sentinel is in the recording (the profiler lost its beginning)", Code.LOST_SENTINEL
        )
    if reason is None:
        reason = _unplaced(trace) or launched_elsewhere(trace)
    if reason is None and stake.orphans:
        early = f"{counted(len(stake.orphans), 'GPU operation')} {'was' if len(stake.orphans) == 1 else 'were'}"
        said = f"{early} launched before the recording began and still ran in the measured steps"
        return coded(said, Code.EARLIER_WORK)
    return reason


def _unplaced(trace: Trace) -> str | None:
    unplaced = sum(len(steps) > 1 for steps in trace.steps_of_unrecorded.values())
    if not unplaced:
        return None
    were = f"{counted(unplaced, 'GPU operation')} {'was' if unplaced == 1 else 'were'}"
    return coded(
        f"{were} launched by a call that the profiler does not record (such as cuLaunchCooperativeKernel), and it "
        "cannot be told in which step: record it anew, or measure one step (steps=1)",
        Code.UNPLACED_LAUNCHES,
    )


def _gpu_side(trace: Trace, stake: Stake) -> str | None:
    if trace.links.launches and not len(trace.gpu):
        everything = counted(len(trace.links.launches), "launch")
        return coded(
            f"{everything} and no GPU operation in the recording (the GPU's side is missing)", Code.NO_GPU_SIDE
        )
    if reason := _untied(trace, stake):
        return reason
    if lost := len(stake.lost):
        none = f"{'has' if lost == 1 else 'have'} no kernel in the recording"
        said = f"{lost} of {counted(len(stake.launches), 'launch')} {none} (the profiler lost events)"
        if _same_in_each_step(trace, stake.lost):
            said += (
                "; they are the same ones in each step, so that the driver may have refused them instead: look for an "
                "error of CUDA's that the code catches or ignores"
            )
        return coded(said, Code.LOST_KERNELS)
    if cut := cut_replays(trace):
        return _lost_of_graphs(trace, cut)
    if trace.untimed:
        said = f"GPU operations without a usable time in the recording: {trace.untimed}"
        return coded(said, Code.UNTIMED_KERNELS)
    return None


def _untied(trace: Trace, stake: Stake) -> str | None:
    """Return that kernels of collectives belong to launches that nobody can tell."""
    untied = trace.links.untied
    if trace.metadata is not None:
        untied = frozenset(i for i in untied if trace.gpu.start[i] >= trace.steps[0].start_ns)
    if not untied or (trace.metadata is None and not stake.lost):
        return None
    many = len(untied) > 1
    said = (
        f"{counted(len(untied), 'kernel')} of collectives {'have' if many else 'has'} no correlation id (as ROCm 6.1 "
        f"records them), and nobody can tell which {'launches they belong' if many else 'launch it belongs'} to"
    )
    return coded(said, Code.LOST_LAUNCHES)


def _same_in_each_step(trace: Trace, lost: Sequence[int]) -> bool:
    """Whether each of several steps lacks the kernels of the same launches: a loss would not keep to them."""
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    if len(trace.steps) == 1 or any(trace.calls.name[i] in graphs for i in lost):
        return False
    place_of: list[list[int]] = [[] for _ in trace.steps]
    seen, missing = [0] * len(trace.steps), set(lost)
    for i in sorted(trace.links.launches, key=trace.calls.start.__getitem__):
        step = trace.step_of_call[i]
        if step != ABSENT:
            if i in missing:
                place_of[step].append(seen[step])
            seen[step] += 1
    same = all(places == place_of[0] for places in place_of)
    return same and bool(place_of[0]) and len(place_of[0]) < min(seen)


def _lost_of_graphs(trace: Trace, cut: Sequence[Cut]) -> str:
    first = cut[0]
    graph = f"graph {first.graph}" if first.graph else "a graph"
    replay = f"the replay of {graph} in step {first.step + 1} of {len(trace.steps)}"
    others = f", as it did in {counted(len(cut) - 1, 'other replay')}" if len(cut) > 1 else ""
    return coded(
        f"{replay} has {first.found} of {counted(first.whole, 'operation')} in the recording "
        f"(the profiler lost events{others})",
        Code.LOST_GRAPH_KERNELS,
    )


def _sentinel(trace: Trace) -> Span | None:
    return next(iter(trace.spans(SENTINEL)), None)


def _ran(trace: Trace, sentinel: Span) -> bool:
    """Whether a GPU operation that was launched inside of the range is in the recording."""
    calls, thread = trace.calls, trace.threads.index(sentinel.tid)
    launched = (call for call in trace.links.call_of if call >= 0 and calls.thread[call] == thread)
    return any(sentinel.start_ns <= calls.start[call] < sentinel.end_ns for call in launched)


def unprofiled(trace: Trace) -> str | None:
    """Return why kernels on the CPU cannot be counted: code ran that leaves no event; None if none did."""
    metadata = trace.metadata
    if trace.device_kind.has_launches:
        return None
    if metadata is None:
        return _without_kernels(trace)
    if metadata.threads:
        return coded(
            f"the measured code ran {metadata.threads[0]} on another thread, whose operators torch.profiler does not "
            "record",
            Code.OTHER_THREAD,
        )
    return _package(trace, metadata.compile) or _compiled_before(trace, metadata.compile) or work_without_events(trace)


def _package(trace: Trace, evidence: CompileEvidence | None) -> str | None:
    if any(map(trace.spans_in_steps, PACKAGES)):
        return coded(
            "a package of AOTInductor ran, whose kernels leave no event on the CPU: measure the model under "
            "torch.compile instead, or on a GPU",
            Code.AOTINDUCTOR,
        )
    if evidence is not None and evidence.package_is_bound:
        return coded(
            "a package of AOTInductor may have run, whose kernels leave no event on the CPU: a call of it was kept "
            "before the measurement (run = loader.boxed_run), which cannot be seen; keep the package instead",
            Code.AOTINDUCTOR,
        )
    return None


def _without_kernels(trace: Trace) -> str | None:
    """Return that compiled code ran without a kernel of Inductor's, in anybody else's recording of a CPU."""
    graphs = trace.spans_in_steps(FX_GRAPH) or trace.spans_in_steps(REGION)
    began: dict[int | str, list[int]] = defaultdict(list)
    for span in trace.spans() if graphs else ():
        if operator_work(span.name) is OperatorWork.FUSED:
            began[span.tid].append(span.start_ns)
    if all(bisect_left(began[one.tid], one.start_ns) < bisect_left(began[one.tid], one.end_ns) for one in graphs):
        return None
    return coded(
        "a graph of Inductor's ran, and none of its C++ kernels is in the recording, if it has any: record it with "
        "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1; one that has none can be judged where a test measures it itself",
        Code.COMPILED_BEFORE,
    )


def _compiled_before(trace: Trace, evidence: CompileEvidence | None) -> str | None:
    """Return that a graph of Inductor's ran that was compiled without ranges around its kernels."""
    if evidence is None:
        return None
    ran = {graph.hash for graph in fx_graphs(trace, evidence)}
    # Where the calls of graphs leave no range, any of them may have run in a region.
    any_may = evidence.graphs_are_marked is False and bool(regions_of(trace).regions)
    for graph in evidence.fx_graphs:
        if graph.unprofiled and (any_may or graph.hash in ran):
            return coded(
                "compiled before the measurement: a graph of Inductor's was compiled without kernel profiling, so that "
                f"its C++ kernels leave no event ({graph.code_path or graph.hash}). Compile it in the "
                "measured code, or set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1",
                Code.COMPILED_BEFORE,
            )
    return None

"""Whether a recording may be believed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.linking import Intervals
from pytest_torchprof.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.trace import Trace

_CUT_NS = 2000


def why_not(trace: Trace) -> str | None:
    """Return why the recording's numbers may not be believed, None when they may."""
    if trace.torchprof is not None:
        return _own(trace, trace.torchprof)
    if not len(trace.gpu) and not trace.links.launches:
        return "the recording has no GPU operation and no launch: it was made without the GPU"
    return _overlapping_steps(trace) or _gpu_side(trace, trace.lost_kernels, len(trace.links.launches))


def _overlapping_steps(trace: Trace) -> str | None:
    """One profiler's steps come one after the other; where they do not, what is launched belongs to no one step."""
    for one, other in pairwise(trace.steps):
        # Files of torch before 2.4 cut times to whole microseconds.
        if other.start_ns + _CUT_NS < one.end_ns:
            return (
                f"{one.name} and {other.name} overlap: the recording holds the work of several processes or profilers; "
                "read the recording of each by itself"
            )
    return None


def _own(trace: Trace, ours: Mapping[str, object]) -> str | None:
    """Our recordings begin with the sentinel's range, hold every step, and nothing from before."""
    problems = ours.get("problems")
    if isinstance(problems, list) and problems:
        return str(problems[0])
    sentinel = _sentinel(trace)
    if not sentinel:
        return (
            f"the range {SENTINEL} with which our recordings begin is missing: "
            "another profiler took the events, or they were lost"
        )
    return _own_steps(trace, ours.get("steps")) or (None if trace.on_cpu else _own_gpu_side(trace, sentinel))


def _own_steps(trace: Trace, promised: object) -> str | None:
    found = [step.name for step in trace.steps] if trace.has_step_ranges else []
    if not isinstance(promised, int):
        return "the recording does not say how many steps were measured"
    if len(found) < promised:
        return f"{len(found)} of {counted(promised, 'step')} are in the recording (the profiler lost events)"
    if found != [f"ProfilerStep#{number}" for number in range(promised)]:
        measured = f"{promised} {'was' if promised == 1 else 'were'} measured"
        return f"{counted(len(found), 'step range')} in the recording, {measured} (another profiler's schedule ran)"
    return None


def _own_gpu_side(trace: Trace, sentinel: Intervals) -> str | None:
    calls = trace.calls
    if not trace.links.launches:
        return "no launch is in the recording, not even the sentinel's (the profiler saw nothing of the GPU)"
    # The profiler loses the head of a session first: the sentinel is there to be lost in the place of what is measured.
    launches = [i for i in trace.links.launches if not sentinel.cover(calls.thread[i], calls.start[i])]
    lost = [i for i in trace.links.lost if not sentinel.cover(calls.thread[i], calls.start[i])]
    reason = _gpu_side(trace, len(lost), len(launches))
    if reason is None and not _sentinel_ran(trace, sentinel):
        return "no kernel of the sentinel is in the recording (the profiler lost its beginning)"
    if reason is None and trace.orphans:
        return f"{trace.orphans} GPU operations were launched before the recording began, or their launch was lost"
    return reason


def _gpu_side(trace: Trace, lost: int, launches: int) -> str | None:
    if trace.links.launches and not len(trace.gpu):
        everything = counted(len(trace.links.launches), "launch")
        return f"{everything} and no GPU operation in the recording (the GPU's side is missing)"
    if lost:
        return f"{lost} of {launches} launches have no kernel in the recording (the profiler lost events)"
    if trace.untimed:
        return f"GPU operations without a usable time in the recording: {trace.untimed}"
    return None


def _sentinel(trace: Trace) -> Intervals:
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    return Intervals((thread_of[span.tid], span.start_ns, span.end_ns) for span in trace.spans(SENTINEL))


def _sentinel_ran(trace: Trace, sentinel: Intervals) -> bool:
    calls = trace.calls
    return any(call >= 0 and sentinel.cover(calls.thread[call], calls.start[call]) for call in trace.links.call_of)

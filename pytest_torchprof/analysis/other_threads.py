"""What threads beside the measured one launch where no step can claim it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.recordings import LaunchedOutsideSteps
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace


def launched_elsewhere(trace: Trace) -> Reason | None:
    """Return that other threads launched kernels between two steps or behind the last one: they fall into no step.

    A thread that launches all the time, before the first step and in each of them, works for itself: what it launches
    besides is nobody's later work.
    """
    calls, gpu, begin = trace.calls, trace.gpu, trace.steps[0].start_ns
    own = {trace.threads.index(step.tid) for step in trace.steps}
    launched = [call for i, call in enumerate(trace.links.call_of) if call >= 0 and gpu.kind[i] == KERNEL]
    before = {calls.thread[call] for call in launched if calls.start[call] < begin}
    steps_of: defaultdict[int, set[int]] = defaultdict(set)
    for call in launched:
        if trace.step_of_call[call] != ABSENT:
            steps_of[calls.thread[call]].add(trace.step_of_call[call])
    always = {thread for thread in before if len(steps_of[thread]) == len(trace.steps)}
    outside = [
        call
        for call in launched
        if trace.step_of_call[call] == ABSENT and calls.start[call] >= begin and calls.thread[call] not in own | always
    ]
    if not outside:
        return None
    return LaunchedOutsideSteps(len(outside))

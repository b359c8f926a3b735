"""Kernels that other threads launch outside of all steps."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.lost_work import LaunchedOutsideSteps
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace


def launched_elsewhere(trace: Trace) -> Reason | None:
    """Return the reason if other threads launched kernels between two steps or after the last one; else None.

    A thread that launches all the time, before the first step and in each of them, works for itself: its launches
    between steps are not the late work of a step.
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

"""The figures agree with HolisticTraceAnalysis on every shared recording that it can read.

What it says is frozen in hta_figures.json; benchmarks/hta_figures.py made that. Where the two differ is said here:

* Of several steps it leaves out the last one, and everything that no call launched.
* Times with fractions it rounds inwards to whole microseconds, so that an operation loses up to two of them.
* Operations of one stream that overlap count as idle time below zero there; here as none.
* In the temporal breakdown it takes for GPU work whatever has a stream: synchronization events, Inductor's ranges.
* It knows communication by NCCL's names only, and launches by those of CUDA's runtime.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import recording_of

from pytest_torchprof import load
from pytest_torchprof.analysis import gpu_time
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

pytestmark = pytest.mark.any_torch

FIGURES = json.loads((Path(__file__).parent / "hta_figures.json").read_text())
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
# The GPU's own ProfilerStep annotations, which it takes for steps too, begin after all launches: nothing is left out.
ALL_STEPS = {"rtx3060_compile_steps", "rtx3060_cudagraph_steps", "rtx3060_cudagraph_steps_slow"}
OTHER_GPU_WORK = {"a100_cuda_sync_events", "rtx3060_compile_steps"}
OTHER_COMMUNICATION = {"b200_eager_nvjet"}


class Seen(NamedTuple):
    """A recording as HTA sees it."""

    profile: object
    ops: list[int]
    exact: bool
    figures: dict

    def within(self, count):
        """Return how far apart figures over so many operations may be."""
        return 0 if self.exact else 2 * count


@pytest.fixture(scope="module", params=FIGURES)
def seen(request):
    """A recording, which is read once for all that is compared in it."""
    profile = load(recording_of(request.param))
    trace, call_of = profile.trace, profile.trace.links.call_of
    ops, starts = range(len(trace.gpu)), trace.calls.start
    if len(trace.steps) > 1:
        last = 2**63 if request.param in ALL_STEPS else trace.steps[-1].start_ns
        ops = [i for i in ops if call_of[i] >= 0 and starts[call_of[i]] < last]
    times = (*trace.gpu.start, *trace.gpu.end, *starts)
    return Seen(profile, list(ops), all(ns % 1000 == 0 for ns in times), FIGURES[request.param])


def test_idle_time_of_each_stream_by_cause(seen):
    trace, kept = seen.profile.trace, set(seen.ops)
    gpu = trace.gpu
    of_stream = defaultdict(list)
    for device, ops in seen.profile.gpu_work.by_device.items():
        for i in ops:
            of_stream[device, gpu.stream[i]].append(i)
    for (_, stream), ops in of_stream.items():
        order = [i for i in ops if i in kept]
        if not order:
            continue
        theirs = seen.figures["idle"][str(trace.streams[stream])]
        ours = gpu_time.idle_time(gpu_time.idle_gaps(trace, order))
        overlap = sum(max(0, gpu.end[a] - gpu.start[b]) for a, b in pairwise(order)) / 1000
        whole = ours.host_us + ours.kernel_us + ours.other_us
        assert sum(theirs.values()) == pytest.approx(whole - overlap, abs=seen.within(len(order)))
        if seen.exact:
            assert theirs.get("host_wait", 0) == ours.host_us
            assert theirs.get("kernel_wait", 0) == ours.kernel_us - overlap
            assert theirs.get("other", 0) == ours.other_us
        else:
            # A gap of some microseconds may fall on the other side of the border.
            assert theirs.get("host_wait", 0) == pytest.approx(ours.host_us, abs=2 * seen.within(len(order)))


def test_idle_and_computing_time(seen, request):
    name = request.node.callspec.params["seen"]
    work, gpu = seen.profile.gpu_work, seen.profile.trace.gpu
    busy = intervals.length(intervals.merged((gpu.start[i], gpu.end[i]) for i in seen.ops)) / 1000
    computing = [i for i in seen.ops if gpu.kind[i] == KERNEL and i not in work.communication]
    computed = intervals.length(intervals.merged((gpu.start[i], gpu.end[i]) for i in computing)) / 1000
    span = (max(gpu.end[i] for i in seen.ops) - min(gpu.start[i] for i in seen.ops)) / 1000
    idle_us, theirs, rest = seen.figures["time"]
    near = seen.within(len(seen.ops))
    if name in OTHER_GPU_WORK:
        assert idle_us != pytest.approx(span - busy, abs=near)
        return
    assert idle_us == pytest.approx(span - busy, abs=near)
    if name in OTHER_COMMUNICATION:
        assert theirs > computed
        assert theirs + rest == pytest.approx(busy, abs=near)
        return
    assert (theirs, rest) == (pytest.approx(computed, abs=near), pytest.approx(busy - computed, abs=near))


def test_how_much_of_the_communication_computing_hides(seen):
    steps = seen.profile.communication.steps
    kept = steps if len(steps) == 1 else steps[:-1]
    talking = sum(step.time_us for step in kept)
    theirs = seen.figures["overlap"]
    assert (theirs is None) == (talking == 0)
    if talking:
        assert theirs == pytest.approx(100 * (1 - sum(step.exposed_us for step in kept) / talking), abs=0.1)


def test_launches_the_time_in_them_and_the_way_to_the_gpu(seen):
    trace = seen.profile.trace
    calls, gpu, call_of = trace.calls, trace.gpu, trace.links.call_of
    pairs = [(call_of[i], i) for i in seen.ops if call_of[i] >= 0 and trace.names[calls.name[call_of[i]]] in LAUNCHES]
    near = seen.within(len(pairs))
    count, in_calls, on_gpu, delay = seen.figures["launches"]
    assert len(pairs) == count
    assert in_calls == pytest.approx(sum(calls.end[call] - calls.start[call] for call, _ in pairs) / 1000, abs=near)
    assert on_gpu == pytest.approx(sum(gpu.end[i] - gpu.start[i] for _, i in pairs) / 1000, abs=near)
    # A kernel that starts before its call returns has no negative delay there.
    delays = sum(max(gpu.start[i] - calls.end[call], 0) for call, i in pairs) / 1000
    assert delay == pytest.approx(delays, abs=near)

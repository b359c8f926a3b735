"""Every number has a second witness, which counts it in the plainest way from what the file holds or from what torch says."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
import torch
import torch._dynamo.testing
from builder import AUTOGRAD, MAIN, TraceBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import record_call

from pytest_torchprof import load
from pytest_torchprof.analysis.numbers import BY_NAME, OF_STEP, OF_WINDOW
from pytest_torchprof.capture import Plan, iterations
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.report.analysis_json import as_dict
from pytest_torchprof.trace import intervals

END_NS = 300
"""The random recordings are so short that each of their nanoseconds can be looked at."""


# ----------------------------------------------------------------------------------------------------------------------
# On a GPU, from the file's events


@st.composite
def recordings(draw):
    """Return a builder: steps, calls of two threads, work on two devices and streams, some of it lost or an orphan."""
    builder = TraceBuilder(begin=0)
    # Where a file holds no call at all, work counts where it runs, which tests of foreign recordings tell.
    builder.call("cudaEventQuery", 0, 0.001)
    us = st.integers(0, END_NS).map(lambda ns: ns / 1000)
    length = st.integers(1, 150).map(lambda ns: ns / 1000)
    thread = st.sampled_from([MAIN, AUTOGRAD])
    place = st.fixed_dictionaries({"device": st.integers(0, 1), "stream": st.integers(7, 8)})
    kernel = st.fixed_dictionaries(
        {
            "blocks_per_sm": st.sampled_from([None, 0.25, 0.5, 3.0]),
            "occupancy": st.sampled_from([None, 0, 37, 100]),
        }
    )
    edges = sorted(draw(st.lists(st.integers(0, END_NS), min_size=2, max_size=6, unique=True)))
    for number, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=False)):
        builder.step(number, start / 1000, (end - start) / 1000)
    for kind in draw(
        st.lists(st.sampled_from(["launch", "graph", "HtoD", "DtoH", "DtoD", "fill", "lost"]), max_size=12)
    ):
        call = "copy" if kind.endswith(("H", "D")) else "launch" if kind == "lost" else kind
        correlation = builder.call(call, draw(us), draw(length), tid=draw(thread))
        if kind in ("launch", "graph"):
            for _ in range(draw(st.integers(1, 3)) if kind == "graph" else 1):
                builder.kernel("k", draw(us), draw(length), correlation, **draw(place), **draw(kernel))
        elif kind == "fill":
            builder.memset(draw(us), draw(length), correlation, **draw(place))
        elif kind != "lost":
            builder.memcpy(kind, draw(us), draw(length), correlation, size=draw(st.integers(0, 99)), **draw(place))
    for what in draw(st.lists(st.sampled_from(["stream sync", "device sync"]), max_size=4)):
        builder.sync(draw(us), draw(length), what=what, tid=draw(thread))
    for orphan in draw(st.lists(st.integers(1, 50), max_size=2)):
        builder.kernel("orphan", draw(us), draw(length), orphan, **draw(place), **draw(kernel))
    return builder


def span(event):
    """Return when an event began and ended, in ns."""
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def runs_at(ns, events):
    """Return those of the events that run in this nanosecond."""
    return [event for event in events if span(event)[0] <= ns < span(event)[1]]


def on_each_device(events):
    """Return the events by device, without the devices."""
    devices = {event["args"]["device"] for event in events}
    return [[event for event in events if event["args"]["device"] == device] for device in devices]


def busy_ns(events):
    """Return in how many nanoseconds one of them runs, each device by itself."""
    return sum(bool(runs_at(ns, own)) for own in on_each_device(events) for ns in range(2 * END_NS))


class Facts:
    """What the file's events say of one step, nothing but lists of them."""

    def __init__(self, events, step):
        begin, end = span(step)
        calls = [event for event in events if event["cat"] == "cuda_runtime"]
        work = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.calls = [call for call in calls if begin <= span(call)[0] < end]
        made_here = {call["args"]["correlation"] for call in self.calls}
        self.work = [one for one in work if one["args"]["correlation"] in made_here]
        self.kernels = [one for one in self.work if one["cat"] == "kernel"]
        self.copies = [one for one in self.work if one["cat"] == "gpu_memcpy"]
        waits = [call for call in calls if call["name"].endswith("Synchronize")]
        self.waits = [call for call in waits if call in self.calls and call is not self.flush(events)]
        own = [call for call in waits if call["tid"] == step["tid"]]
        self.cpu_ns = sum(not runs_at(ns, own) for ns in range(begin, end))

    @staticmethod
    def flush(events):
        """Return the last wait for the device, if nothing is asked for after it: the profiler's own."""
        waits = [event for event in events if event["name"] == "cudaDeviceSynchronize"]
        last = max(waits, key=lambda event: event["ts"], default=None)
        asked = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "ProfilerStep#")
        after = [event for event in events if last and event["name"].startswith(asked) and event["ts"] > last["ts"]]
        return None if after else last

    def called(self, *names):
        return sum(call["name"] in names for call in self.calls)

    def copied(self, direction):
        return sum(f" {direction} " in copy["name"] for copy in self.copies)


def total_us(events):
    return sum(end - start for start, end in map(span, events)) / 1000


def extent_us(events):
    return (max(end for _, end in map(span, events)) - min(start for start, _ in map(span, events))) / 1000


OF_A_STEP = {
    "kernels": lambda step: len(step.kernels),
    "launches": lambda step: step.called("cudaLaunchKernel", "cudaGraphLaunch"),
    "graph_launches": lambda step: step.called("cudaGraphLaunch"),
    "memcpys": lambda step: len(step.copies),
    "memcpys_h2d": lambda step: step.copied("HtoD"),
    "memcpys_d2h": lambda step: step.copied("DtoH"),
    "memcpys_d2d": lambda step: step.copied("DtoD"),
    "memcpy_bytes": lambda step: sum(copy["args"]["bytes"] for copy in step.copies),
    "memsets": lambda step: len(step.work) - len(step.kernels) - len(step.copies),
    "syncs": lambda step: len(step.waits),
    "kernel_time_us": lambda step: total_us(step.kernels),
    "gpu_time_us": lambda step: total_us(step.work),
    "gpu_busy_us": lambda step: busy_ns(step.work) / 1000,
    "gpu_span_us": lambda step: extent_us(step.work) if step.work else 0,
    "cpu_time_us": lambda step: step.cpu_ns / 1000,
    "cpu_gpu_ratio": lambda step: step.cpu_ns / busy_ns(step.work) if step.work else None,
}


def utilization(devices, window):
    return statistics.mean(sum(bool(runs_at(ns, own)) for ns in window) for own in devices) / len(window)


def sm_efficiency(devices, window):
    """In each nanosecond an SM has at most one block, and what is not known is none."""

    def filled(own):
        return sum(min(1, sum(one["args"].get("blocks per SM", 0) for one in runs_at(ns, own))) for ns in window)

    known = any("blocks per SM" in kernel["args"] for own in devices for ns in window for kernel in runs_at(ns, own))
    return statistics.mean(map(filled, devices)) / len(window) if known else None


def occupancy(devices, window):
    share = "est. achieved occupancy %"
    told = [one["args"][share] for own in devices for ns in window for one in runs_at(ns, own) if share in one["args"]]
    return statistics.mean(told) / 100 if told else None


OF_THE_WINDOW = {
    "gpu_utilization": utilization,
    "sm_efficiency": sm_efficiency,
    "achieved_occupancy": occupancy,
}


COPIES_ALONE = "gpu_utilization"
"""What is 0 where only copies and fills ran: no kernel used the GPU. What kernels alone have is not known there."""


def steps_of(builder):
    return [event for event in builder.events if event["name"].startswith("ProfilerStep#")]


def loaded(builder):
    with TemporaryDirectory() as folder:
        return load(builder.write(Path(folder) / "t.json"))


@settings(max_examples=150, deadline=None)
@given(recordings())
def test_the_numbers_are_what_the_file_says(builder):
    """One recording is drawn for all of it, which takes longer than to look at it."""
    profile = loaded(builder)
    each_step_is_what_its_events_say(profile, builder)
    the_window_is_what_its_nanoseconds_say(profile, builder)
    the_middle_and_the_worst_are_those_of_statistics(profile)
    json_holds_each_number_as_it_is(profile)


def each_step_is_what_its_events_say(profile, builder):
    found = profile.steps
    assert len(found) == len(steps_of(builder))
    for step, event in zip(found, steps_of(builder), strict=True):
        facts = Facts(builder.events, event)
        told = {name: witness(facts) for name, witness in OF_A_STEP.items()}
        assert {name: getattr(step.numbers, name) for name in told} == pytest.approx(told, abs=1e-9)


def the_window_is_what_its_nanoseconds_say(profile, builder):
    kernels = [event for event in builder.events if event["cat"] == "kernel"]
    ends_of_work = [span(event)[1] for event in builder.events if event["cat"].startswith(("kernel", "gpu_"))]
    window = range(span(steps_of(builder)[0])[0], max([span(event)[1] for event in steps_of(builder)] + ends_of_work))
    for name, witness in OF_THE_WINDOW.items():
        told = (
            witness(on_each_device(kernels), window)
            if kernels
            else 0
            if ends_of_work and name == COPIES_ALONE
            else None
        )
        assert getattr(profile, name) == (None if told is None else pytest.approx(told)), name


def the_middle_and_the_worst_are_those_of_statistics(profile):
    for name in OF_STEP:
        values = [value for step in profile.steps if (value := getattr(step.numbers, name)) is not None]
        assert getattr(profile.median, name) == (statistics.median(values) if values else None)
        assert getattr(profile.worst, name) == max(values, default=None)


def json_holds_each_number_as_it_is(profile):
    read = json.loads(json.dumps(as_dict(profile, findings=False)))
    for name in OF_STEP:
        assert [step[name] for step in read["steps"]] == [getattr(step.numbers, name) for step in profile.steps]
        assert read["summary"]["worst"][name] == getattr(profile.worst, name)
    for name in OF_WINDOW:
        assert read["summary"][name] == getattr(profile, name)


@settings(max_examples=60, deadline=None)
@given(recordings(), st.data())
def test_what_is_no_work_changes_no_number(builder, data):
    """What files hold besides, and what a later torch may add."""

    def told():
        found = as_dict(loaded(builder), by="kernel", findings=False)
        del found["trace"]
        return found

    before = told()
    at = {"ts": data.draw(st.integers(0, END_NS)) / 1000, "pid": 1000, "tid": MAIN}
    beside = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}, **at},
        {"ph": "C", "name": "a counter", "args": {"value": 5}, **at},
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[unknown]", "args": {}, **at},
        {"ph": "X", "cat": "a_later_category", "name": "cudaLaunchKernel", "dur": 0.1, "args": {}, **at},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "mine", "dur": 0.1, "args": {"device": 0, "stream": 7}, **at},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "dur": 0.1, "args": {"correlation": 9999}, **at},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 4, **at},
    ]
    for event in data.draw(st.lists(st.sampled_from(beside), min_size=1)):
        builder.events.insert(data.draw(st.integers(0, len(builder.events))), event)
    assert told() == before


ranges = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda one: (one[0], sum(one))), max_size=6)


def nanoseconds(spans):
    return {ns for start, end in spans for ns in range(start, end)}


@settings(max_examples=200, deadline=None)
@given(ranges, ranges)
def test_arithmetic_with_ranges_is_that_of_sets_of_nanoseconds(some, others):
    these, those = intervals.merged(some), intervals.merged(others)
    assert nanoseconds(these) == nanoseconds(some)
    assert all(end < start for (_, end), (start, _) in pairwise(these))
    assert nanoseconds(intervals.within(these, those)) == nanoseconds(some) & nanoseconds(others)
    assert nanoseconds(intervals.without(these, those)) == nanoseconds(some) - nanoseconds(others)
    starts, ends = (sorted(edges) for edges in zip(*some, strict=True)) if some else ([], [])
    assert intervals.length(these) == intervals.covered_length(starts, ends) == len(nanoseconds(some))


# ----------------------------------------------------------------------------------------------------------------------
# On the CPU, from what torch itself says of the same run


def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    x = torch.randn(8, 16)
    return lambda: model(x).square().mean().backward()


def attention():
    q = torch.randn(2, 4, 8, 16)
    return lambda: torch.softmax(q @ q.transpose(-1, -2) / 4, -1).matmul(q).contiguous()


def lstm():
    model, x = torch.nn.LSTM(8, 8, num_layers=2), torch.randn(5, 2, 8)
    return lambda: model(x)[0].sum().backward()


def optimizer():
    weight = torch.nn.Parameter(torch.randn(8, 8))
    adam = torch.optim.Adam([weight])

    def step():
        adam.zero_grad()
        torch.linalg.svdvals(weight @ weight).sum().backward()
        adam.step()

    return step


def moves():
    x = torch.randn(8, 8)
    return lambda: (x.t().contiguous().to(torch.float64), torch.zeros_like(x).fill_(2).clone(), x[x > 0], x.sort())


def compiled():
    f = torch.compile(lambda x: (x.sin() + x.cos()) @ x, backend="eager")
    x = torch.randn(8, 8, requires_grad=True)
    return lambda: f(x).sum().backward()


def user_ranges():
    x = torch.randn(8, 8)

    def run():
        with torch.profiler.record_function("outer"), torch.profiler.record_function("inner"):
            (x @ x).relu()

    return run


LIVE = [mlp, attention, lstm, optimizer, moves, compiled, user_ranges]


@pytest.fixture
def both(tmp_path):
    """Return a function that runs code once, and gives our profile of it and torch's own one."""

    def run(make):
        code = make()
        for _ in range(2):
            code()
        path = tmp_path / "t.json"
        theirs = record_call(path, code, acc_events=True)
        return load(path), theirs

    return run


class Event(NamedTuple):
    name: str
    thread: int
    start: int
    end: int


def events_of(profiler):
    """Return torch's own events, in ns. What `events()` returns leaves out an operator inside one of its name."""
    raw = profiler.profiler.kineto_results.events()
    return [
        Event(one.name(), one.start_thread_id(), one.start_ns(), one.start_ns() + one.duration_ns())
        for one in raw
        if one.activity_type() == "cpu_op"
    ], next(one for one in raw if one.name() == "ProfilerStep#0")


COMPUTING = {OperatorWork.COMPUTES, OperatorWork.ALONE, OperatorWork.FUSED}


def kernels_of(events):
    """Return the operators that are kernels, by comparing each event with each other one."""

    def inside(one, other):
        return one is not other and one.thread == other.thread and other.start <= one.start and one.end <= other.end

    around = {event: [other for other in events if inside(event, other)] for event in events}

    def candidate(event):
        work, works = operator_work(event.name), {operator_work(other.name) for other in around[event]}
        if work is OperatorWork.MOVES:
            return not works & COMPUTING
        return work in COMPUTING and OperatorWork.ALONE not in works

    candidates = [event for event in events if candidate(event)]
    holders = {other for event in candidates for other in around[event]}
    return [event for event in candidates if event not in holders]


@pytest.mark.parametrize("make", LIVE, ids=lambda make: make.__name__)
def test_on_the_cpu_the_kernels_and_their_times_are_those_of_torchs_events(both, make):
    ours, theirs = both(make)
    events, whole = events_of(theirs)
    begin, until = whole.start_ns(), whole.start_ns() + whole.duration_ns()
    found = kernels_of([event for event in events if begin <= event.start < until])
    (step,) = ours.steps
    assert found
    assert [kernel.name for kernel in step.kernels] == [
        event.name for event in sorted(found, key=lambda one: one.start)
    ]
    assert [kernel.duration_us for kernel in step.kernels] == [
        (event.end - event.start) / 1000 for event in sorted(found, key=lambda one: one.start)
    ]
    assert step.kernel_time_us == step.gpu_time_us == sum(event.end - event.start for event in found) / 1000
    assert step.gpu_span_us == (max(event.end for event in found) - min(event.start for event in found)) / 1000
    edges = sorted({moment for event in found for moment in event[2:]})
    covered = [b - a for a, b in pairwise(edges) if any(event.start <= a and b <= event.end for event in found)]
    assert step.gpu_busy_us == sum(covered) / 1000
    assert step.cpu_time_us == (until - begin) / 1000


@pytest.mark.parametrize("make", LIVE, ids=lambda make: make.__name__)
def test_on_the_cpu_no_kernel_is_counted_more_often_than_torch_averages_over(both, make):
    ours, theirs = both(make)
    averages = {row.key: row.count for row in theirs.key_averages()}
    found = Counter(kernel.name for kernel in ours.kernels)
    assert {name: times for name, times in found.items() if times > averages[name]} == {}


# ----------------------------------------------------------------------------------------------------------------------
# Compilation, from what Dynamo counts itself


@pytest.fixture
def measured(tmp_path):
    """Return a function that measures code as a test's is measured, and gives the profile."""
    numbers = count()

    def run(code, *, warmup=1, steps=3):
        path = tmp_path / f"{next(numbers)}.json"
        plan = Plan(device="cpu", warmup=warmup, steps=steps, record=frozenset(), nodeid="t.py::t", label=None)
        calls = iterations(plan, path, lambda _: None)
        for _ in calls:
            code()
        return load(path)

    return run


def no_break(x):
    return x.sin()


def one_break(x):
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def two_breaks(x):
    x = x.sin()
    torch._dynamo.graph_break()
    x = x.cos()
    if x.sum() > 1e9:
        return x
    return x.tan()


@pytest.mark.parametrize("function", [no_break, one_break, two_breaks])
def test_graph_breaks_are_those_that_dynamo_explains(measured, function):
    x = torch.ones(4)
    torch._dynamo.reset()
    explained = torch._dynamo.explain(function)(x).graph_break_count
    torch._dynamo.reset()
    assert measured(partial(torch.compile(function, backend="eager"), x)).graph_breaks == explained


@pytest.mark.parametrize("sizes", [1, 2, 4])
def test_recompiles_are_the_graphs_behind_the_first(measured, sizes):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    function = torch.compile(lambda x: x.sin(), backend=counter, dynamic=False)
    rows = count()
    found = measured(lambda: function(torch.ones(1 + next(rows) % sizes, 2)), warmup=1, steps=5)
    assert found.recompiles == counter.frame_count - 1 == sizes - 1


LIVE_ONLY = {"graph_breaks", "recompiles"}
ON_A_GPU = {"peak_memory_bytes"}


def test_every_number_of_the_table_has_a_witness():
    """That of peak memory is torch's allocator, in tests/gpu/test_gpu_capture.py."""
    assert {*OF_A_STEP} == {*OF_STEP}
    assert {*OF_THE_WINDOW} | LIVE_ONLY | ON_A_GPU == {*OF_WINDOW}
    assert {*OF_A_STEP} | {*OF_THE_WINDOW} | LIVE_ONLY | ON_A_GPU == {*BY_NAME}

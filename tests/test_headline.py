"""The headline of a recording: true, of exactly one event, and the first thing that is said."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from builder import TraceBuilder
from conftest import SHARED_TRACES
from msgspec.structs import replace
from raw_events import union

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.findings import find, find_with_events
from pytest_torchprof.findings.catalogue.headlines import (
    CpuComputed,
    GpuBusy,
    GpuCommunicated,
    GpuHeldUp,
    GpuIdled,
    Headline,
    IdleDevice,
    NotMeasuredHeadline,
)
from pytest_torchprof.findings.headline import headline_of
from pytest_torchprof.text.units import show_us

pytestmark = pytest.mark.any_torch

OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
PROFILERS_OWN = {"Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "Command Buffer Full"}
SHARED = sorted(SHARED_TRACES.glob("*.json.gz"))


def occupied(trace, window, gpu_ops):
    """Return for each device the instants at which it begins and ends to be busy, by an event for each edge."""
    devices = {}
    for i in gpu_ops:
        start, end = max(trace.gpu.start[i], window[0]), min(trace.gpu.end[i], window[1])
        if end > start:
            devices.setdefault(trace.device_of[trace.gpu.process[i]], []).append((start, end))
    spans = {}
    for device, pieces in devices.items():
        edges = sorted(
            [(start, 1) for start, _ in pieces] + [(end, -1) for _, end in pieces], key=lambda e: (e[0], -e[1])
        )
        running, since, spans[device] = 0, 0, []
        for instant, change in edges:
            since = instant if running == 0 else since
            running += change
            if running == 0:
                spans[device].append((since, instant))
    return spans


def window_of(trace):
    ends = [step.end_ns for step in trace.steps] + [*trace.gpu.end]
    return trace.steps[0].start_ns, max(ends)


def check_idled(trace, headline):
    window = window_of(trace)
    busy = occupied(trace, window, range(len(trace.gpu)))
    own = [
        (max(start, window[0]), min(end, window[1]))
        for name, start, end in zip(trace.overheads.name, trace.overheads.start, trace.overheads.end, strict=True)
        if trace.names[name] in PROFILERS_OWN and end > window[0] and start < window[1]
    ]
    busy = {device: union([*each, *own]) for device, each in busy.items()}
    spans = [[(window[0], window[0]), *each, (window[1], window[1])] for each in busy.values()]
    gaps = [after[0] - before[1] for each in spans for before, after in pairwise(each)]
    length = window[1] - window[0]
    worked = [sum(end - start for start, end in each) / length for each in busy.values()]
    assert headline.share == pytest.approx(1 - sum(worked) / len(worked))
    assert headline.share >= 0.2
    # Another gap than the longest one only where that was spent with what is done once (see test_findings_witness).
    assert (headline.once_us or headline.longest_us) == max(gaps) / 1000
    ((start, end, beside),) = headline.events.gaps
    assert (end - start) / 1000 == headline.longest_us
    assert end - start in gaps
    on_device = [i for i in range(len(trace.gpu)) if trace.device_of[trace.gpu.process[i]] == device_of(trace, beside)]
    assert not any(trace.gpu.start[i] < end and start < trace.gpu.end[i] for i in on_device)
    step = trace.step_of_gpu_op[beside]
    earlier = [i for i in on_device if trace.step_of_gpu_op[i] == step and trace.gpu.start[i] < trace.gpu.start[beside]]
    assert headline.begins == (step >= 0 and not earlier and not headline.is_last)
    assert headline.begins_step in (None, trace.steps[step].name)
    if headline.recaptured_from_us:
        assert headline.recaptured_us >= 0.5 * headline.share * headline.window_us
        assert {trace.names[trace.ops.name[i]] for i in recapturing(trace, headline)} == {*headline.recaptured_in}
    assert headline.late_us == pytest.approx(waited_for_launches(trace, union(own), window))
    if headline.is_last:
        assert end == window[1]
    else:
        assert trace.gpu.start[beside] == min(trace.gpu.start[i] for i in on_device if trace.gpu.start[i] >= end)


def check_findings(profile, headline):
    """What findings could save is what the headline says was lost, each time without what it tells apart."""
    saved = {finding.code: finding for finding in find(profile)}
    late_us = headline.late_us - (headline.late_once_us or 0.0)
    expected = {
        "overhead-bound": late_us,
        "launch-gaps": late_us - headline.recaptured_us,
        "graph-recaptured": headline.recaptured_us,
        "cold-start": headline.set_up_us,
    }
    if "launch-gaps" in saved and saved["launch-gaps"].is_for_data:
        expected["launch-gaps"] = headline.loading_us
    if "cold-start" in saved and (saved["cold-start"].first_step_us or saved["cold-start"].first_call_us):
        del expected["cold-start"]
    for code in saved.keys() & expected.keys():
        assert saved[code].saves_us == pytest.approx(expected[code], abs=0.01 * headline.window_us), code
    assert headline.stacks == (len(profile.trace.frames) > 0)


def recapturing(trace, headline):
    """Return the outermost operators that began when the headline says, in each of which a graph was captured."""
    ops, begun = trace.ops, [call for call in range(len(trace.calls)) if "BeginCapture" in name_of(trace, call)]
    outermost = [
        next(i for i in range(len(ops)) if (ops.start[i] - trace.steps[0].start_ns) / 1000 == since)
        for since in headline.recaptured_from_us
    ]
    assert all(any(ops.start[i] < trace.calls.start[c] < ops.end[i] for c in begun) for i in outermost)
    return outermost


def name_of(trace, call):
    return trace.names[trace.calls.name[call]]


def waited_for_launches(trace, own, window):
    """Return for how long a device idled while the call that launches its next operation had not come back."""
    gpu, late, devices = trace.gpu, 0, {}
    for i in range(len(gpu)):
        devices.setdefault(trace.device_of[gpu.process[i]], []).append(i)
    for ops in devices.values():
        idle_since = window[0]
        for i in sorted(ops, key=lambda i: (gpu.start[i], -gpu.end[i])):
            call = trace.links.call_of[i]
            if call >= 0 and trace.step_of_gpu_op[i] >= 0 and trace.calls.start[call] > idle_since:
                until = min(gpu.start[i], trace.calls.end[call])
                late += max(until - idle_since, 0)
                late -= sum(max(min(until, end) - max(idle_since, start), 0) for start, end in own)
            idle_since = max(idle_since, gpu.end[i])
    return late / 1000 / len(devices)


def check_held_up(trace, headline):
    """That is of no recording of ours, which waits for the GPU before it begins."""
    assert trace.metadata is None
    ((start, end, beside),) = headline.events.gaps
    gpu, call = trace.gpu, trace.links.call_of[beside]
    assert trace.calls.end[call] <= start < end <= gpu.start[beside]
    same = [i for i in range(len(gpu)) if (gpu.process[i], gpu.stream[i]) == (gpu.process[beside], gpu.stream[beside])]
    assert gpu.start[beside] == min(gpu.start[i] for i in same)
    assert not any(gpu.start[i] < end and start < gpu.end[i] for i in range(len(gpu)))
    window = window_of(trace)
    (spans,) = occupied(trace, window, range(len(gpu))).values()
    idle_ns = window[1] - window[0] - sum(until - since for since, until in spans)
    assert idle_ns / 2000 <= headline.held_us <= idle_ns / 1000
    assert headline.held_us >= headline.longest_us == (end - start) / 1000


def device_of(trace, gpu_op):
    return trace.device_of[trace.gpu.process[gpu_op]]


def check_communicated(profile, headline):
    trace, gpu = profile.trace, profile.trace.gpu
    names = {index for index, name in enumerate(trace.names) if name.startswith(("nccl", "rccl"))}
    talking = [i for i in range(len(gpu)) if gpu.name[i] in names]
    window = window_of(trace)
    everything = occupied(trace, window, range(len(gpu)))
    others = occupied(trace, window, set(range(len(gpu))) - set(talking))
    total = {device: sum(end - start for start, end in spans) for device, spans in everything.items()}
    apart = {device: sum(end - start for start, end in spans) for device, spans in others.items()}
    shares = [(total[device] - apart.get(device, 0)) / (window[1] - window[0]) for device in total]
    assert headline.share == pytest.approx(sum(shares) / len(shares))
    (longest,) = headline.events.gpu_ops
    assert longest in talking
    assert gpu.end[longest] - gpu.start[longest] == max(gpu.end[i] - gpu.start[i] for i in talking)


def check_busy(profile, headline):
    trace = profile.trace
    window = window_of(trace)
    busy = occupied(trace, window, range(len(trace.gpu)))
    shares = [sum(end - start for start, end in spans) / (window[1] - window[0]) for spans in busy.values()]
    assert headline.share == pytest.approx(sum(shares) / len(shares))
    first = min(trace.gpu.start[i] for i in range(len(trace.gpu)) if trace.step_of_gpu_op[i] >= 0)
    later = [i for i in range(len(trace.gpu)) if trace.step_of_gpu_op[i] >= 0 or trace.gpu.start[i] >= first]
    own = occupied(trace, window, later)
    covered = sum(end - start for spans in own.values() for start, end in spans) / (window[1] - window[0]) / len(busy)
    earlier = headline.share - covered
    assert headline.earlier_share == (None if earlier < 0.05 else pytest.approx(earlier))
    kernels = [kernel for step in profile.steps for kernel in step.kernels]
    spent = {}
    for kernel in kernels:
        spent[kernel.short] = spent.get(kernel.short, 0.0) + kernel.duration_us
    assert max(spent, key=spent.__getitem__) == headline.name
    assert headline.name_share == pytest.approx(spent[headline.name] / sum(spent.values()))
    of_name = [kernel.duration_us for kernel in kernels if kernel.short == headline.name]
    assert headline.longest_us == max(of_name)
    (longest,) = headline.events.gpu_ops
    assert (trace.gpu.end[longest] - trace.gpu.start[longest]) / 1000 == max(of_name)


def check_cpu(profile, headline):
    kernels = [kernel for step in profile.steps for kernel in step.kernels]
    spent = {}
    for kernel in kernels:
        spent[kernel.name] = spent.get(kernel.name, 0.0) + kernel.duration_us
    assert max(spent, key=spent.__getitem__) == headline.name
    assert headline.name_share == pytest.approx(spent[headline.name] / sum(spent.values()))
    assert headline.longest_us == max(kernel.duration_us for kernel in kernels if kernel.name == headline.name)


@pytest.fixture(scope="module", params=[*OWN, *SHARED], ids=lambda path: path.name.partition(".")[0])
def read(request):
    """Return each recording; all tests of one come before those of the next, so that each is read once."""
    return load(request.param)


def test_the_headline_is_true(read):
    """By a second computation, from the events themselves."""
    headline = headline_of(read)
    if isinstance(headline, GpuIdled):
        check_idled(read.trace, headline)
        check_findings(read, headline)
    elif isinstance(headline, GpuHeldUp):
        check_held_up(read.trace, headline)
    elif isinstance(headline, GpuCommunicated):
        check_communicated(read, headline)
    elif isinstance(headline, GpuBusy):
        check_busy(read, headline)
    elif isinstance(headline, CpuComputed):
        check_cpu(read, headline)
    elif isinstance(headline, NotMeasuredHeadline):
        assert not read.measured or read.kernels_unknown is not None
    else:
        assert isinstance(headline, IdleDevice)
        assert not any(step.part.gpu_ops or step.part.operators for step in read.steps)


def steady(gap, *, name="ampere_sgemm_128x64_tn"):
    """Return 20 kernels of 10 us, ``gap`` us apart; the fifth gap is twice as long."""
    builder, at = TraceBuilder(), 0
    for number in range(20):
        builder.launched(name, at, dur=10, wait=2)
        at += 10 + gap * (2 if number == 4 else 1)
    return builder


def test_a_gpu_that_waits_is_told_with_its_longest_gap(tmp_path):
    headline = headline_of(load(steady(20).write(tmp_path / "t.json")))
    assert isinstance(headline, GpuIdled)
    assert headline.longest_us == 40
    assert (headline.name, headline.is_last) == ("aten::mul", False)


@pytest.mark.parametrize("own", [False, True], ids=["foreign", "own"])
def test_a_gpu_that_works_on_what_came_before_the_recording_is_not_called_idle(own, tmp_path):
    builder = steady(0)
    # Its launch returns at once, and it runs 2 ms later: what was queued before it has no event.
    builder.launched("ampere_sgemm_128x64_nn", 300, dur=10, wait=2000, stream=9)
    builder.annotation("ProfilerStep#0", 0, 2400)
    if own:
        builder.own(steps=1)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert isinstance(headline, GpuIdled if own else GpuHeldUp)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("begins", [False, True])
def test_a_gap_before_the_first_operation_of_a_step_is_called_so(begins, steps, tmp_path):
    builder = TraceBuilder()
    for number in range(steps):
        at = 1000 * number
        builder.annotation(f"ProfilerStep#{number}", at, 1000)
        builder.launched("ampere_sgemm_128x64_tn", at + (400 if begins else 1), dur=300, wait=2)
        builder.launched("ampere_sgemm_128x64_nn", at + 800, dur=150, wait=2)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert headline.begins == begins
    assert (headline.begins_step is not None) == (begins and steps > 1)
    assert ("first operation" in headline.message) == begins


def load_data(builder):
    builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 9000)


def set_up(builder):
    builder.call("cudaMalloc", 20, 9000)


def launch_early(builder):
    for event in builder.events:
        if event["name"] == "cudaLaunchKernel" and event["ts"] > builder.begin + 5000:
            event["ts"] = builder.begin + 20


def compute_on_the_cpu(builder):
    builder.op("aten::item", 20, 9000)


@pytest.mark.parametrize(
    ("meanwhile", "happens"),
    [
        ("loading", load_data),
        ("set_up", set_up),
        ("queued", launch_early),
        ("silent", lambda _: None),
        (None, compute_on_the_cpu),
    ],
    ids=["loading", "set up", "queued", "silent", "none of these"],
)
def test_the_headline_says_what_went_on_in_the_longest_gap(meanwhile, happens, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 10_000)
    builder.launched("ampere_sgemm_128x64_tn", 1, dur=10)
    builder.launched("ampere_sgemm_128x64_nn", 9500, dur=10)
    happens(builder)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert isinstance(headline, GpuIdled)
    assert headline.meanwhile == meanwhile
    assert headline.set_up_us == (9000 if meanwhile == "set_up" else 0)
    assert ("warm" in headline.what) == (meanwhile == "set_up")
    assert len({kind.passed for kind in (headline, replace(headline, meanwhile=None))}) == 1 + (meanwhile is not None)


@pytest.mark.parametrize("stacks", [False, True], ids=["without stacks", "with stacks"])
@pytest.mark.parametrize("allocates", [0, 2000])
def test_time_that_launches_take_is_told_apart_from_set_up_and_from_what_recording_python_adds(
    allocates, stacks, tmp_path
):
    builder = TraceBuilder()
    builder.step(0, 0, 10_000)
    builder.launched("ampere_sgemm_128x64_tn", 1, dur=10)
    builder.launched("ampere_sgemm_128x64_nn", 9500, dur=10)
    if allocates:
        builder.call("cudaMalloc", 20, allocates)
    if stacks:
        builder.event("python_function", "train.py(12): step", 0, 9400)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert headline.late_once_us == (allocates or None)
    assert headline.stacks == stacks
    assert ("2.00 ms" in headline.aside, "Python" in headline.aside) == (bool(allocates), stacks)
    assert headline.aside in headline.what


@pytest.mark.parametrize("held", [False, True], ids=["at its own pace", "held up"])
def test_a_rank_that_waits_for_another_and_for_its_own_cpu_says_both(held, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 100_000)
    for name in ("aten::view", "aten::expand", "aten::t", "aten::empty", "aten::select"):
        for number in range(3):
            builder.op(name, 100 * number, 5)
    builder.launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)", 500, dur=60_000)
    if held:
        for at, name in enumerate(("aten::view", "aten::expand", "aten::t", "aten::empty", "aten::select")):
            builder.op(name, 61_000 + 6_000 * at, 5_900)
    builder.launched("ampere_sgemm_128x64_nn", 98_000, dur=1_000)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert isinstance(headline, GpuCommunicated)
    assert headline.name == "all_reduce (ncclDevKernel_AllReduce)"
    assert headline.held_us == (29_500 if held else None)
    assert (headline.held in headline.what, bool(headline.held)) == (True, held)


def test_what_another_gpu_waits_for_is_not_what_the_longest_gap_was_spent_with(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 10_000)
    builder.launched("ampere_sgemm_128x64_tn", 1, dur=10)
    builder.op("aten::sort", 20, 9400)
    builder.launched("ampere_sgemm_128x64_tn", 9500, dur=10)
    # On the other GPU: launched at once, and it waits for nearly as long.
    builder.kernel("ampere_sgemm_128x64_nn", 8000, 1900, builder.launch(5), device=1)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert isinstance(headline, GpuIdled)
    assert headline.longest_us > 9000
    assert headline.meanwhile is None


@pytest.mark.parametrize("once", [200, 2000])
def test_the_longest_gap_is_another_one_where_only_that_one_is_what_is_done_once(once, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 3000 + once)
    for number in range(30):
        builder.launched("ampere_sgemm_128x64_tn", number * 100 + (once if number > 9 else 0), dur=10)
    builder.call("cudaMalloc", 930, once)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert headline.set_up_us == once
    if once == 200:
        assert (headline.once_us, headline.longest_us, headline.meanwhile) == (290, 90, "silent")
        assert headline.where.startswith("The longest gap, 290 us, was")
    else:
        assert (headline.once_us, headline.longest_us, headline.meanwhile) == (None, 2090, "set_up")


def test_what_else_takes_much_of_the_time_is_said_too(tmp_path):
    def shares(*, communicating, idle):
        builder = TraceBuilder()
        builder.step(0, 0, 1000)
        nccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        builder.kernel(nccl, 10, communicating, builder.launch(0))
        rest = 990 - communicating - idle
        builder.kernel("ampere_sgemm_128x64_tn", 10 + communicating, rest, builder.launch(5))
        return headline_of(load(builder.write(tmp_path / "t.json")))

    headline = shares(communicating=500, idle=300)
    assert isinstance(headline, GpuCommunicated)
    assert (headline.share, headline.idle_share) == (0.5, pytest.approx(0.31))
    assert shares(communicating=500, idle=100).idle_share is None
    headline = shares(communicating=300, idle=500)
    assert isinstance(headline, GpuIdled)
    assert (headline.share, headline.communicating_share) == (pytest.approx(0.51), 0.3)
    assert shares(communicating=100, idle=500).communicating_share is None


def test_a_gpu_that_works_is_told_with_its_costliest_kernel(tmp_path):
    headline = headline_of(load(steady(0).write(tmp_path / "t.json")))
    assert isinstance(headline, GpuBusy)
    assert headline.name_share == 1
    assert headline.longest_us == 10


@pytest.mark.parametrize(
    ("gap", "first"), [(100, "The longest of 20 gaps, 200 us, "), (0, "The longest gap, 200 us, ")]
)
def test_a_gap_that_is_one_of_many_is_called_so(gap, first, tmp_path):
    builder, at = TraceBuilder(), 0
    for number in range(20):
        builder.launched("ampere_sgemm_128x64_tn", at, dur=10, wait=2)
        at += 10 + (200 if number == 4 else gap)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert headline.where.startswith(first)


@pytest.mark.parametrize("is_of_a_step", [True, False])
def test_a_gpu_that_works_on_what_came_before_says_so(is_of_a_step, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 200)
    builder.kernel("ampere_sgemm_128x64_tn", 0, 50, builder.launch(1 if is_of_a_step else -20))
    for number in range(1, 4):
        builder.launched("ampere_sgemm_128x64_tn", number * 50 - 5, dur=50, wait=5)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert headline.earlier_share == (None if is_of_a_step else pytest.approx(50 / 203))
    assert ("launched before" in headline.what) != is_of_a_step


def test_a_process_that_only_communicates_on_the_cpu_says_so(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.op("aten::mm", 10, 100)
    builder.event("cpu_op", "c10d::allreduce_", 150, 5, **{"Input Dims": [[[250]]], "Input type": ["TensorList"]})
    told = {"Input Dims": [[250]], "Input type": ["float"]}
    builder.event("user_annotation", "gloo:all_reduce", 160, 600, tid=7, **told)
    headline = headline_of(load(builder.write(tmp_path / "t.json"), device="cpu"))
    assert isinstance(headline, CpuComputed)
    assert headline.communicating_share == pytest.approx(0.6)


def test_what_is_not_measured_has_no_number(tmp_path):
    builder = TraceBuilder()
    builder.launched("kernel", 0)
    builder.launch(100)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert isinstance(headline, NotMeasuredHeadline)
    assert headline.reason.code == "lost-kernels"
    assert headline.in_words()["facts"]["reason"]["reason"] == "lost-kernels"
    assert headline.events is None


def test_analyze_begins_with_it_and_ends_with_what_to_do(tmp_path, capsys):
    path = steady(20).write(tmp_path / "t.json")
    assert main(["analyze", str(path)]) == 0
    shown = capsys.readouterr().out
    headline = headline_of(load(path))
    # Only line breaks differ.
    assert " ".join(shown.split()).startswith(headline.message)
    # A path that is long has line breaks at its hyphens, too.
    last = "".join(shown.rpartition("\nnext\n")[2].split())
    assert f"torchprofreport{path}-opage.html" in last
    code = last.rpartition("--limitforbid=")[2]
    assert main(["check", str(path), "--limit", f"forbid={code}"]) == 1


def test_json_has_its_facts(tmp_path, capsys):
    path = steady(20).write(tmp_path / "t.json")
    assert main(["analyze", "--json", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)["headline"]
    facts = shown["facts"]
    assert (shown["headline"], facts["longest_us"], facts["name"]) == ("gpu-idled", 40, "aten::mul")
    assert shown["message"] == headline_of(load(path)).message
    assert "events" not in facts


def kinds(kind=Headline):
    """Return all kinds of headlines."""
    return [each for sub in kind.__subclasses__() for each in ([sub] if hasattr(sub, "WHAT") else []) + kinds(sub)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("several", [False, True])
def test_each_kind_can_be_said(kind, several):
    values = {"int": 2 if several else 1, "float": 0.5, "str": "name", "bool": several}
    types = {field.name: field for field in msgspec.structs.fields(kind)}
    facts = {
        name: values.get(next(iter(getattr(field.type, "__args__", (field.type,)))).__name__, "name")
        for name, field in types.items()
        if name not in ("events", "meanwhile")
    }
    headline = kind(**facts)
    assert "{" not in headline.message
    assert headline.message.startswith(headline.what)


def test_the_line_of_a_steps_first_operation_is_not_where_to_look(tmp_path):
    """Until it was launched the GPU idled, whatever it is."""
    headline = GpuIdled(window_us=1000.0, share=0.9, devices=1, longest_us=400.0, name="aten::mm", source="model.py:3")
    assert "model.py:3" in headline.where
    assert "model.py:3" not in replace(headline, begins=True).where
    assert "aten::mm" in replace(headline, begins=True).where


def test_what_may_not_be_idle_is_not_called_idle_first():
    headline = GpuIdled(window_us=1000.0, share=0.6, devices=1, longest_us=400.0, name="aten::mm")
    assert headline.what.startswith("The GPU idled 60%")
    assert not replace(headline, queued_us=400.0).what.startswith("The GPU idled")


def test_data_that_loads_is_told_with_how_much_of_the_wait_it_is(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 10_000)
    builder.launched("ampere_sgemm_128x64_tn", 1, dur=10)
    builder.launched("ampere_sgemm_128x64_tn", 4000, dur=10)
    builder.launched("ampere_sgemm_128x64_nn", 9500, dur=10)
    builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 2000)
    headline = headline_of(load(builder.write(tmp_path / "t.json")))
    assert (headline.late_us, headline.loading_us) == (pytest.approx(9475, abs=10), 2000)
    # All else of that time has no event.
    assert headline.silent_us == pytest.approx(headline.late_us - 2000, abs=20)


def test_when_a_graph_was_captured_again_is_enumerated():
    headline = GpuIdled(window_us=1000.0, share=0.9, devices=1, longest_us=400.0, name="aten::mm", recaptured_us=800.0)
    told = {
        calls: replace(headline, recaptured_from_us=tuple(map(float, range(1, calls + 1)))).what for calls in (1, 3, 5)
    }
    assert "began 1.00 us after" in told[1]
    assert "began 1.00 us, 2.00 us and 3.00 us after" in told[3]
    assert "began 1.00 us, 2.00 us, 3.00 us and 2 more after" in told[5]


def test_no_wait_that_is_named_beside_what_can_be_saved_is_longer_than_that(read):
    for finding in find_with_events(read):
        if finding.code in ("overhead-bound", "launch-gaps"):
            assert (show_us(finding.longest_us) in finding.at) <= (finding.longest_us <= finding.saves_us), finding.at


def test_the_longest_gap_has_one_length_in_the_headline_and_in_what_is_said_of_its_launch(read):
    headline = headline_of(read)
    late = [own for own in find_with_events(read) if own.code in ("overhead-bound", "launch-gaps")]
    if not isinstance(headline, GpuIdled) or not late:
        pytest.skip("it did not idle for want of launches")
    (gap,) = headline.events.gaps
    for finding in late:
        longest = max(finding.events.gaps, key=lambda one: one[1] - one[0])
        if gap[0] <= longest[0] and longest[1] <= gap[1]:
            assert finding.longest_gap_us == headline.longest_us
            assert show_us(headline.longest_us) in finding.message

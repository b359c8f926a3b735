"""What torch 2.15's exporters write otherwise: streams that were moved, samples of the hardware, nodes of graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builder import own_recording
from facts import says

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.baseline import entry_of, read, update
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.lost_work import LostGraphKernels

pytestmark = pytest.mark.any_torch

SAMPLED = {
    "torch's own profiler": {"ph": "C", "name": "SM Active (%)", "pid": "GPU 0 Counters", "args": {"": 40.0}},
    "a metric without a name of torch's": {
        "ph": "C",
        "name": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        "pid": "GPU 0 Counters",
        "args": {"": 40.0},
    },
    "kineto": {"ph": "C", "cat": "hardware_counters", "name": "anything", "pid": 0, "args": {"dram__throughput": 1}},
    "kineto, as ranges": {
        "ph": "X",
        "cat": "hardware_counters",
        "name": "CUPTI PM Sampling",
        "pid": 0,
        "tid": 0,
        "dur": 1000,
        "args": {"sm__cycles_active.avg": 4},
    },
}


@pytest.fixture
def write(tmp_path):
    def write(builder, name="t.json"):
        return str(builder.write(tmp_path / name))

    return write


def with_events(*events):
    builder = own_recording({"k": 2})
    builder.events += [{"ts": 1_000_100, **event} for event in events]
    return builder


# ----------------------------------------------------------------------------------------------------------------------
# graph_lanes="all": kernels of graphs are shown on other streams than they ran on


def test_a_kernel_that_was_moved_to_another_lane_is_on_the_stream_on_which_it_ran(write):
    builder = own_recording({}, steps=1)
    launch = builder.graph_launch(100)
    builder.kernel("one", 110, 5, launch, stream=7, original_stream=13)
    builder.kernel("two", 112, 5, launch, stream=7, original_stream=21)
    trace = load(write(builder)).trace
    ran_on = {
        trace.names[name]: trace.streams[stream] for name, stream in zip(trace.gpu.name, trace.gpu.stream, strict=True)
    }
    assert ran_on == {"sentinel_kernel": 7, "one": 13, "two": 21}


# ----------------------------------------------------------------------------------------------------------------------
# PM sampling locks the GPU's clocks


@pytest.mark.parametrize("event", SAMPLED.values(), ids=SAMPLED)
def test_beside_samples_of_the_hardware_counts_are_judged_and_times_are_not_measured(write, event):
    profile = load(write(with_events(event)))
    profile.expect(max_kernels=2)
    for limit in ({"max_gpu_time": "1s"}, {"max_cpu_gpu_ratio": 100.0}):
        with pytest.raises(NotMeasured, match=r"PM sampling.*\[clocks-locked\]"):
            profile.expect(**limit)


@pytest.mark.parametrize("name", ["Power (W)", "SM Clock (MHz)", "Cycles (Current Kernel)", "memory", "my_counter"])
def test_other_counters_lock_nothing(write, name):
    profile = load(write(with_events({"ph": "C", "name": name, "pid": "GPU 0 Counters", "args": {"": 40.0}})))
    profile.expect(max_kernels=2, max_gpu_time="1s")


def slower(*events):
    builder = own_recording({"k": 2})
    for event in builder.events:
        if event.get("cat") == "kernel":
            event["dur"] *= 3
    builder.events += [{"ts": 1_000_100, **event} for event in events]
    return builder


def compared(capsys, *words):
    status = main(["diff", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def changed(comparison):
    return {change["what"] for change in comparison["changes"]}


@pytest.mark.parametrize("sampled", [(False, True), (True, False), (True, True)])
def test_times_of_recordings_at_locked_clocks_are_not_compared(write, capsys, sampled):
    locked = [[SAMPLED["kineto"]] if one else [] for one in sampled]
    files = write(with_events(*locked[0]), "a.json"), write(slower(*locked[1]), "b.json")
    status, comparison = compared(capsys, *files)
    assert status == 0
    assert tuple(comparison["sampled"]) == sampled
    assert comparison["cost"] is None
    assert changed(comparison) == set()
    plain = write(with_events(), "c.json"), write(slower(), "d.json")
    assert "gpu_busy_us" in changed(compared(capsys, *plain)[1])


def test_an_entry_holds_that_clocks_were_locked_and_its_times_are_not_compared(write, tmp_path, capsys):
    names = {"plain": with_events(), "slower": slower(), "locked": slower(SAMPLED["kineto"])}
    entries = {name: entry_of(load(write(builder, f"{name}.json")), source_hash="0") for name, builder in names.items()}
    for name, entry in entries.items():
        update(tmp_path / f"{name}-baseline.json", {"test_it": entry})
    kept = {name: str(tmp_path / f"{name}-baseline.json") for name in names}
    assert read(Path(kept["locked"])).entries == {"test_it": entries["locked"]}
    assert "samples_hardware" not in Path(kept["plain"]).read_text()
    assert "gpu_busy_us" in changed(compared(capsys, kept["plain"], kept["slower"])[1]["tests"]["test_it"])
    comparison = compared(capsys, kept["plain"], kept["locked"])[1]["tests"]["test_it"]
    assert changed(comparison) == set()
    assert comparison["families"] == []
    assert comparison["sampled"] == [False, True]


def test_an_analysis_says_that_clocks_were_locked(write, capsys):
    for events, locked in (([SAMPLED["kineto"]], True), ([], False)):
        file = write(with_events(*events))
        main(["analyze", file, "--json"])
        assert json.loads(capsys.readouterr().out)["trace"]["samples_hardware"] is locked
        main(["analyze", file])
        assert ("PM sampling" in capsys.readouterr().out) is locked


# ----------------------------------------------------------------------------------------------------------------------
# Nodes of graphs


def replays(nodes_of_each):
    """Return a recording with a replay in each step, whose kernels are the nodes with these numbers of one graph."""
    builder = own_recording({}, steps=len(nodes_of_each))
    for step, nodes in enumerate(nodes_of_each):
        launch = builder.graph_launch(1000 * step + 10)
        for node in nodes:
            at = 1000 * step + 20 + 10 * node
            builder.kernel(f"k{node}", at, 5, launch, **{"graph id": 3, "graph node id": node})
    return builder


def test_the_first_node_of_a_graph_is_0_where_only_the_low_bits_are_written(write):
    assert load(write(replays([(0, 1), (0, 1)]))).why_not is None
    doubt = load(write(replays([(0, 1), (1,)]))).doubt
    assert says(doubt, LostGraphKernels, graph=3, step=2, steps=2, found=1, whole=2)


@pytest.mark.parametrize("category", ["graph_host_node", "graph_event_node"])
def test_nodes_that_are_no_work_of_the_gpus_are_none(write, category):
    event = {"ph": "X", "cat": category, "name": "EventRecord", "pid": 0, "tid": 7, "dur": 1, "args": {"stream": 7}}
    load(write(with_events(event))).expect(max_kernels=2)

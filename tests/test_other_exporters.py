"""What torch 2.15's exporters write otherwise: streams that were moved, samples of the hardware, nodes of graphs."""

from __future__ import annotations

import pytest
from builder import own_recording

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.cli import main

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
        with pytest.raises(
            NotMeasured, match=r"PM sampling\), for which the profiler locks its clocks.*\[clocks-locked\]"
        ):
            profile.expect(**limit)


@pytest.mark.parametrize("name", ["Power (W)", "SM Clock (MHz)", "Cycles (Current Kernel)", "memory", "my_counter"])
def test_other_counters_lock_nothing(write, name):
    profile = load(write(with_events({"ph": "C", "name": name, "pid": "GPU 0 Counters", "args": {"": 40.0}})))
    profile.expect(max_kernels=2, max_gpu_time="1s")


def test_a_comparison_says_that_the_clocks_of_one_side_were_locked(write, capsys):
    plain, sampled = write(with_events(), "a.json"), write(with_events(SAMPLED["kineto"]), "b.json")
    told = (
        "times say nothing about the code: in the second the GPU's units were sampled (PM sampling), at locked clocks"
    )
    main(["diff", plain, sampled])
    assert told in capsys.readouterr().out.splitlines()
    for both in (plain, sampled):
        main(["diff", both, both])
        assert "locked" not in capsys.readouterr().out


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
    why_not = load(write(replays([(0, 1), (1,)]))).why_not
    assert why_not.startswith("the replay of graph 3 in step 2 of 2 has 1 of 2 operations in the recording")


@pytest.mark.parametrize("category", ["graph_host_node", "graph_event_node"])
def test_nodes_that_are_no_work_of_the_gpus_are_none(write, category):
    event = {"ph": "X", "cat": category, "name": "EventRecord", "pid": 0, "tid": 7, "dur": 1, "args": {"stream": 7}}
    load(write(with_events(event))).expect(max_kernels=2)

"""Faults of the profiler: what CUPTI refuses, loses and dates wrongly really is missing in torch's recording."""

from __future__ import annotations

import pytest
import torch
from fakegpu.recording import BOTH, CALLS, captured, events_of, kernels, launches
from torch.profiler import profile, schedule

pytestmark = pytest.mark.simulated_gpu


def adds(count):
    x = torch.ones(8, device="cuda")
    return lambda: [x.add_(1) for _ in range(count)]


def test_the_first_records_of_a_session_get_lost(recorded, fault):
    fault(CUPTI_DROP="3")
    events = recorded(adds(10), "kernel", *CALLS)
    assert (len(launches(events)), len(kernels(events))) == (10, 7)


def test_records_after_some_others_get_lost(recorded, fault):
    fault(CUPTI_DROP="2:1")
    events = recorded(adds(4), "kernel", *CALLS)
    seen = {event["args"]["correlation"] for event in kernels(events)}
    assert [event["args"]["correlation"] in seen for event in launches(events)] == [True, True, False, True]


def test_records_of_a_name_get_lost(recorded, fault):
    fault(CUPTI_DROP_NAME="sin_kernel:2")
    x = torch.ones(8, device="cuda")
    names = [event["name"] for event in kernels(recorded(lambda: [x.sin().cos() for _ in range(3)], "kernel"))]
    assert [sum(part in name for name in names) for part in ("sin_kernel", "cos_kernel")] == [1, 3]


def test_every_third_record_gets_lost(recorded, fault):
    fault(CUPTI_DROP_EVERY="3")
    assert [len(recorded(adds(10), "kernel")) for _ in range(2)] == [7, 7]


def test_each_session_after_idle_time_loses_one_more_of_its_first_records(process):
    """As in pytorch#192021: the records are there, dated so far back that torch finds them outside its window.

    A kernel right before a session does not make up for the idle time before it.
    """
    program = """
        import time
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(8, device="cuda")
        seen = []
        for idle in (0, 0, 2, 2, 0, 2):
            time.sleep(idle)
            x.sin()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
                for _ in range(10):
                    x.add_(1)
                torch.cuda.synchronize()
            seen.append(sum(e.device_type.name == "CUDA" for e in prof.events()))
        print(json.dumps(seen))
    """
    assert process(program, CUPTI_HEAD=1500) == [10, 10, 9, 8, 8, 7]
    assert process(program.replace("2", "0"), CUPTI_HEAD=0) == [10, 9, 8, 7, 6, 5]
    assert process(program) == [10] * 6


def test_a_replay_loses_one_of_its_kernels(recorded, fault):
    graph = captured(adds(5))
    fault(CUPTI_DROP_GRAPH="2:3")
    events = recorded(lambda: [graph.replay() for _ in range(3)], "kernel", *CALLS)
    of = [event["args"]["correlation"] for event in launches(events)]
    assert [sum(event["args"]["correlation"] == one for event in kernels(events)) for one in of] == [5, 4, 5]
    nodes = [event["args"]["graph node id"] for event in kernels(events) if event["args"]["correlation"] == of[1]]
    assert len(set(nodes)) == 4


def test_graphs_are_launched_and_none_of_their_kernels_is_seen(recorded, fault):
    graph = captured(adds(5))
    fault(CUPTI_DROP_GRAPH="all")
    x = torch.ones(8, device="cuda")
    events = recorded(lambda: (graph.replay(), x.add_(1)), "kernel", *CALLS)
    assert [event["name"] for event in launches(events)] == ["cudaGraphLaunch", "cudaLaunchKernel"]
    assert len(kernels(events)) == 1


def test_a_kernel_is_there_whose_launch_is_not(recorded, fault):
    fault(CUPTI_DROP_CALLS="cudaLaunchKernel")
    events = recorded(adds(4), "kernel", *CALLS)
    assert (len(launches(events)), len(kernels(events))) == (0, 4)


def test_kernels_of_before_the_window_have_no_launch_in_it(fault, tmp_path):
    fault(SLOW="elementwise=50000000")
    step = adds(4)
    with profile(activities=BOTH, schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as prof:
        step()
        prof.step()
        torch.cuda.synchronize()
        prof.step()
    events = events_of(prof, tmp_path, "kernel", *CALLS)
    assert launches(events) == []
    assert len(kernels(events)) >= 3  # whether the one that ran at its start belongs to it is the profiler's affair


COUNT = """
    from torch.profiler import ProfilerActivity, profile
    x = torch.ones(8, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for _ in range(500):
            x.add_(1)
        torch.cuda.synchronize()
    print(json.dumps(sum(e.device_type.name == "CUDA" for e in prof.events())))
"""


def test_the_profiler_runs_out_of_buffers_and_the_rest_is_lost(process):
    """kineto keeps 33 buffers. A kernel is at least two records: the call and itself."""
    assert 0 < process(COUNT, CUPTI_BUFFER=20) < 33 * 20 / 2
    assert process(COUNT) == 500


@pytest.mark.parametrize("code", ["35", "39", "cuptiActivityEnable:14"])
def test_refused_the_profiler_sees_no_kernel(process, code):
    """Not permitted; somebody else has subscribed; not compatible."""
    assert process(COUNT, CUPTI_ERROR=code) == 0

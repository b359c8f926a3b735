"""A replay of a CUDA graph that loses a kernel ends as not measured, whether another replay has it or not."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from facts import says, why_not
from fakegpu.recording import captured

import pytest_torchprof
from pytest_torchprof import capture
from pytest_torchprof.reasons.lost_work import LostGraphKernels, LostKernels

pytestmark = pytest.mark.simulated_gpu

STEPS = 3


def measured(graph, path):
    """Return the profile of steps of one replay each; NotMeasured after three attempts."""
    plan = capture.Plan(device="cuda:0", warmup=1, steps=STEPS, record=frozenset(), nodeid="t.py::t", label=None)
    with closing(capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).doubt)) as iterations:
        for _ in iterations:
            graph.replay()
    return pytest_torchprof.load(path)


def graph():
    capture.arm("cuda:0")
    x = torch.ones(8, device="cuda")
    return captured(lambda: x.add_(1).sin_().mul_(2).cos_())


def test_replays_that_lose_nothing_are_measured(tmp_path):
    assert [step.kernels.count for step in measured(graph(), tmp_path / "t.json").steps] == [4] * STEPS


def test_a_kernel_that_one_replay_loses(fault, tmp_path):
    replayed = graph()
    fault(CUPTI_DROP_GRAPH="2:3")
    why = why_not(lambda: measured(replayed, tmp_path / "t.json"))
    assert says(why, LostGraphKernels, step=2, steps=3, found=3, whole=4, others=0)


def test_a_kernel_that_every_replay_loses(fault, tmp_path):
    replayed = graph()
    fault(CUPTI_DROP_NAME="sin_kernel:1000")
    why = why_not(lambda: measured(replayed, tmp_path / "t.json"))
    assert says(why, LostGraphKernels, step=1, steps=3, found=3, whole=4, others=2)


OLDER = """
    from contextlib import closing
    from pathlib import Path
    import torch.cuda.graphs as graphs
    del graphs.register_graph_instantiate_hook, graphs.register_graph_replay_start_hook
    import pytest_torchprof
    from pytest_torchprof import NotMeasured, capture

    capture.arm("cuda:0")
    x, path = torch.ones(8, device="cuda"), Path({path!r})
    graph = torch.cuda.CUDAGraph({keep})
    with torch.cuda.graph(graph):
        x.add_(1).sin_().mul_(2).cos_()
    plan = capture.Plan(device="cuda:0", warmup=1, steps=3, record=frozenset(), nodeid="t.py::t", label=None)
    found = None
    try:
        with closing(capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).doubt)) as iterations:
            for _ in iterations:
                graph.replay()
    except NotMeasured as problem:
        found = str(problem)
    print(json.dumps([found, pytest_torchprof.load(path).trace.metadata.graph_replays]))
"""


def test_torch_before_2_14_has_no_hooks_and_captures_are_counted_where_they_end(process, tmp_path):
    """The hooks are taken away from a newer torch."""
    code = OLDER.format(path=str(tmp_path / "t.json"), keep="")
    assert process(code) == [None, [4, 4, 4]]
    why_not, _ = process(code, CUPTI_DROP_NAME="sin_kernel:1000")
    assert "step 1 of 3 has 3 of 4 operations" in why_not


def test_there_a_graph_that_its_owner_keeps_may_be_changed_and_is_held_against_nothing(process, tmp_path):
    code = OLDER.format(path=str(tmp_path / "t.json"), keep="keep_graph=True")
    assert process(code) == [None, [None, None, None]]


def test_every_kernel_of_every_replay(fault, tmp_path):
    replayed = graph()
    fault(CUPTI_DROP_GRAPH="all")
    why = why_not(lambda: measured(replayed, tmp_path / "t.json"))
    assert says(why, LostKernels, lost=3, launches=3)

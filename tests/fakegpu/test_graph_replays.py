"""A replay of a CUDA graph that loses a kernel ends as not measured, whether another replay has it or not."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from fakegpu.recording import captured

import pytest_torchprof
from pytest_torchprof import NotMeasured, capture

pytestmark = pytest.mark.simulated_gpu

STEPS = 3


def measured(graph, path):
    """Return the profile of steps of one replay each; NotMeasured after three attempts."""
    plan = capture.Plan(device="cuda:0", warmup=1, steps=STEPS, record=frozenset(), nodeid="t.py::t", label=None)
    with closing(capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).why_not)) as iterations:
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
    with pytest.raises(NotMeasured, match=r"the replay of graph \d+ in step 2 of 3 has 3 of 4 operations"):
        measured(replayed, tmp_path / "t.json")


def test_a_kernel_that_every_replay_loses(fault, tmp_path):
    replayed = graph()
    fault(CUPTI_DROP_NAME="sin_kernel:1000")
    with pytest.raises(NotMeasured, match=r"step 1 of 3 has 3 of 4 operations .* as it did in 2 other replays"):
        measured(replayed, tmp_path / "t.json")


def test_every_kernel_of_every_replay(fault, tmp_path):
    replayed = graph()
    fault(CUPTI_DROP_GRAPH="all")
    with pytest.raises(NotMeasured, match="3 of 3 launches have no kernel"):
        measured(replayed, tmp_path / "t.json")

"""Work that leaves no event on the CPU as device: kernels that nobody sees are not measured, and Python is no kernel."""

from __future__ import annotations

import time

import pytest
import torch
from builder import MAIN, TraceBuilder
from facts import says, why_not

from pytest_torchprof import LimitsMissed, NotMeasured, capture, load
from pytest_torchprof.reasons.lost_work import UnseenWork

OTHER = 4242
"""A thread of torch's."""


def recording(tmp_path, *, cpu_times_us, holder="forward", kernel_us=1000, tid=MAIN, wait_us=0, **more):
    """Return steps whose one operator of 18 ms holds a kernel, and nothing else that was recorded, before a wait."""
    builder = TraceBuilder()
    if cpu_times_us is not None:
        more["step_cpu_times_us"] = cpu_times_us
    builder.own(device="cpu", steps=len(cpu_times_us or [0, 0]), **more)
    for number in range(len(cpu_times_us or [0, 0])):
        at = number * (30_000 + wait_us)
        builder.step(number, at, 20_000 + wait_us)
        builder.op(holder, at + 1000, 18_000, tid=tid)
        builder.op("aten::mm", at + 2000, kernel_us, tid=tid)
    return load(builder.write(tmp_path / "t.json"))


@pytest.mark.parametrize("holder", ["forward", "mine::op", "FnBackward", "torch::autograd::CppNode<Mine>"])
def test_what_an_operator_computes_without_events_leaves_its_kernels_unknown(tmp_path, holder):
    profile = recording(tmp_path, cpu_times_us=[19_000.0, 19_000.0], holder=holder)
    reason = why_not(lambda: profile.expect(max_kernels=1))
    assert says(reason, UnseenWork, operator=holder, most_us=15_000)
    assert "unseen-work" in str(profile.kernels_unknown)


@pytest.mark.parametrize("holder", ["forward", "mine::op", "FnBackward", "torch::autograd::CppNode<Mine>"])
def test_a_wait_in_the_step_hides_no_work_without_events(tmp_path, holder):
    profile = recording(tmp_path, cpu_times_us=[19_000.0] * 2, holder=holder, wait_us=50_000)
    assert says(why_not(lambda: profile.expect(max_kernels=1)), UnseenWork, most_us=16_000)


@pytest.mark.parametrize("told_by", ["world", "collective"])
def test_a_wait_for_other_ranks_is_no_work(tmp_path, told_by):
    builder = TraceBuilder()
    ranks = {"world_size": 2, "rank": 0} if told_by == "world" else {}
    builder.own(device="cpu", steps=2, step_cpu_times_us=[12_000.0] * 2, **ranks)
    for number in range(2):
        at = number * 90_000
        builder.step(number, at, 80_000)
        builder.op("mine::op", at + 1000, 70_000)
        builder.op("aten::mm", at + 2000, 1000)
        if told_by == "collective":
            told = {"Collective name": "allreduce", "Group size": 2, "dtype": "Float", "In msg nelems": 4}
            builder.op("record_param_comms", at + 4000, 18, **told)
    load(builder.write(tmp_path / "t.json")).expect(max_kernels=1)


def test_a_pause_at_another_place_in_each_step_is_no_work(tmp_path):
    builder = TraceBuilder()
    builder.own(device="cpu", steps=2, step_cpu_times_us=[10_000.0] * 2)
    for number in range(2):
        at = number * 90_000
        builder.step(number, at, 80_000)
        for place in range(2):
            builder.op("mine::op", at + 1000 + place * 18_000, 17_000 if place == number else 2500)
            builder.op("aten::mm", at + 2000 + place * 18_000, 1000)
    load(builder.write(tmp_path / "t.json")).expect(max_kernels=2)


@pytest.mark.parametrize(
    "known",
    [
        {"cpu_times_us": [2900.0, 2900.0]},
        {"cpu_times_us": None},
        {"cpu_times_us": [19_000.0] * 2, "kernel_us": 16_000},
        {"cpu_times_us": [19_000.0, 2500.0, 2500.0]},
        {"cpu_times_us": [19_000.0] * 2, "holder": "Optimizer.step#SGD.step"},
        {"cpu_times_us": [19_000.0] * 2, "holder": "autograd::engine::evaluate_function: MmBackward0"},
        {"cpu_times_us": [19_000.0] * 2, "holder": "RegisterPostBackwardFunctionBackward"},
        {"cpu_times_us": [19_000.0] * 2, "tid": OTHER},
        {"cpu_times_us": [19_000.0] * 2, "holder": "aten::linear", "wait_us": 50_000},
    ],
    ids=[
        "it waited",
        "nobody looked",
        "kernels",
        "in one step of three",
        "Python",
        "hooks",
        "hooks of FSDP",
        "another thread",
        "torch's",
    ],
)
def test_what_need_not_be_work_without_events_is_measured(tmp_path, known):
    recording(tmp_path, **known).expect(max_kernels=1)


def test_one_step_is_enough_where_there_is_no_other(tmp_path):
    profile = recording(tmp_path, cpu_times_us=[19_000.0])
    assert says(why_not(lambda: profile.expect(max_kernels=1)), UnseenWork, seen=1, steps=1)


def test_what_no_limit_on_kernels_asks_for_is_judged(tmp_path):
    profile = recording(tmp_path, cpu_times_us=[19_000.0] * 2, compile={"dynamo": True, "compiled": True})
    with pytest.raises((LimitsMissed, NotMeasured)) as raised:
        profile.expect(max_graph_breaks=0)
    assert "unseen-work" not in str(raised.value)


def burn():
    until = time.thread_time() + 0.03
    while time.thread_time() < until:
        pass


@torch.library.custom_op("torchprof_unseen::own_and_torchs", mutates_args=())
def own_and_torchs(x: torch.Tensor) -> torch.Tensor:
    burn()
    return x.sin()


@torch.library.custom_op("torchprof_unseen::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    burn()
    return torch.empty(4)


def measured(function, tmp_path):
    plan = capture.Plan(device="cpu", warmup=1, steps=8, record=frozenset(), nodeid="test", label=None)
    path = tmp_path / "recording.json"
    for _ in capture.iterations(plan, path, lambda _path: None):
        function()
    return load(path)


def test_an_operator_of_pythons_that_computes_beside_torchs_is_not_measured(tmp_path):
    found = measured(lambda: own_and_torchs(torch.ones(4)), tmp_path)
    reason = why_not(lambda: found.expect(max_kernels=2))
    assert says(reason, UnseenWork, operator="torchprof_unseen::own_and_torchs", surely=True)


def test_an_operator_of_pythons_that_calls_none_of_torchs_is_one_kernel(tmp_path):
    assert measured(lambda: own(torch.ones(4)), tmp_path).kernels.names == ["aten::fill_", "torchprof_unseen::own"]


def test_python_between_operators_is_no_kernel(tmp_path):
    def step():
        torch.ones(4).sin()
        burn()

    measured(step, tmp_path).expect(max_kernels=2)

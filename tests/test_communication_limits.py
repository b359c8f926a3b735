"""Limits on communication: which collectives, how large, and how much of them computing hides."""

from __future__ import annotations

import jobs
import pytest
from builder import TraceBuilder
from facts import misses, says, why_not, why_refused

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.kernels.names.kernelname import COLLECTIVES
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED
from pytest_torchprof.limits.seen import CollectivesSeen, ExposedTime, HiddenShare, SentBytes
from pytest_torchprof.reasons.asked_wrongly import CollectiveSends, NoSuchLimit
from pytest_torchprof.reasons.findings import CollectiveTimesUnknown
from pytest_torchprof.reasons.job_limits import (
    CollectiveUntold,
    MessageSizesUnknown,
    NoCommunication,
)
from pytest_torchprof.reasons.wrong_values import UnknownName, ValueForm, WrongValue

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_torch
needs_gloo = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs torch.distributed with gloo")

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def profile_of(tmp_path):
    """Return a function that gives the profile of steps of 1 ms, each built by a function that adds to it."""

    def read(*steps):
        builder = TraceBuilder()
        for number, build in enumerate(steps):
            builder.step(number, 1000 * number, 1000)
            build(builder, 1000 * number)
        return load(builder.write(tmp_path / "trace.json"))

    return read


def computing(start=0, dur=100):
    """Return what adds a kernel that computes."""
    return lambda builder, at: builder.kernel("gemm", at + 100 + start, dur, builder.launch(at + 10))


def reducing(*, elements=1000, start=0, dur=100, runs=True):
    """Return what adds an all_reduce that NCCL tells everything of, beside a kernel that computes for 100 us."""

    def build(builder, at):
        computing()(builder, at)
        told = {"Collective name": "allreduce", "dtype": "Float", "Group size": 2}
        told |= {"In msg nelems": elements, "Out msg nelems": elements}
        builder.event("cpu_op", "c10d::allreduce_", at + 20, 20)
        builder.event("cpu_op", "record_param_comms", at + 21, 18, **told)
        if runs:
            builder.kernel(REDUCE, at + 100 + start, dur, builder.launch(at + 30), stream=20, **told)

    return build


def untold(builder, at):
    """Add a kernel that may carry out anything."""
    builder.kernel(SEND_RECV, at + 100, 100, builder.launch(at + 10))


def judged(profile, **limits):
    """Return how limits come out."""
    try:
        profile.expect(**limits)
    except LimitsMissed:
        return MISSED
    except NotMeasured:
        return NOT_MEASURED
    return HOLDS


# Values


@pytest.mark.parametrize(
    ("limits", "kind", "facts"),
    [
        ({"collectives": {"allreduce": 1}}, UnknownName, {"name": "'allreduce'", "near": "all_reduce"}),
        ({"collectives": "ring"}, UnknownName, {"near": None, "known": tuple(sorted(COLLECTIVES))}),
        ({"collectives": {"all_reduce": -1}}, WrongValue, {"expected": ValueForm.WHOLE_NUMBER, "least": 0}),
        ({"collectives": {"all_reduce": (4, 1)}}, WrongValue, {"expected": ValueForm.COUNT, "got": "(4, 1)"}),
        ({"collectives": {}}, WrongValue, {"expected": ValueForm.AN_ENTRY, "got": "{}"}),
        ({"max_comm_bytes": "64 M"}, WrongValue, {"expected": ValueForm.SIZE, "got": "'64 M'"}),
        ({"max_exposed_communication": 1.5}, WrongValue, {"expected": ValueForm.EXPOSURE, "got": "1.5"}),
        ({"max_exposed_communication": "0.1"}, WrongValue, {"expected": ValueForm.EXPOSURE, "got": "'0.1'"}),
        ({"min_overlap": 60}, WrongValue, {"expected": ValueForm.SHARE, "got": "60"}),
        ({"max_comm_bytes": 0, "collectives": {"all_reduce": 1}}, CollectiveSends, {"collective": "all_reduce"}),
        ({"max_exposed_comm": 1}, NoSuchLimit, {"near": "max_exposed_communication"}),
    ],
)
def test_what_cannot_be_meant_is_refused(profile_of, limits, kind, facts):
    assert says(why_refused(lambda: profile_of(reducing()).expect(**limits)), kind, **facts)


@pytest.mark.parametrize("limits", [{"max_comm_bytes": 0, "collectives": {"barrier": 1}}, {"max_comm_bytes": 1}])
def test_what_can_be_meant_is_not_refused(profile_of, limits):
    assert judged(profile_of(reducing()), **limits) == MISSED


# What holds and what is missed


@pytest.mark.parametrize(
    "limits",
    [
        {"collectives": {"all_reduce": 1}},
        {"collectives": {"all_reduce": (0, 4), "all_gather": 0}},
        {"collectives": "all_reduce"},
        {"max_comm_bytes": 4000},
        {"max_comm_bytes": "4KB"},
        {"max_exposed_communication": "50us"},
        {"max_exposed_communication": 0.34},
        {"min_overlap": 0.5},
    ],
)
def test_a_limit_that_holds_in_each_step(profile_of, limits):
    assert judged(profile_of(reducing(start=50), reducing(start=0)), **limits) == HOLDS


@pytest.mark.parametrize(
    ("limits", "seen"),
    [
        ({"collectives": {"all_reduce": 2}}, CollectivesSeen(1, "all_reduce", 2, 2)),
        ({"collectives": ["all_gather", "all_reduce"]}, CollectivesSeen(0, "all_gather", 1, None)),
        ({"max_comm_bytes": 3999}, SentBytes(4000, 1, beyond_bytes=3999)),
        ({"max_comm_bytes": 2000}, SentBytes(4000, 1, beyond_bytes=2000)),
        ({"max_exposed_communication": "49us"}, ExposedTime(50, 100, span_us=150)),
        ({"max_exposed_communication": 0.33}, ExposedTime(50, 100, share=pytest.approx(1 / 3), span_us=150)),
        ({"min_overlap": 0.51}, HiddenShare(0.5, 100)),
    ],
)
def test_a_limit_that_is_missed_says_what_was_seen_where(profile_of, limits, seen):
    verdict = misses(profile_of(reducing(start=50), reducing(start=0)), **limits)
    assert (verdict.seen, verdict.in_step.step, verdict.in_step.steps) == ((seen,), 1, 2)
    assert [(row.count, row.name, row.ops) for row in verdict.rows] == [(1, "all_reduce", ("c10d::allreduce_",))]


@pytest.mark.parametrize(
    "limits",
    [
        {"collectives": {"all_reduce": 0}},
        {"collectives": {"all_reduce": (0, 2)}},
        {"max_comm_bytes": 0},
        {"max_exposed_communication": "0us"},
        {"max_exposed_communication": 0},
    ],
)
def test_a_step_that_works_and_does_not_communicate_keeps_to_upper_limits(profile_of, limits):
    assert judged(profile_of(computing()), **limits) == HOLDS
    assert judged(profile_of(lambda *_: None), **limits) == NOT_MEASURED


# What cannot be told


@pytest.mark.parametrize(
    ("step", "limits", "kind", "facts"),
    [
        (computing(), {"min_overlap": 0}, NoCommunication, {}),
        (untold, {"collectives": {"all_reduce": 0}}, CollectiveUntold, {"name": "all_reduce", "kernels": 1}),
        (untold, {"collectives": "all_reduce"}, CollectiveUntold, {"name": "all_reduce", "kernels": 1}),
        (untold, {"max_comm_bytes": "1GB"}, MessageSizesUnknown, {"collectives": 1}),
        (reducing(runs=False), {"max_exposed_communication": "1s"}, CollectiveTimesUnknown, {}),
        (reducing(runs=False), {"min_overlap": 0}, CollectiveTimesUnknown, {}),
    ],
)
def test_what_the_recording_does_not_tell_is_not_measured(profile_of, step, limits, kind, facts):
    assert says(why_not(lambda: profile_of(step).expect(**limits)), kind, **facts)


def test_what_is_missed_already_is_missed_whatever_the_rest_may_be(profile_of):
    assert judged(profile_of(reducing(), untold), collectives={"all_reduce": 0}) == MISSED
    assert judged(profile_of(reducing(), untold), max_comm_bytes=10) == MISSED


def test_below_a_limit_on_bytes_the_most_bytes_stand_first(profile_of):
    def both(builder, at):
        for start, elements in ((0, 10), (100, 10), (200, 1000)):
            reducing(elements=elements)(builder, at + start)

    (verdict,) = check_limits(profile_of(both), read_limits({"max_comm_bytes": 0}))
    assert [(row.count, row.size_bytes) for row in verdict.evidence] == [(1, 4000), (2, 40)]
    assert judged(profile_of(reducing(), reducing(runs=False)), max_exposed_communication="0us") != HOLDS


def test_times_of_launches_that_wait_are_not_measured(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.torchprof["environment"] = {"launch_blocking": "1"}
    reducing()(builder, 0)
    answer = judged(load(builder.write(tmp_path / "trace.json")), min_overlap=0.1)
    assert answer == NOT_MEASURED


# Real recordings


def test_limits_on_a_recorded_training_step(shared_trace):
    profile = load(shared_trace("a100_megatron_tp8_rank0"))
    assert judged(profile, collectives={"all_reduce": 85, "broadcast": 0}, max_exposed_communication="242ms") == HOLDS
    assert misses(profile, collectives={"all_reduce": 84}).seen == (CollectivesSeen(85, "all_reduce", 84, 84),)
    assert misses(profile, min_overlap=0.1).seen == (HiddenShare(0, pytest.approx(241_000, rel=0.005)),)
    unknown = judged(load(shared_trace("b200_eager_nvjet")), max_comm_bytes="1TB")
    assert unknown == NOT_MEASURED


@pytest.fixture(scope="module")
def reduced_twice(tmp_path_factory):
    """Return the profile of a step that reduces one tensor and gathers another, on the CPU."""
    step = """
    x = torch.ones(250)
    def step():
        distributed.all_reduce(x)
        torch.sin(x)
        distributed.all_gather_into_tensor(torch.empty(500), x)
    """
    first, _ = jobs.record(tmp_path_factory.mktemp("job"), step, steps=2)
    return load(first, device="cpu")


@needs_gloo
@pytest.mark.parametrize(
    ("limits", "kind", "facts"),
    [
        ({"collectives": {"all_reduce": 1, "all_gather": 1}}, None, {}),
        ({"collectives": {"all_reduce": 2}}, CollectivesSeen, {"count": 1, "collective": "all_reduce", "most": 2}),
        ({"max_comm_bytes": 3000}, None, {}),
        ({"max_comm_bytes": 2999}, SentBytes, {"size_bytes": 3000, "collectives": 2}),
        ({"max_exposed_communication": 1.0}, None, {}),
        ({"max_exposed_communication": "0ns"}, ExposedTime, {"share": None}),
        ({"min_overlap": 0.99}, HiddenShare, {}),
    ],
)
def test_limits_on_what_gloo_does_on_the_cpu(reduced_twice, limits, kind, facts):
    answers(reduced_twice, limits, kind, facts)


def answers(profile, limits, kind, facts):
    """Assert that a limit holds, where no kind is given, or is missed by what it saw in a step."""
    if kind is None:
        assert judged(profile, **limits) == HOLDS
        return None
    verdict = misses(profile, **limits)
    (seen,) = verdict.seen
    assert isinstance(seen, kind)
    assert {name: getattr(seen, name) for name in facts} == facts
    assert verdict.in_step is not None
    return verdict


# Within ranges


DIVIDED = """
x = torch.ones(250, requires_grad=True)
def step():
    with record_function("forward"):
        y = torch.sin(x)
        distributed.all_gather_into_tensor(torch.empty(500), y.detach())
    with record_function("reduce"):
        distributed.all_reduce(x.grad if x.grad is not None else y.detach())
        distributed.all_reduce(y.detach())
"""


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """Return the profile of two steps on the CPU that gather in one range and reduce twice in another."""
    first, _ = jobs.record(tmp_path_factory.mktemp("job"), DIVIDED, steps=2)
    return load(first, device="cpu")


@needs_gloo
@pytest.mark.parametrize(
    ("name", "limits", "kind", "facts"),
    [
        ("forward", {"collectives": {"all_gather": 1, "all_reduce": 0}}, None, {}),
        ("reduce", {"collectives": {"all_gather": 0, "all_reduce": 2}}, None, {}),
        ("reduce", {"collectives": {"all_reduce": 1}}, CollectivesSeen, {"count": 2, "least": 1, "most": 1}),
        ("forward", {"max_comm_bytes": 2000}, None, {}),
        ("forward", {"max_comm_bytes": 1999}, SentBytes, {"collectives": 1}),
        ("reduce", {"max_exposed_communication": "0ns"}, ExposedTime, {}),
        ("reduce", {"max_exposed_communication": 1.0, "min_overlap": 0}, None, {}),
        ("forward", {"min_overlap": 1.0}, HiddenShare, {}),
    ],
)
def test_limits_within_a_range_are_on_what_was_asked_for_there(divided, name, limits, kind, facts):
    verdict = answers(divided, {"ranges": {name: limits}}, kind, facts)
    if verdict is not None:
        assert verdict.range == name
        assert (verdict.in_step.occurrence, verdict.in_step.occurrences, verdict.in_step.steps) == (1, 1, 2)


def test_what_a_backward_pass_asks_for_on_its_own_thread_is_in_the_range_that_waits_for_it(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.annotation("backward", 10, 500)
    builder.event("cpu_op", "autograd::engine::evaluate_function: AccumulateGrad", 20, 200, tid=77)
    told = {"Collective name": "allreduce", "dtype": "Float", "Group size": 2, "In msg nelems": 9, "Out msg nelems": 9}
    builder.event("cpu_op", "c10d::allreduce_", 30, 20, tid=77)
    builder.event("cpu_op", "record_param_comms", 31, 18, tid=77, **told)
    builder.event("cpu_op", "c10d::allreduce_", 600, 20)
    builder.kernel("gemm", 100, 10, builder.launch(90))
    profile = load(builder.write(tmp_path / "trace.json"))
    assert judged(profile, ranges={"backward": {"collectives": {"all_reduce": 1}}}) == HOLDS
    verdict = misses(profile, ranges={"backward": {"collectives": {"all_reduce": 0}}})
    assert verdict.seen == (CollectivesSeen(1, "all_reduce", 0, 0),)


def test_kernels_that_no_operator_asked_for_are_in_the_range_that_launched_them(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    for place, name in enumerate(("first", "second")):
        builder.annotation(name, 200 * place + 10, 150)
        for number in range(place + 1):
            at = 200 * place + 20 + 30 * number
            builder.kernel("void vllm::cross_device_reduce_1stage<__half, 8>(x)", at + 10, 10, builder.launch(at))
    profile = load(builder.write(tmp_path / "trace.json"))
    for name, count in (("first", 1), ("second", 2)):
        assert judged(profile, ranges={name: {"collectives": {"all_reduce": count}}}) == HOLDS
        assert judged(profile, ranges={name: {"max_comm_bytes": "1GB"}}) == NOT_MEASURED

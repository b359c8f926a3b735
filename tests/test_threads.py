"""Calls that are written under the id of an ended thread are counted on the thread that made them."""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, CPU, MAIN, TraceBuilder

from pytest_torchprof import load

pytestmark = pytest.mark.any_torch

DEAD = 900
"""A thread that was profiled and ended before the recording; kineto still writes its id."""
FIRST, SECOND = 1002, 1003


@pytest.fixture
def look(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def step():
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    return builder


def test_what_autograds_thread_launched_is_in_the_range_that_waited_for_it(look):
    builder = step()
    builder.annotation("forward", 10, 100)
    builder.launched("product", 20, op="aten::mm")
    builder.annotation("backward", 200, 500)
    builder.op("autograd::engine::evaluate_function: MmBackward0", 250, 100, tid=AUTOGRAD)
    for at in (260, 290):
        builder.launched("product", at, op="aten::mm", tid=AUTOGRAD, written_tid=DEAD)
    profile = look(builder)
    assert [profile.range(name).kernels for name in ("forward", "backward")] == [1, 2]
    assert [kernel.op for kernel in profile.kernels] == ["aten::mm"] * 3


def test_what_a_thread_launched_is_in_its_own_ranges(look):
    builder = step()
    builder.annotation("decode", 100, 500)
    for at in (120, 150, 700):
        builder.launched("k", at, written_tid=DEAD)
    assert look(builder).range("decode").kernels == 2


def test_calls_of_no_operator_go_with_the_others_of_their_number(look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.launched("raw", 110, op=None, written_tid=DEAD)
    builder.launched("k", 150, written_tid=DEAD)
    builder.launched("raw", 200, op=None, written_tid=DEAD)
    builder.sync(300, 20, what="stream sync", tid=DEAD)
    found = look(builder).range("decode")
    assert (found.kernels, found.syncs) == (3, 1)


def test_work_of_a_replay_goes_with_its_launch(look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.op("CompiledFunction", 110, 30)
    replay = builder.graph_launch(120, tid=DEAD)
    for at in (130, 140):
        builder.kernel("k", at, 5, replay, **{"External id": 1})
    assert look(builder).range("decode").kernels == 2


@pytest.mark.parametrize("ends", [True, False], ids=["it ended before", "both lived after one another"])
def test_of_threads_that_had_the_number_in_turn_each_keeps_what_is_known_to_be_its_own(ends, look):
    builder = step()
    written = DEAD if ends else FIRST
    builder.annotation("first", 100, 200, tid=FIRST)
    builder.launched("raw", 120, op=None, tid=FIRST, written_tid=written)
    builder.launched("k", 150, tid=FIRST, written_tid=written)
    builder.sync(200, 20, what="stream sync", tid=written)
    builder.annotation("second", 400, 200, tid=SECOND)
    builder.launched("k", 450, tid=SECOND, written_tid=written)
    profile = look(builder)
    first, second = profile.range("first"), profile.range("second")
    assert (first.kernels, first.syncs) == ((1, 0) if ends else (2, 1))
    assert (second.kernels, second.syncs) == (1, 0)


def test_what_is_only_in_a_range_of_the_first_thread_stays_there(look):
    builder = step()
    builder.annotation("first", 100, 200, tid=FIRST)
    builder.launched("raw", 120, op=None, tid=FIRST)
    builder.annotation("second", 400, 200, tid=SECOND)
    builder.launched("k", 450, tid=SECOND, written_tid=FIRST)
    profile = look(builder)
    assert [profile.range(name).kernels for name in ("first", "second")] == [1, 1]


def test_work_of_a_thread_without_operators_stays_there(look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.launched("k", 150)
    builder.launched("prefetched", 200, op=None, tid=SECOND)
    assert look(builder).range("decode").kernels == 1


@pytest.mark.parametrize(
    ("number", "launch_tid"),
    [
        pytest.param(None, SECOND, id="the number is that of the call, as before 2024"),
        pytest.param(1, SECOND, id="the operator was over before"),
        pytest.param(4, SECOND, id="the operator began later"),
        pytest.param(3, AUTOGRAD, id="an operator of the call's own thread is around it"),
        pytest.param(77, SECOND, id="no operator has the number"),
    ],
)
def test_a_number_that_names_no_operator_around_the_call_moves_nothing(number, launch_tid, look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.op("aten::mm", 110, 10)
    builder.op("aten::add", 195, 30, tid=AUTOGRAD)
    builder.op("aten::mm", 190, 30)
    builder.op("aten::mm", 300, 30)
    launch = builder.launch(200, tid=launch_tid)
    builder.kernel("k", 210, 5, launch, **{"External id": launch if number is None else number})
    if number is None:
        builder.event("cpu_op", "aten::mul", 190, 30, pid=CPU, tid=MAIN, **{"External id": launch})
    assert look(builder).range("decode").kernels == 0


@pytest.mark.parametrize("nothing", [{}, {"External id": 0}], ids=["left out", "zero"])
def test_what_has_no_number_names_no_operator(nothing, look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.event("cpu_op", "aten::mm", 190, 30, pid=CPU, tid=MAIN, **nothing)
    builder.kernel("k", 210, 5, builder.launch(200, tid=SECOND), **nothing)
    assert look(builder).range("decode").kernels == 0


@pytest.mark.parametrize("nothing", [{}, {"correlation": 0}], ids=["left out", "zero"])
def test_what_has_no_correlation_belongs_to_no_call(nothing, look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.launched("k", 150, tid=SECOND)
    builder.op("aten::mm", 190, 30)
    builder.event("cuda_runtime", "cudaStreamSynchronize", 200, 10, pid=CPU, tid=SECOND, **nothing)
    builder.kernel("k", 210, 5, nothing.get("correlation"), **{"External id": 2})
    assert look(builder).range("decode").syncs == 0


@pytest.mark.parametrize("numbers", [(None, 1), (1, None), (1, 2)])
def test_work_of_one_call_that_does_not_agree_tells_nothing(numbers, look):
    builder = step()
    builder.annotation("decode", 100, 500)
    builder.op("aten::mm", 110, 30)
    builder.op("aten::mm", 110, 30)
    replay = builder.graph_launch(120, tid=SECOND)
    for at, number in zip((130, 140), numbers, strict=True):
        builder.kernel("k", at, 5, replay, **{"External id": number})
    assert look(builder).range("decode").kernels == 0

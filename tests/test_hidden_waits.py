"""Waits for the GPU that are no call of ``syncs``: memory that is freed, synchronous copies of other forms, polling."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder
from facts import misses, says, why_not

from pytest_torchprof import LimitsMissed, load
from pytest_torchprof.reasons.limits import Polled

pytestmark = pytest.mark.any_torch


def recording(fill, *, rocm=False):
    """Return a recording of ours of one step, in which ``fill`` puts calls behind a kernel."""
    builder = TraceBuilder(rocm=rocm)
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    fill(builder)
    builder.sync(1100, 50)
    return builder


@pytest.fixture
def profile(tmp_path):
    return lambda fill, **more: load(recording(fill, **more).write(tmp_path / "t.json"))


FREES = ["cudaFree", "cudaFreeHost", "cudaFreeArray", "hipFree", "hipHostFree"]


@pytest.mark.parametrize("name", FREES)
def test_a_free_keeps_no_limit_on_waits(profile, name):
    measured = profile(lambda builder: builder.call(name, 100, 30), rocm=name.startswith("hip"))
    verdict = misses(measured, max_syncs=0)
    assert (verdict.number, [(row.name, row.count) for row in verdict.rows]) == (1, [(name, 1)])
    measured.expect(max_syncs=1)
    assert measured.syncs == 0, "the number itself counts calls that do nothing but wait"


def test_a_free_can_be_allowed_like_any_wait(profile):
    def fill(builder):
        builder.op("aten::empty", 95, 50)
        builder.call("cudaFree", 100, 30)

    profile(fill).expect(max_syncs=0, allow_syncs="aten::empty")


@pytest.mark.parametrize("name", ["cudaFreeAsync", "cudaMalloc", "cudaMallocAsync", "cudaMemGetInfo", "cudaEventQuery"])
def test_what_does_not_wait_keeps_the_limit(profile, name):
    profile(lambda builder: builder.call(name, 100, 30)).expect(max_syncs=0)


@pytest.mark.parametrize(
    "name", ["cudaMemcpy", "cudaMemcpy2D", "cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "hipMemcpy2D"]
)
def test_a_copy_that_blocks_is_a_wait_in_every_form(profile, name):
    measured = profile(lambda builder: builder.call(name, 100, 30), rocm=name.startswith("hip"))
    assert measured.syncs == 1


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpyToSymbolAsync", "cudaMemcpyPeer"])
def test_one_that_does_not_block_is_none(profile, name):
    assert profile(lambda builder: builder.call(name, 100, 30)).syncs == 0


def poll(builder, *, times, tid=1000, op=None):
    for i in range(times):
        if op is not None:
            builder.op(op, 100 + 10 * i, 8, tid=tid)
        builder.call("cudaEventQuery", 101 + 10 * i, 2, tid=tid)


def test_a_loop_that_asks_whether_the_gpu_is_done_is_not_measured(profile):
    measured = profile(lambda builder: poll(builder, times=30))
    assert says(why_not(lambda: measured.expect(max_syncs=0)), Polled, times=30)
    measured.expect(max_kernels=1)


def test_a_limit_that_is_missed_anyway_is_missed(profile):
    def fill(builder):
        poll(builder, times=30)
        builder.sync(500, 20, what="stream sync")

    with pytest.raises(LimitsMissed):
        profile(fill).expect(max_syncs=0)


NO_POLLING = {
    "a look into some events": lambda builder: poll(builder, times=5),
    "torch's allocator": lambda builder: poll(builder, times=30, op="aten::empty"),
    "another thread, such as NCCL's": lambda builder: poll(builder, times=30, tid=77),
}


@pytest.mark.parametrize("fill", NO_POLLING.values(), ids=NO_POLLING)
def test_what_asks_and_does_not_wait_keeps_the_limit(profile, fill):
    profile(fill).expect(max_syncs=0)


def test_frees_of_a_real_recording_count_beside_its_waits(shared_trace):
    path = shared_trace("a100_moe_no_steps")
    entries = json.loads((path.parent / "expected.json").read_text())
    figure = next(one for one in entries if one["file"] == path.name)["expected"]["summary"]["worst"]["syncs"]
    measured = load(path)
    assert measured.syncs == figure
    verdict = misses(measured, max_syncs=figure + 1)
    assert verdict.number == figure + 2
    assert [row.count for row in verdict.rows if row.name == "cudaFree"] == [2]
    measured.expect(max_syncs=figure + 2)

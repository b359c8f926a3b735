"""ROCm 6.1: kernels of collectives have the correlation id 0, and belong to the launches that have no kernel."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from facts import why_not

from pytest_torchprof import LimitsMissed, communication, load

pytestmark = pytest.mark.any_torch

RCCL = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
STEPS = 2


@pytest.fixture
def recording(tmp_path):
    """Return a function that writes a recording of our own: each step multiplies, and sends so many times."""

    def write(*, sent=(1, 2), lost=0, streams=(1,), own=True, later=0):
        builder = TraceBuilder(rocm=True)
        if own:
            builder.own(steps=STEPS)
        ran = []
        for number in range(STEPS):
            at = number * 1000
            builder.step(number, at, 900)
            builder.launched("Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_SE", at + 10)
            for call in range(sent[number]):
                builder.op("c10d::allreduce_", at + 100 + 50 * call, 20)
                builder.call("hipExtLaunchKernel", at + 105 + 50 * call)
                ran.append(at + 600 + 50 * call + later)
        for place, start in enumerate(ran[lost:]):
            builder.kernel(RCCL, start, 30, 0, stream=streams[place % len(streams)])
        builder.sync(STEPS * 1000 + 100, 50)
        return load(builder.write(tmp_path / "t.json"))

    return write


@pytest.mark.parametrize("own", [True, False], ids=["ours", "of others"])
def test_they_are_counted_where_they_were_launched(recording, own):
    profile = recording(own=own)
    assert profile.why_not is None
    assert [step.kernels.matching(communication()).count for step in profile.steps] == [1, 2]
    assert (profile.trace.lost_kernels, profile.trace.orphans) == (0, 0)
    profile.expect(max_kernels=3, ops={"c10d::allreduce_": (1, 2)})
    with pytest.raises(LimitsMissed):
        profile.expect(max_kernels=2)


def test_a_kernel_that_ran_after_its_step_counts_in_it(recording):
    """As everywhere, a kernel belongs to the step that launched it."""
    profile = recording(sent=(2, 0), later=500)
    assert [step.kernels.count for step in profile.steps] == [3, 1]


@pytest.mark.parametrize("own", [True, False], ids=["ours", "of others"])
@pytest.mark.parametrize("recorded", [{"lost": 1}, {"streams": (1, 2)}], ids=["one is lost", "two streams"])
def test_what_cannot_be_told_is_not_measured(recording, own, recorded):
    found = recording(own=own, **recorded)
    assert why_not(lambda: found.expect(max_kernels=100)).code == "lost-launches"


def test_one_without_any_launch_is_in_no_step_and_so_not_measured(recording, tmp_path):
    builder = TraceBuilder(rocm=True)
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    builder.kernel(RCCL, 500, 30, 0)
    builder.sync(1000, 50)
    found = load(builder.write(tmp_path / "t.json"))
    assert why_not(lambda: found.expect(max_kernels=1)).code == "lost-launches"

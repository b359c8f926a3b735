"""ROCm with rocprofiler-sdk: fills and small copies are kernels of the runtime's own, and are told as what they are."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from facts import why_not

from pytest_torchprof import LimitsMissed, gemm, load
from pytest_torchprof.reasons.composed import AllowanceUntold
from pytest_torchprof.reasons.lines import DestinationUnknown

pytestmark = pytest.mark.any_torch


@pytest.fixture
def profile(tmp_path):
    builder = TraceBuilder(rocm=True)
    builder.step(0, 0, 900)
    builder.launched("Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_SE", 10)
    builder.kernel("__amd_rocclr_fillBufferAligned", 110, 5, builder.call("fill", 100))
    builder.kernel("__amd_rocclr_copyBuffer", 210, 5, builder.call("copy", 200))
    builder.sync(300, 50)
    return load(builder.write(tmp_path / "t.json"))


def test_they_are_fills_and_copies_and_no_kernels(profile):
    assert (profile.kernels.count, profile.memsets, profile.memcpys) == (1, 1, 1)
    profile.expect(max_kernels=1, max_launches=1, max_memcpys=1, max_memsets=1, only_kernels=gemm())


@pytest.mark.parametrize("limit", ["max_memsets", "max_memcpys"])
def test_none_is_missed_over_one(profile, limit):
    with pytest.raises(LimitsMissed):
        profile.expect(**{limit: 0})


def test_where_such_a_copy_goes_and_how_much_it_takes_is_not_known(profile):
    assert (profile.memcpys_h2d, profile.memcpys_d2h, profile.memcpys_d2d, profile.memcpy_bytes) == (None,) * 4


@pytest.mark.parametrize("allowed", ["DtoH", "HtoD", ["DtoH", "aten::item"]])
def test_whether_its_direction_is_allowed_is_not_known(profile, allowed):
    reason = why_not(lambda: profile.expect(max_memcpys=0, allow_memcpys=allowed))
    assert isinstance(reason, AllowanceUntold)
    assert reason.because == DestinationUnknown()
    profile.expect(max_memcpys=1, allow_memcpys=allowed)

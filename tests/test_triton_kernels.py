"""Hand-written Triton kernels: told by what the recording holds, and where it does not tell, by nothing."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from pytest_torchprof import LimitsMissed, NotMeasured, library, load, triton

pytestmark = pytest.mark.any_torch

DRIVER, RUNTIME, GRAPH = "cuLaunchKernelEx", "cudaLaunchKernel", "cudaGraphLaunch"


@pytest.fixture
def recorded(tmp_path):
    """Return the profile of a step that launches each kernel by a call; ``told`` is what our recordings say."""

    def recorded(kernels, told=None):
        builder = TraceBuilder()
        if told is not None:
            builder.own(steps=1, triton_kernels=told)
        builder.step(0, 0, 900)
        for place, (name, call) in enumerate(kernels.items()):
            builder.kernel(name, 20 + 30 * place, 5, builder.call(call, 10 + 30 * place, 3))
        return load(builder.write(tmp_path / "t.json"))

    return recorded


@pytest.mark.parametrize("call", [DRIVER, RUNTIME, GRAPH])
@pytest.mark.parametrize("name", ["add_one", "named_by_repr_B128", "flash_fwd_kernel", "matmul_kernel"])
def test_what_our_recording_names_is_tritons_however_it_was_launched(recorded, name, call):
    profile = recorded({name: call}, told=[name])
    profile.expect(kernels={triton(): 1, triton("user"): 1, library("triton"): 1}, min_kernels=1)
    assert profile.kernels[0].triton == "user"
    with pytest.raises(LimitsMissed):
        profile.expect(forbid_kernels=triton())


@pytest.mark.parametrize("call", [DRIVER, GRAPH])
@pytest.mark.parametrize(
    "limit", [{"kernels": triton()}, {"forbid_kernels": library("triton")}, {"only_kernels": triton()}]
)
def test_what_it_does_not_name_may_be_tritons_all_the_same(recorded, limit, call):
    # A kernel that CuPy, Numba or a compiled package launches looks no different.
    with pytest.raises(NotMeasured, match=r"\[match-unknown\]"):
        recorded({"my_kernel": call}, told=[]).expect(**limit)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4>(int)",
        "ampere_sgemm_128x64_tn",
        "nvjet_tst_128x64",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor",
        "_ZN3foo3barEv",
    ],
)
@pytest.mark.parametrize("call", [DRIVER, GRAPH])
def test_what_is_surely_somebody_elses_is_not_tritons(recorded, name, call):
    for told in (None, []):
        recorded({name: call}, told=told).expect(forbid_kernels=[triton(), library("triton")])


def test_a_call_that_triton_does_not_make_launches_none_of_its_kernels(recorded):
    recorded({"my_kernel": RUNTIME}, told=[]).expect(forbid_kernels=triton())


def test_of_anybody_elses_recording_a_drivers_launch_of_a_plain_name_is_taken_for_one(recorded):
    recorded({"my_kernel": DRIVER}).expect(kernels=triton("user"))
    with pytest.raises(NotMeasured):
        recorded({"my_kernel": GRAPH}).expect(forbid_kernels=triton())


def test_what_inductor_generates_says_so_itself(recorded):
    profile = recorded({"triton_poi_fused_add_0": DRIVER}, told=[])
    profile.expect(kernels=triton("poi"), forbid_kernels=triton("user"))

"""Which FlashAttention a kernel's name proves, and what does not prove one.

The names are from public profiles; those that are made up stand for projects that took over a part of the names.
"""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from facts import says, why_not, why_refused

from pytest_torchprof import LimitsMissed, attention, load
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.reasons.operators_untold import MatchesUntold, OperatorMatchUntold
from pytest_torchprof.reasons.wrong_patterns import UnknownPart, VersionOfUnfused

pytestmark = pytest.mark.any_torch

FA2 = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
    "cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)"
)
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90, false> > > >(flash::Params)"
)
FA4 = "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor0000o11101213_0"
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"
EFFICIENT = (
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)"
)
AOTRITON = "attn_fwd"

TOLD = [
    (FA2, 2),
    (
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, cutlass::half_t>>(Flash_fwd_params)",
        2,
    ),
    (
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false>>(flash::Flash_fwd_params)",
        2,
    ),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 64, 128, 8>>(Flash_bwd_params)", 2),
    ("_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128ELi128EEEEvNS_16Flash_fwd_paramsE", 2),
    (FA3, 3),
    ("void cutlass::device_kernel<flash::enable_sm80_to_sm89<flash::FlashAttnFwdSm80<flash::Mainloop<4>>>>(P)", 3),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::Mainloop<2>>>>(P)", 3),
    ("_ZN7cutlass13device_kernelIN5flash19enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_24MainloopILi2EEEEEEEvP", 3),
    ("void flash::compute_attn_ws<Flash_fwd_kernel_traits<128, 128, 128, 12, 2, false>, true>(P)", 3),
    (FA4, 4),
    ("kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90FlashAttentionBackwardSm90_object_at__tensor_0", 4),
    ("kernel_cutlass_kernel_vllmvllm_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor_0", 4),
    (f"flash_fwd_sm100_bf16_head_dim128_tile128x128_threads384_causal_{FA4}", 4),
    (CUDNN, 0),
    ("cudnn_generated_oss_sdpa_sm100_flash_fprop_f16_knob_7", 0),
    (EFFICIENT, 0),
]
UNTOLD = [
    # The same words without what FlashAttention's own kernels have around them.
    "flash_fwd_kernel",
    "flash_attention_fwd",
    "void mine::flash_fwd_kernel<float>(float*)",
    # Built from FlashAttention's parts by others.
    "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t, 512>>(P)",
    "void flash::flash_fwd_block_kernel<Flash_fwd_kernel_traits<128, 64, 64>>(Flash_fwd_params)",
    "void cutlass::device_kernel<hstu::enable_sm90_or_later<hstu::FlashAttnFwdSm90<hstu::Softmax>>>(P)",
    "kernel_cutlass_kernel___main__FP4FlashAttentionForwardSm100PVFused_object_at__tensor_0",
    "kernel_cutlass_kernel_mykernelsflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor_0",
    "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm90_kernel",
    # Attention that may be called so: Triton's, CK's, serving engines'.
    AOTRITON,
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
    "_ZN5aiter28fmha_fwd_hd128_bf16_causal_E",
]


@pytest.mark.parametrize(("name", "version"), TOLD)
def test_a_name_that_tells(name, version):
    told = decode(name)
    assert (told.family, told.version) == ("attention", version)


@pytest.mark.parametrize("name", UNTOLD)
def test_a_name_that_does_not(name):
    assert decode(name).version is None


@pytest.fixture
def recorded(tmp_path):
    def recorded(*kernels):
        builder = TraceBuilder()
        builder.step(0, 0, 900)
        for place, kernel in enumerate(kernels):
            builder.launched(kernel, 10 + 30 * place, op="aten::_flash_attention_forward")
        return load(builder.write(tmp_path / "t.json"))

    return recorded


def test_a_version_that_is_asked_for_is_found(recorded):
    profile = recorded(FA2, FA3, FA4, CUDNN)
    for version in (2, 3, 4):
        profile.expect(kernels={attention(version=version): 1})
    assert profile.kernels.matching(attention(version=4)).names == [FA4]


def test_another_version_or_library_is_not_it(recorded):
    with pytest.raises(LimitsMissed):
        recorded(FA2, CUDNN).expect(kernels=attention(version=3))
    with pytest.raises(LimitsMissed):
        recorded(FA3).expect(forbid_kernels=attention(version=3))
    recorded(FA3, CUDNN, EFFICIENT).expect(forbid_kernels=[attention(version=2), attention(version=4)])


@pytest.mark.parametrize("limit", ["kernels", "forbid_kernels", "only_kernels"])
@pytest.mark.parametrize("name", [AOTRITON, "flash_fwd_kernel"])
def test_a_name_that_does_not_tell_its_version_fulfils_and_breaks_nothing(recorded, name, limit):
    why = why_not(lambda: recorded(name).expect(**{limit: attention(version=3)}))
    assert why.code == "match-unknown"
    if limit == "only_kernels":
        assert says(why, MatchesUntold, kernels=1)
    else:
        assert says(why, OperatorMatchUntold, pattern="attention(version=3)", count=1)


@pytest.mark.parametrize("version", [1, 5, "3", True, 3.0, None])
def test_a_version_that_there_is_not_is_refused(version):
    why = why_refused(lambda: attention(version=version))
    assert says(why, UnknownPart, of="version", name=repr(version), known=("2", "3", "4"))


def test_attention_that_is_not_fused_has_no_version():
    assert says(why_refused(lambda: attention(fused=False, version=2)), VersionOfUnfused)
    attention(fused=True, version=2)

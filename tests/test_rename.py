"""What a change of a kernel name means, in words."""

from __future__ import annotations

import pytest

from pytest_torchprof.compare.renames import explain_rename

pytestmark = pytest.mark.any_torch

AMPERE_TN = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
CUTLASS_TN = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x256_64x3_tn_align8>(P)"
CUTLASS_TF32_NN = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(P)"
NVJET_TN = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"

ADD = "at::native::CUDAFunctor_add<c10::BFloat16>"
VECTORIZED_ADD = f"void at::native::vectorized_elementwise_kernel<4, {ADD}, at::detail::Array<char*, 3> >(int, {ADD})"
STRIDED_ADD = f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{ADD} >(int)::{{lambda(int)#1}}>(int)"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (AMPERE_TN, AMPERE_TN, "same name"),
        (CUTLASS_TN, NVJET_TN, "library cutlass -> cublas (bf16, tn as before)"),
        (
            AMPERE_TN,
            CUTLASS_TF32_NN,
            "layout tn -> nn, dtype bf16 -> tf32, library cublas -> cutlass, tile 128x256 -> 64x64",
        ),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nt", "layout nn -> nt (fp32 as before)"),
        (NVJET_TN, NVJET_TN.replace("128x256", "64x64"), "tile 128x256 -> 64x64 (bf16, tn as before)"),
        (AMPERE_TN, AMPERE_TN.replace("64x3", "64x4"), "stages 3 -> 4 (bf16, tn as before)"),
        (NVJET_TN, NVJET_TN.replace("_coopA", "_splitK"), "split-K (bf16, tn as before)"),
        (NVJET_TN.replace("_coopA", "_splitK"), NVJET_TN, "no split-K (bf16, tn as before)"),
        (NVJET_TN, NVJET_TN.replace("_coopA", "_coopB"), "another variant of gemm bf16 tn nvjet_tst_128x256"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_mul_3", "no longer carries add"),
        ("triton_poi_fused_mul_0", "triton_poi_fused_add_mul_3", "also carries add"),
        ("triton_poi_fused_mul_0", "triton_red_fused_mul_3", "Triton category poi -> red"),
        ("triton_poi_fused_mul_0", "triton_poi_fused_mul_3", "only the index differs"),
        ("void lib::some_kernel<float>(x)", "void lib::some_kernel<double>(x)", "only template arguments differ"),
        (
            VECTORIZED_ADD,
            STRIDED_ADD,
            "pointwise add: vectorized -> strided, operands that are not contiguous",
        ),
        (VECTORIZED_ADD, VECTORIZED_ADD.replace("_kernel<4,", "_kernel<2,"), "only template arguments differ"),
        ("some_thing", "some_other_thing", "some_thing -> some_other_thing"),
    ],
)
def test_a_rename_is_said_in_words(old, new, words):
    """What it computes first, how last, and what stayed."""
    assert explain_rename(old, new) == words


def test_another_family_is_said_first():
    """Attention that became a product is no renamed kernel."""
    flash = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>(P)"
    assert explain_rename(flash, "volta_sgemm_128x64_nn").startswith("family attention -> gemm")

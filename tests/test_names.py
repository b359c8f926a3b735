"""What a kernel's name says, for every library of names, on real names and on names built from their grammar."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_torchprof.kernels.names import decode, normal_name, without_index

pytestmark = pytest.mark.any_torch

SHARED = Path(__file__).parents[2] / "shared" / "traces"
needs_recordings = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")

# name, family, library, dtype, layout, tensor core
KNOWN = [
    # cuBLAS: Pascal .. Blackwell
    ("maxwell_sgemm_128x64_tn", "gemm", "cublas", "fp32", "tn", False),
    ("sgemm_32x32x32_NN_vec", "gemm", "cublas", "fp32", "nn", False),
    ("volta_sgemm_128x64_nn", "gemm", "cublas", "fp32", "nn", False),
    ("volta_h884gemm_256x64_ldg8_nn", "gemm", "cublas", "fp16", "nn", True),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "cublas", "fp16", "tn", True),
    ("volta_fp16_sgemm_fp16_128x32_nn", "gemm", "cublas", "fp16", "nn", False),
    ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nn", "gemm", "cublas", "fp16", "nn", True),
    ("turing_int8_i8816gemm_int8_128x128_ldg16_relu_tn", "gemm", "cublas", "int8", "tn", True),
    ("ampere_sgemm_32x32_sliced1x4_tn", "gemm", "cublas", "fp32", "tn", False),
    ("ampere_dgemm_64x64_nn", "gemm", "cublas", "fp64", "nn", False),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn", "gemm", "cublas", "bf16", "nn", True),
    ("ampere_bf16_s1688gemm_bf16_128x128_ldg8_relu_f2f_stages_32x1_tn", "gemm", "cublas", "bf16", "tn", True),
    ("ampere_s16816gemm_64x64_ldg8_stages_64x3_tn", "gemm", "cublas", None, "tn", True),
    ("volta_gcgemm_64x32_nt", "gemm", "cublas", "complex64", "nt", False),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "gemm", "cublas", "bf16", "tn", True,
    ),
    (
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "gemm", "cublas", "tf32", "nn", True,
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "gemm", "cublas", "fp32", "tn", False,
    ),
    ("sm90_xmma_gemm_e4m3e5m2_e4m3f32_f32_tn_n_tilesize128x128x64_cluster2x1x1_execute", "gemm", "cublas", "fp8", "tn", True),
    ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", "gemm", "cublas", "bf16", "tn", True),
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", "cublas", "fp16", "nn", True),
    ("nvjet_hss_64x8_64x16_1x1_v_bz_splitK_NNT", "gemm", "cublas", "fp16", "nn", True),
    ("nvjet_sss_tf32_128x256_TNT", "gemm", "cublas", "tf32", "tn", True),
    ("nvjet_sss_128x256_64x4_1x2_h_bz_TNT", "gemm", "cublas", None, "tn", True),
    ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NTN", "gemm", "cublas", "bf16", "nt", True),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT", "gemm", "cublas", "fp8", "tn", True),
    ("nvjet_ootst_256x128_256x4_2x1_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT", "gemm", "cublas", "fp4", "tn", True),
    ("nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", "gemm", "cublas", "bf16", "tn", True),
    ("nvjet_sm120_hhh_mma_64x64x128_tmaAB_bz_NNNN", "gemm", "cublas", "fp16", "nn", True),
    (
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false, false, "
        "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, float> >(x)"),
        "gemm", "cublas", "bf16", None, False,
    ),
    (
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<__half const>, cublasGemvTensorStridedBatched<__half> > >(x)",
        "gemm", "cublas", "fp16", None, False,
    ),
    (
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, "
        "cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<__nv_bfloat16> >(x)"),
        "gemm", "cublas", "bf16", "tn", False,
    ),
    (
        "void internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 7>(x)",
        "gemm", "cublas", "bf16", None, False,
    ),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16>(x)", "reduction", "cublas", None, None, False),
    ("_ZN8cublasLt19splitKreduce_kernelILi32ELi16Ei13__nv_bfloat16EEvv", "reduction", "cublas", None, None, False),
    # CUTLASS
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(Params)",
        "gemm", "cutlass", "bf16", "tn", True,
    ),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)", "gemm", "cutlass", "tf32", "nn", True),
    ("void cutlass::Kernel<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(P)", "gemm", "cutlass", "bf16", "nn", True),
    ("void cutlass::Kernel<cutlass_75_tensorop_s1688gemm_128x128_32x2_nn_align1>(P)", "gemm", "cutlass", None, "nn", True),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(P)", "gemm", "cutlass", "fp32", "nn", False),
    ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1>(P)", "gemm", "cutlass", "fp64", "tn", True),
    ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8", "gemm", "cutlass", "bf16", "tn", True),
    ("cutlass_80_wmma_h161616gemm_16x16_128x1_tn_align8", "gemm", "cutlass", "fp16", "tn", True),
    (
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_align8_warpspecialized_pingpong_epi_tma",
        "gemm", "cutlass", "bf16", "tn", True,
    ),
    ("cutlass3x_sm90_tensorop_gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnt_align16", "gemm", "cutlass", "fp8", "tn", True),
    (
        "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_4x1x1_0_tnt_align32_o_vs16_2sm",
        "gemm", "cutlass", "fp4", "tn", True,
    ),
    (
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "gemm", "cutlass", "fp32", "tn", False,
    ),
    (
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
        "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, cute::tuple<cute::C<2>, "
        "cute::C<1>, cute::C<1> > >, cute::tuple<cute::C<128>, cute::C<128> >, cutlass::float_e4m3_t, cute::tuple<long, cute::C<1>, "
        "long>, cutlass::float_e4m3_t, cute::tuple<long, cute::C<1>, long> > > >(Params)"),
        "gemm", "cutlass", "fp8", None, True,
    ),
    ("kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK", "gemm", "cutlass", None, None, None),
    (
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__tensorptrbf16gmem",
        "normalization", "cutlass", None, None, None,
    ),
    # Tensile, hipBLASLt
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN", "gemm", "tensile", "bf16", "tn", True),
    ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_ISA90a", "gemm", "tensile", "fp32", "nt", True),
    ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SN_ISA906", "gemm", "tensile", "fp16", "nn", False),
    ("Cijk_Alik_Bjlk_DB_MT64x64x8_SE_ISA000", "gemm", "tensile", "fp64", "tt", False),
    ("Cijk_Alik_Bljk_F8B8HS_BH_Bias_SHB_MT128x128x128_MI16x16x1_SN", "gemm", "tensile", "fp8", "tn", True),
    ("Custom_Cijk_Ailk_Bljk_F8NH_HHS_BH_Bias_AS_SAB_SAV_shortname0_gfx942", "gemm", "tensile", None, "nn", None),
    ("Cijk_Alik_Bljk_I8II_BH_MT64x64x64_MI16x16x1", "gemm", "tensile", "int8", "tn", True),
    ("Cijk_B_PostGSU2", "reduction", "tensile", None, None, False),
    # convolutions of cuDNN, MIOpen and CK, which hold the word gemm
    (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
        "conv", "cudnn", "tf32", None, True,
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x16x8_stage3_warpsize4x1x1_g1_ffma_aligna4_alignc4",
        "conv", "cudnn", "fp32", None, False,
    ),
    ("sm80_xmma_fprop_implicit_gemm_interleaved_i8f32_i8i32_f32_nchw_vect_c_32kcrs", "conv", "cudnn", None, None, None),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(P)",
        "conv", "cudnn", "bf16", None, True,
    ),
    (
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x128_16x4_nhwc_unity_stride_align4>(P)",
        "conv", "cudnn", "tf32", None, True,
    ),
    ("volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1", "conv", "cudnn", "fp32", None, False),
    ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_interior_nhwc_tn_v1", "conv", "cudnn", "fp16", None, True),
    ("void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)", "conv", "cudnn", "fp32", None, False),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", "conv", "cudnn", "fp32", None, None),
    ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(x)", "normalization", "cudnn", "fp32", None, None),
    ("cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise", "conv", "cudnn", None, None, None),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1", "conv", "miopen", "bf16", None, True),
    ("miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1", "conv", "miopen", None, None, None),
    ("batched_transpose_32x64_pack_2x4_ediv_1x2_half", "copy", "miopen", None, None, None),
    (
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3"
        "INS_28GridwiseGemm_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajorE"),
        "conv", "ck", None, None, True,
    ),
    (
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::tensor_layout::gemm::RowMajor, unsigned short>>(x)",
        "gemm", "ck", None, None, True,
    ),
    # attention
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(P)",
        "attention", "flash", "bf16", None, True,
    ),
    (
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
        "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, cutlass::half_t, float>>>>(P)"),
        "attention", "flash", "fp16", None, True,
    ),
    ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor", "attention", "flash", None, None, True),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)", "attention", "cutlass", "fp32", None, True),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        "attention", "cudnn", None, None, True,
    ),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "attention", "other", "fp8", None, None),
    ("attn_fwd.kd", "attention", "triton", None, None, None),
    ("aiter::fmha_fwd_hd128_bf16_rtz", "attention", "other", "bf16", None, None),
    # ATen
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
        "pointwise", "aten", "fp32", None, False,
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
        "copy", "aten", None, None, False,
    ),
    (
        ("void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4, "
        "TrivialOffsetCalculator<2, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<2>, "
        "at::native::memory::StoreWithCast<1> >(int)"),
        "pointwise", "aten", None, None, False,
    ),
    (
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
        "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(x)"),
        "optimizer", "aten", "fp32", None, False,
    ),
    (
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, "
        "at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0> >(x)"),
        "reduction", "aten", "fp32", None, False,
    ),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(x)", "softmax", "aten", "fp32", None, False),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)", "normalization", "aten", "bf16", None, False),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float> > >(x)", "reduction", "aten", "fp32", None, False),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(x)", "index", "aten", "fp32", None, False),
    ("void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<at_cuda_detail::cub::X>(x)", "sort", "cub", None, None, False),
    ("void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, x>(x)", "rng", "aten", "fp32", None, False),
    # communication
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "nccl", None, None, False),
    ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16", "communication", "nccl", None, None, False),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", "communication", "other", None, None, False),
    # what only looks like a GEMM
    ("void fbgemm_gpu::permute_2D_data_kernel<true, int, int, float>(int)", "index", "other", None, None, None),
    ("void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t> >(x)", "reduction", "other", None, None, None),
    ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1", "gemm", "other", None, None, True),
    ("bmm_E4m3_E4m3E4m3_Fp32_BtokBfloat16_t128x32x256u2_s5_et128x32", "gemm", "other", "fp8", None, True),
    # operators, where the CPU is the device
    ("aten::addmm", "gemm", "aten", None, None, False),
    ("aten::native_layer_norm", "normalization", "aten", None, None, False),
    ("graph_0_cpp_fused_add_mul_0", "pointwise", "other", None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "library", "dtype", "layout", "tensor_core"), KNOWN)
def test_a_known_name_says(name, family, library, dtype, layout, tensor_core):
    """Family, library, dtype, layout and tensor core of real names of each library and generation."""
    found = decode(name)
    assert (found.family, found.library) == (family, library)
    assert (found.dtype, found.layout, found.tensor_core) == (dtype, layout, tensor_core)


def test_the_details_of_a_gemm_name_are_there():
    """Tile, stages, cluster, split-K, epilogue, generation and alignment, each where the grammar has it."""
    nvjet = decode("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_splitK_TNT")
    assert (nvjet.tile, nvjet.stages, nvjet.cluster, nvjet.arch) == ((256, 128, 64), 4, (1, 2), "sm90")
    assert nvjet.split_k
    assert nvjet.epilogue == ("bias",)
    cutlass = decode("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8")
    assert (cutlass.tile, cutlass.stages, cutlass.alignment, cutlass.arch) == ((128, 64, 64), 6, 8, "sm80")
    assert cutlass.epilogue == ("relu",)
    legacy = decode("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn")
    assert (legacy.tile, legacy.stages, legacy.epilogue) == ((64, 64, 64), 6, ("relu",))
    tensile = decode("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_GSU4_ISA942")
    assert (tensile.tile, tensile.arch, tensile.split_k) == ((256, 192, 64), "gfx942", True)


def test_triton_names_say_category_operators_and_index():
    """Operators with underscores stay whole, whatever stands around them."""
    found = decode("triton_per_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_12")
    assert (found.triton, found.triton_index, found.family) == ("per", 12, "reduction")
    assert found.triton_ops == ("_to_copy", "add", "native_layer_norm", "native_layer_norm_backward", "view")
    assert decode("triton_red_fused_addmm_relu_0").family == "reduction", "addmm is only named for its epilogue"
    assert decode("triton_tem_fused_addmm_relu_3").family == "gemm"
    assert decode("triton_mm_12").triton == "tem"
    assert decode("triton_tem_fused_flex_attention_0").family == "attention"
    assert decode("triton_").triton == "unk"
    assert decode("triton__0d1d2de").triton == "unk"
    assert decode("triton_poi_fused_add_1_0d1d2de").triton_ops == ("add",)
    assert decode("triton_poi_fused_0").triton_ops == ()


def test_collectives_are_named_alike_whatever_wrote_the_kernel():
    """NCCL of several versions, and what torch calls the collective."""
    assert decode("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)").collective == "all_reduce"
    assert decode("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)").collective == "reduce_scatter"
    assert decode("ncclDevKernel_SendRecv(x)").collective == "send_recv"
    assert decode("ncclDevKernel_Generic(x)").collective is None
    assert decode("void vllm::cross_device_reduce_1stage<float, 8>(x)").collective == "all_reduce"


def test_short_names_are_short_and_say_what_it_is():
    """At most 60 characters, the family first, the part that people look for last."""
    assert decode("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT").short == "gemm bf16 tn nvjet_tst_128x256"
    gelu = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda(float)#1}>(int)"
    assert decode(gelu).short == "pointwise gelu"
    assert decode("triton_poi_fused_gelu_mul_0").short == "triton_poi_fused_gelu_mul_0"
    assert len(decode("triton_poi_fused_" + "add_" * 200 + "0").short) == 60


def test_normal_names_drop_what_differs_from_run_to_run():
    """Triton's counter and template arguments go; what an elementwise kernel computes stays."""
    assert normal_name("triton_poi_fused_add_mul_7") == "triton_poi_fused_add_mul"
    assert normal_name("graph_3_cpp_fused_add_mul_7") == "cpp_fused_add_mul"
    assert normal_name("void foo::bar_kernel<float, 4>(float*, int)") == "foo::bar_kernel"
    add = "void at::native::vectorized_elementwise_kernel<{}, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
    mul = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int)"
    )
    assert normal_name(add.format(4)) == normal_name(add.format(2)) != normal_name(mul)
    assert without_index("triton_poi_fused_add_mul_7") == "triton_poi_fused_add_mul"
    assert without_index("ampere_sgemm_32x32_1") == "ampere_sgemm_32x32_1"


def test_decoding_does_not_depend_on_what_was_decoded_before():
    """The same answers in any order, cached or not."""
    names = [row[0] for row in KNOWN]
    first = {name: decode(name) for name in names}
    decode.cache_clear()
    random.Random(1).shuffle(names)
    assert {name: decode(name) for name in names} == first


def test_only_the_front_of_a_name_is_looked_at():
    """What bounds the time: behind 1,600 characters nothing is read, so a name may be as long as it likes."""
    start = "void some_library::some_kernel<" + "x, " * 600
    assert decode(start + "tail") == decode(start + "gemm flash_fwd nccl triton_poi_fused_add_0" * 100)


ADVERSARIAL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from pytest_torchprof.kernels.names import decode, normal_name
starts = sys.argv[1].split("|")
for start in starts:
    for piece in ("0", "_", "a", "1x", "_0", "_a1", "0_0x0", "::a", "<a", ", ", "(a)", "_1_", "n", "x1x1", "d1"):
        for length in (50, 1500, 6000):
            for end in ("", "!", "_tn", "_0"):
                name = (start + piece * length)[:length] + end
                decode(name), normal_name(name)
"""


def test_no_expression_blows_up_on_a_name_made_to_hurt_it():
    """Some 4,000 names of repeated pieces in 30 seconds of processor time: seconds for one of them would be too many."""
    starts = "nvjet_tst_|ampere_s16816gemm_|sm90_xmma_gemm_|sm80_xmma_fprop_|cutlass_80_tensorop_s|cutlass3x_sm90_tensorop_gemm_|Cijk_Alik_B"
    starts += "|triton_poi_fused_|triton_|cpp_fused_|void at::native::vectorized_elementwise_kernel<4, |flash_fwd|_ZN|bmm_a_b_Fp32_|igemm_fwd_|ck::|std::enable_if<"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", ADVERSARIAL, starts], check=True, env=environment)


def test_importing_the_tables_needs_neither_torch_nor_pytest():
    """The command decodes names in a process that loads neither."""
    code = "import sys, pytest_torchprof.kernels.names as n; n.decode('x'); print(sorted({'torch', 'pytest'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


# The name says nothing of the dtype; the operator's inputs do (test_evidence).
ONLY_BY_OPERATOR = {"attn_fwd"}


@needs_recordings
def test_names_of_recordings_say_what_their_operators_prove():
    """At least 97 % of the names whose operators' inputs prove family, dtype and layout; the rest is listed."""
    expected = json.loads((SHARED / "naming_expected.json").read_text(encoding="utf-8"))
    wrong = set()
    for entry in expected:
        found = decode(entry["name"])
        right = found.family == entry["family"]
        right &= entry["dtype"] is None or (found.dtype or "?") in entry["dtype"].split("|")
        right &= entry["layout"] is None or found.layout == entry["layout"]
        if not right:
            wrong.add(entry["name"])
    assert wrong == ONLY_BY_OPERATOR
    assert len(wrong) <= 0.03 * len(expected)


@needs_recordings
def test_no_name_of_the_recordings_is_called_gemm_without_being_one():
    """Every gemm of the table holds a product's word, and none holds one of a convolution, index or copy kernel."""
    lines = (SHARED / "kernel_names.tsv").read_text(encoding="utf-8").splitlines()[1:]
    gemms = {name for line in lines if decode(name := line.partition("\t")[0]).family == "gemm"}
    product = ("gemm", "gemv", "nvjet", "Cijk", "dot_kernel", "bmm_", "matmul", "triton_tem")
    no_product = (
        "convolve",
        "fprop",
        "dgrad",
        "wgrad",
        "cudnn",
        "igemm_",
        "fbgemm_gpu",
        "permute",
        "reduce_kernel",
        "finalize",
    )
    assert not [name for name in gemms if not any(word in name for word in product)]
    assert not [name for name in gemms if any(word in name[:200] for word in no_product)]


@pytest.mark.parametrize(
    "name", ["silu_matmul", "fused_mlp_gelu", "attn_softmax_v", "my_fc1_quant", "linear_silu_kernel"]
)
def test_a_word_beside_one_of_a_product_tells_nothing(name):
    assert decode(name).family is None


@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("void at::native::elementwise_kernel", {"gemm", "conv", "attention", "communication", "reduction", "sort"}),
        ("void at::native::something_new<float>(float*)", {"communication"}),
        ("triton_", {"communication"}),
        ("cpp_fused_op_of_tomorrow_and_more_0", {"gemm", "conv", "attention", "communication"}),
        ("void rocprim::detail::kernel_of_tomorrow<int>(int)", {"gemm", "conv", "attention", "communication"}),
        ("my_kernel", set()),
    ],
)
def test_what_a_kernel_is_not_is_known_without_what_it_is(name, never):
    found = decode(name)
    assert found.never >= never
    if name != "cpp_fused_op_of_tomorrow_and_more_0":
        assert found.family is None


@pytest.mark.parametrize(
    "name",
    [
        "fused_allreduce_gemm_kernel",
        "matmul_reduce_scatter_kernel",
        "all_gather_matmul_kernel",
        "ring_all_gather_attention_kernel",
        "fused_moe_allreduce",
        "fused_linear_cross_entropy_kernel",
        "matmul_cross_entropy",
        "paged_rope_mla_kernel",
        "linear_rope",
        "allreduce_softmax_fused",
        "void foo::elementwise_kernel<128, 4, foo::mlp>(int)",
        "void foo::reduce_kernel<512, 1, foo::MatVec<float> >(foo)",
    ],
)
def test_of_a_name_that_holds_two_things_neither_is_known(name):
    found = decode(name)
    assert found.family is None
    assert "communication" not in found.never
    assert "gemm" not in found.never or name == "allreduce_softmax_fused"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("my_allreduce", "communication"),
        ("allreduce_rmsnorm_fused", "communication"),
        ("ring_all_gather_kernel", "communication"),
        ("fsdp::all_gather_copy_in", "index"),
        ("concat_and_cache_mla_kernel", "copy"),
        ("void vllm::reshape_and_cache_flash_kernel<float>(float*)", "copy"),
        ("fused_moe_kernel", "gemm"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128_swiglu", "gemm"),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<float>(x)", "communication"),
    ],
)
def test_of_one_thing_a_word_is_enough(name, family):
    assert decode(name).family == family

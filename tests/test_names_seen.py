"""Names of kernels beside the call that launched them, as a real GPU gave them.

Seen on an NVIDIA H200 (sm_90) with torch 2.11.0+cu130, CUDA 13.0, cuBLAS 13.1.0.3 and cuDNN 9.19: each call ran alone, so
its types and layouts are known apart from the name. Leading and trailing template arguments are as they were; what stands
between them and says nothing is cut.
"""

from __future__ import annotations

from collections import Counter

import pytest
from builder import TraceBuilder, own_recording

from pytest_torchprof import NotMeasured, attention, conv, family, gemm, load
from pytest_torchprof.kernels.names import decode

pytestmark = pytest.mark.any_torch

# Of a @ b: how a lies, how b lies (n row-major, t a transposed view) and its kernel's name, without the wrapper
# cutlass::Kernel2<..>. Sizes from 16 to 8192, odd ones, and a K of 65,536.
PRODUCTS = """
fp32:
tn sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tt sm80_xmma_gemm_f32f32_f32f32_f32_tt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nn sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nt cutlass_80_simt_sgemm_64x64_8x5_tn_align1
tt cutlass_80_simt_sgemm_64x64_8x5_tt_align1
nn sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nt sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tn cutlass_80_simt_sgemm_128x256_8x4_nt_align1
tt sm80_xmma_gemm_f32f32_f32f32_f32_tt_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nn sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nt sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tn cutlass_80_simt_sgemm_256x128_8x4_nt_align1
tt sm80_xmma_gemm_f32f32_f32f32_f32_tt_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nn sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tn sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nn sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nt sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x128x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tn sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
tt sm80_xmma_gemm_f32f32_f32f32_f32_tt_n_tilesize32x128x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
nn cutlass_80_simt_sgemm_64x64_8x5_nn_align1
tn cutlass_80_simt_sgemm_64x64_8x5_nt_align1
tf32:
nn cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4
nt cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4
tn cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4
tt cutlass_80_tensorop_s1688gemm_64x64_16x6_tt_align4
nn sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
nt sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
tn cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align4
tt sm90_xmma_gemm_f32f32_tf32f32_f32_tt_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
nn sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
nt sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize256x128x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
tn sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
tt sm90_xmma_gemm_f32f32_tf32f32_f32_tt_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_on_kernel__5x_cublas
nn cutlass_80_tensorop_s1688gemm_128x256_32x3_nn_align1
nt cutlass_80_tensorop_s1688gemm_128x256_32x3_tn_align1
tn cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align1
tt cutlass_80_tensorop_s1688gemm_256x128_32x3_tt_align1
nn cutlass_80_tensorop_s1688gemm_256x64_32x3_nn_align4
nt sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
tn cutlass_80_tensorop_s1688gemm_256x64_32x3_nt_align4
nn cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4
nt cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4
tn cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4
tt cutlass_80_tensorop_s1688gemm_64x64_32x6_tt_align4
fp16:
nn nvjet_sm90_hsh_64x8_64x16_1x2_h_bz_NNT
nt nvjet_sm90_hsh_64x8_64x16_1x2_h_bz_TNT
tn nvjet_sm90_hsh_64x32_64x16_1x1_h_bz_NTT
tt nvjet_sm90_hsh_8x64_64x16_2x1_v_bz_TTN
nn nvjet_sm90_hsh_64x8_64x16_1x4_h_bz_NNT
nt nvjet_sm90_hsh_64x8_64x16_1x4_h_bz_TNT
tn nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_NTT
tt nvjet_sm90_hsh_8x64_64x16_4x1_v_bz_TTN
nn nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_NNT
nt nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT
tn nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_NTT
tt nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TTT
nn nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_NNT
nt nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_TNT
tn nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_NTT
tt nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_TTT
nn cutlass_75_tensorop_s1688gemm_f16_128x128_nn_align1
nt cutlass_75_tensorop_s1688gemm_f16_128x128_tn_align1
tn cutlass_75_tensorop_f16_s1688gemm_f16_128x128_nt_align1
tt cutlass_75_tensorop_s1688gemm_f16_128x128_tt_align1
nn nvjet_sm90_hsh_256x16_64x6_4x1_v_bz_splitK_NNT
nt nvjet_sm90_hsh_64x16_64x16_2x1_v_bz_TNT
tn nvjet_sm90_hsh_64x32_64x16_2x1_v_bz_NTT
tt nvjet_sm90_hsh_128x32_64x10_2x1_v_bz_splitK_TTT
nn nvjet_sm90_hsh_64x16_64x16_1x1_h_bz_splitK_NNT
nt nvjet_sm90_hsh_64x16_64x16_1x1_h_bz_splitK_TNT
tn nvjet_sm90_hsh_64x32_64x16_1x1_h_bz_splitK_NTT
tt nvjet_sm90_hsh_16x64_64x16_1x1_h_bz_splitK_TTN
bf16:
nn nvjet_sm90_tst_64x8_64x16_1x2_h_bz_NNT
nt nvjet_sm90_tst_64x8_64x16_1x2_h_bz_TNT
tn nvjet_sm90_tst_32x64_64x16_1x1_h_bz_NTN
tt nvjet_sm90_tst_8x64_64x16_2x1_v_bz_TTN
nn nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT
nt nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT
tn nvjet_sm90_tst_32x64_64x16_2x1_v_bz_NTN
tt nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TTN
nn nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT
nt nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT
tn nvjet_sm90_tst_64x128_64x8_2x1_v_bz_NTN
tt nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TTT
nn nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT
nt nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT
tn nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT
tt nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TTT
nn cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1
nt cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1
tn cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nt_align1
tt cutlass_75_tensorop_s1688gemm_bf16_128x256_tt_align1
nn nvjet_sm90_tst_64x16_64x16_2x1_v_bz_NNT
nt nvjet_sm90_tst_64x16_64x16_2x1_v_bz_TNT
tn nvjet_sm90_tst_64x32_64x16_2x1_v_bz_NTT
tt nvjet_sm90_tst_128x32_64x10_2x1_v_bz_splitK_TTT
nn nvjet_sm90_tst_64x16_64x16_1x1_h_bz_splitK_NNT
nt nvjet_sm90_tst_64x16_64x16_1x1_h_bz_splitK_TNT
tn nvjet_sm90_tst_32x64_64x16_1x1_h_bz_splitK_NTN
tt nvjet_sm90_tst_16x64_64x16_1x1_h_bz_splitK_TTN
fp64:
nn cutlass_80_tensorop_d884gemm_64x32_16x4_nn_align1
nt sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize32x32x32_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
tn cutlass_80_tensorop_d884gemm_32x32_16x5_nt_align1
tt cutlass_80_tensorop_d884gemm_32x32_16x5_tt_align1
nn sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize32x32x32_stage5_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
nt sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize32x32x32_stage5_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
tn sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize32x32x32_stage5_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
tt sm90_xmma_gemm_f64f64_f64f64_f64_tt_n_tilesize32x32x32_stage5_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
nn sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_execute_kernel__5x_cublas
nt sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_execute_kernel__5x_cublas
tn sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_execute_kernel__5x_cublas
tt sm90_xmma_gemm_f64f64_f64f64_f64_tt_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_execute_kernel__5x_cublas
nn sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x128x32_stage3_warpsize2x4x1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cublas
nt sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cublas
tn sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize64x128x32_stage3_warpsize2x4x1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cublas
tt sm90_xmma_gemm_f64f64_f64f64_f64_tt_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cublas
nn sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize32x64x32_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas
tn sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize32x64x32_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas
tt sm90_xmma_gemm_f64f64_f64f64_f64_tt_n_tilesize32x64x32_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas
nn cutlass_80_tensorop_d884gemm_32x32_16x5_nn_align1
nt cutlass_80_tensorop_d884gemm_32x32_16x5_tn_align1
"""


def products():
    dtype = ""
    for line in PRODUCTS.split("\n")[1:-1]:
        head, _, name = line.partition(" ")
        if name:
            yield dtype, head, name
        else:
            dtype = head.rstrip(":")


GRIDS = "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<{0} const>, cublasGemvTensorStridedBatched<{0} const>, cublasGemvTensorStridedBatched<{0}>, {0}> >(x)"
SMALL = "128, 2, 4, 8, 4, 4, false, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float> >(x)"
XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_{}kernel__5x_cublas"
WGRAD = "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_execute_{}_kernel__5x_cudnn"
WORKSPACE = "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::implicit_gemm::wgrad_indexed::Warp_specialized_params<xmma__5x_cudnn::Grid_constant_params> >(x)"
LSTM = (
    "void RNN_blockPersist_fp_LSTM<float, float, float, 64>(float const*, float*, float const*, float*, float const*, float*, "
    "float*, float const*, float const*, float*, int, int, int, int, int, int, cudnnRNNClipMode_t, cudnnNanPropagation_t, float, float)"
)
LISTS = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::{}>(x)"
TRAITS = "Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t, Flash_kernel_traits<64, 128, 128, 8, cutlass::bfloat16_t> >"

# What was called, a kernel that it launched, and what the name says.
CALLS = [
    (
        "F.linear(x, weight, bias) in bf16",
        "nvjet_sm90_tst_24x64_64x16_4x1_v_bz_bias_TNN",
        {"family": "gemm", "library": "cublas", "dtype": "bf16", "layout": "tn", "tensor_core": True,
         "tile": (24, 64, 64), "stages": 16, "cluster": (4, 1), "epilogue": ("bias",), "arch": "sm90", "split_k": None},
    ),
    (
        "torch._scaled_mm(x, weight.t()) of float8_e4m3fn, to bf16",
        "nvjet_sm90_qqtst_24x64_128x16_4x1_v_bz_algo2_TNN",
        {"family": "gemm", "dtype": "fp8", "layout": "tn", "tile": (24, 64, 128), "epilogue": (), "arch": "sm90"},
    ),
    (
        "a @ b of 16 rows, K = 8192, in fp16",
        "nvjet_sm90_hsh_256x16_64x6_4x1_v_bz_splitK_NNT",
        {"split_k": True, "stages": 6, "cluster": (4, 1), "dtype": "fp16", "layout": "nn"},
    ),
    (
        "a @ b, 8192 x 8192 x 8192, in bf16",
        "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT",
        {"split_k": None, "tile": (320, 128, 64), "cluster": (1, 2), "layout": "nn"},
    ),
    (
        "a vector times a matrix in bf16: no kernel for vectors",
        "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT",
        {"family": "gemm", "dtype": "bf16", "split_k": True},
    ),
    (
        "a vector times a matrix in fp32, row-major, with TF32 allowed and without",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true, false, false, 9, false, " + GRIDS.format("float"),
        {"family": "gemm", "library": "cublas", "dtype": "fp32", "layout": None, "tensor_core": False,
         "short": "gemm fp32 gemvx::kernel"},
    ),
    (
        "a vector times a transposed view in fp32",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, " + GRIDS.format("float"),
        {"family": "gemm", "dtype": "fp32", "layout": None, "tensor_core": False},
    ),
    (
        "a vector times a matrix in fp64",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, double, double, double, double, false, true, true, false, 9, false, " + GRIDS.format("double"),
        {"family": "gemm", "dtype": "fp64", "layout": None, "tensor_core": False},
    ),
    (
        "a @ b, 16 x 16 x 16, in fp32",
        "void gemmSN_NN_kernel<float, " + SMALL,
        {"family": "gemm", "dtype": "fp32", "layout": "nn", "tensor_core": False},
    ),
    (
        "a @ b.t() likewise",
        "void gemmSN_TN_kernel<float, " + SMALL,
        {"family": "gemm", "dtype": "fp32", "layout": "tn", "tensor_core": False},
    ),
    (
        "a @ b of 16 rows in fp32: its second kernel, one block deep where the first is five",
        XMMA.format("nn", "32x64x8", "split_k_"),
        {"family": "reduction", "library": "cublas", "helper": "split-k reduce", "layout": None, "dtype": None,
         "tensor_core": False, "arch": "sm80", "short": "reduction sm80_xmma_split_k"},
    ),
    (
        "a @ b with K = 65,536 in fp32: its second kernel",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, float, float, float, true, false, false, false>(x)",
        {"family": "reduction", "library": "cublas", "helper": "split-k reduce"},
    ),
    ("F.layer_norm in bf16",
     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(x)",
     {"family": "normalization", "library": "aten", "dtype": "bf16"}),
    ("F.rms_norm in bf16: the same template",
     "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(x)",
     {"family": "normalization", "library": "aten", "dtype": "bf16"}),
    ("F.batch_norm",
     "void at::native::batch_norm_collect_statistics_kernel<at::native::Var, float, float, float, int>(x)",
     {"family": "normalization", "library": "aten", "dtype": "fp32"}),
    ("softmax in bf16",
     "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, false, false>(x)",
     {"family": "softmax", "dtype": "bf16"}),
    ("F.cross_entropy", "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(x)",
     {"family": "reduction", "dtype": "fp32"}),
    ("nn.LSTM, one layer", LSTM, {"family": None, "library": "cudnn", "dtype": "fp32", "tensor_core": None}),
    ("attention by FlashAttention",
     "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, cutlass::bfloat16_t, Flash_kernel_traits<64, 64, 256, 4, cutlass::bfloat16_t> >, true, false, false, true, true, false, true, false>(x)",
     {"family": "attention", "library": "flash", "dtype": "bf16", "version": 2, "helper": None}),
    ("backward of it", f"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{TRAITS}, false, true, false, false, true, true, false>(x)",
     {"family": "attention", "library": "flash", "dtype": "bf16", "version": 2, "helper": None}),
    ("backward of it", f"void pytorch_flash::flash_bwd_dot_do_o_kernel<true, {TRAITS} >(x)",
     {"family": "attention", "library": "flash", "helper": "attention backward part"}),
    ("attention, memory-efficient", "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
     {"family": "attention", "library": "cutlass", "dtype": "bf16", "version": 0, "helper": None}),
    ("backward of it", "fmha_cutlassB_bf16_aligned_64x64_k64_seqaligned_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::arch::Sm80, cutlass::bfloat16_t, true, false, true, 64, 64, 64, true>::Params)",
     {"family": "attention", "library": "cutlass", "dtype": "bf16", "version": 0, "helper": None}),
    ("attention by cuDNN in bf16", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
     {"family": "attention", "library": "cudnn", "dtype": None, "version": 0, "helper": None, "arch": "sm90",
      "short": "attention cudnn_fprop_64x128x64"}),
    ("backward of it", "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, void*, void*, unsigned int)",
     {"family": "attention", "library": "cudnn", "version": 0, "helper": "attention backward part", "tensor_core": None}),
    ("backward of it, of another shape", "void cudnn::fusion::compute_dot_do_o<true>(void const*, void const*, void*, void*, unsigned int)",
     {"family": "attention", "library": "cudnn", "version": 0, "helper": "attention backward part"}),
    ("backward of it", "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
     {"family": "attention", "library": "cudnn", "dtype": None, "version": 0, "helper": None, "arch": "sm90",
      "short": "attention cudnn_bprop_64x64x64"}),
    ("backward of it", "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int, float const*)",
     {"family": "attention", "library": "cudnn", "version": 0, "helper": "attention backward part"}),
    ("nn.Conv2d in bf16", "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1_tensor16x8x16_t1r3s3_execute_kernel__5x_cudnn",
     {"family": "conv", "library": "cudnn", "dtype": "bf16", "tensor_core": True, "layout": None, "tile": (64, 64, 64), "stages": 4}),
    ("its gradient by the image", "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn",
     {"family": "conv", "library": "cudnn", "dtype": "bf16", "tensor_core": True, "arch": "sm90"}),
    ("its gradient by the weight", WORKSPACE, {"family": "conv", "library": "cudnn", "helper": "convolution workspace"}),
    ("its gradient by the weight", WGRAD.format("segment_k_on"),
     {"family": "conv", "library": "cudnn", "dtype": "bf16", "helper": None}),
    ("its gradient by the weight", WGRAD.format("split_k"),
     {"family": "reduction", "library": "cudnn", "helper": "split-k reduce", "dtype": None, "arch": "sm90"}),
    ("nn.Conv2d of images that are not channels-last",
     "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)0>(x)",
     {"family": "conv", "library": "cudnn", "helper": "layout conversion"}),
    ("nn.Conv2d of channels-last images of three channels",
     "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, (cudnnKernelDataType_t)0>(int, int, int)",
     {"family": "conv", "library": "cudnn", "dtype": "bf16", "helper": "layout conversion"}),
    ("Adam(fused=True)", LISTS.format("FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>, float const*, double"),
     {"family": "optimizer", "library": "aten", "dtype": "fp32"}),
    ("Adam(foreach=True)", LISTS.format("TensorListMetadata<2>, at::native::(anonymous namespace)::TernaryOpScalarFunctor<float, 2, 2, 0>, at::native::LerpFunctor<float>, float"),
     {"family": "pointwise", "library": "aten", "dtype": "fp32"}),
    ("a cast to float8_e4m3fn", "void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(x)",
     {"family": "copy", "library": "aten"}),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "lie", "name"), list(products()))
def test_a_product_has_the_type_and_the_layout_of_its_operands(dtype, lie, name):
    """BLAS is column-major, so torch hands it ``b`` first."""
    first, second = lie
    decoded = decode(name)
    assert (decoded.family, decoded.helper) == ("gemm", None)
    assert (decoded.dtype, decoded.layout) == (dtype, second + first)
    assert decoded.tensor_core is (dtype != "fp32")


def test_all_types_were_called_in_all_layouts():
    called = Counter((dtype, lie) for dtype, lie, _ in products())
    assert set(called) == {
        (dtype, lie) for dtype in ("fp32", "tf32", "fp16", "bf16", "fp64") for lie in ("nn", "nt", "tn", "tt")
    }


def test_the_third_letter_of_nvjet_says_which_side_of_the_tile_is_longer():
    nvjet = [name for *_, name in products() if name.startswith("nvjet")]
    sides = Counter((decode(name).tile[0] >= decode(name).tile[1], name[-1]) for name in nvjet)
    assert set(sides) == {(True, "T"), (False, "N")}
    assert sides.total() > 40


def test_stages_of_nvjet_hold_a_tile_of_both_operands_each():
    """By the shared memory that was recorded beside the names, of which 16,852 bytes are something else."""
    shared_bytes = {
        "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT": 164308,
        "nvjet_sm90_tst_64x16_64x16_2x4_h_bz_bias_TNT": 180692,
        "nvjet_sm90_tst_32x64_64x16_4x2_h_bz_NTN": 213460,
    }
    others = set()
    for name, recorded in shared_bytes.items():
        m, n, k = decode(name).tile
        others.add(recorded - 2 * (m + n) * k * decode(name).stages)
    assert others == {16852}


def test_nvjet_serves_half_precision_only():
    assert {dtype for dtype, _, name in products() if name.startswith("nvjet")} == {"fp16", "bf16"}


@pytest.mark.parametrize(("called", "name", "fields"), CALLS)
def test_a_name_says_what_was_called(called, name, fields):
    decoded = decode(name)
    assert {field: getattr(decoded, field) for field in fields} == fields, called


def test_a_product_in_two_kernels_is_one_product(tmp_path):
    names = {XMMA.format("nn", "32x64x8", ""): 1, XMMA.format("nn", "32x64x8", "split_k_"): 1}
    profile = load(own_recording(names).write(tmp_path / "t.json"))
    profile.expect(kernels={gemm(): 1}, max_kernels=2, min_kernels=2)


def test_a_convolutions_gradient_in_three_kernels_is_one_convolution(tmp_path):
    names = {WORKSPACE: 1, WGRAD.format("segment_k_on"): 1, WGRAD.format("split_k"): 1}
    profile = load(own_recording(names).write(tmp_path / "t.json"))
    profile.expect(kernels={conv(): 1}, min_kernels=3, forbid_kernels=gemm())


def test_attention_of_cudnn_has_no_convolution_in_its_backward_pass(tmp_path):
    names = [name for called, name, _ in CALLS if "cudnn" in name and ("sdpa" in name or "fusion" in name)]
    profile = load(own_recording(dict.fromkeys(names, 1)).write(tmp_path / "t.json"))
    profile.expect(kernels={attention(): 2}, min_kernels=len(names), forbid_kernels=conv())


def test_a_recurrent_layer_in_one_kernel_may_be_a_product_and_is_surely_no_attention(tmp_path):
    recording = TraceBuilder()
    recording.own(steps=1)
    recording.step(0, 0, 900)
    recording.launched(LSTM, 10, op="aten::_cudnn_rnn")
    recording.sync(1100, 50)
    profile = load(recording.write(tmp_path / "t.json"))
    profile.expect(forbid_kernels=[conv(), attention(), family("reduction")])
    with pytest.raises(NotMeasured):
        profile.expect(forbid_kernels=gemm())

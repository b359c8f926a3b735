"""Rules by which names decode that were not seen in the shared recordings: each with real names, and with what it is not.

The names are from public profiles: of cuDNN 8 on Volta and Ampere, of TensorFlow's with cuDNN's CUTLASS, of cuBLAS.
"""

from __future__ import annotations

import pytest

from pytest_torchprof import conv
from pytest_torchprof.kernels.names import decode

pytestmark = pytest.mark.any_torch

TENSORS = "cublasGemvTensorStridedBatched<{} const>, cublasGemvTensorStridedBatched<{} const>"
IMPLICIT = (
    "_ZN13cutlass_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_"
    "4gemm9GemmShapeILi64ELi256ELi32EEENS4_51Conv2d{}OutputGradientTileAccessIteratorAnalyticINS_11MatrixShapeILi64ELi32"
    "EEENS_{}ENS_9transform29PitchLinearWarpRakedThreadMapINS_6layout16PitchLinearShapeILi64ELi32EEELi128E"
)

# name, family, library, dtype
CASES = [
    ("_5x_cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv", "cudnn", "fp32"),
    ("_5x_cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "conv", "cudnn", "fp32"),
    ("_5x_cudnn_ampere_scudnn_128x32_relu_interior_nn_v1", "conv", "cudnn", "fp32"),
    ("_5x_cudnn_volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "conv", "cudnn", "fp16"),
    ("_12x_cudnn_turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", "conv", "cudnn", "fp16"),
    ("cudnn_volta_scudnn_128x64_relu_small_nn_v1", "conv", "cudnn", "fp32"),
    (IMPLICIT.format("Wgrad", "6half_t"), "conv", "cudnn", "fp16"),
    (IMPLICIT.format("Wgrad", "10tfloat32_t"), "conv", "cudnn", "tf32"),
    (IMPLICIT.format("Dgrad", "10bfloat16_t").replace("13cutlass_cudnn", "7cutlass"), "conv", "cutlass", "bf16"),
    ("reduction_prod_kernel", "reduction", "aten", None),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half, float, 512, true, 1>(cudnnTensorStruct, __half const*)",
     "normalization", "cudnn", "fp16"),
    ("void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, 512, true, 1>(float, float)",
     "normalization", "cudnn", "fp16"),
    ("_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWI6__halffLi512ELb1ELi1EEEv17cudnnTensorStruct", "normalization", "cudnn", "fp16"),
    ("_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffLi512ELb1ELi1EEEv17cudnnTensorStruct", "normalization", "cudnn", "fp32"),
    ("_ZN5cudnn3cnn17wgrad_alg0_engineIffLi128ELi6ELi7EEEv", "conv", "cudnn", "fp32"),
    ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfEEEEv", "reduction", "aten", "fp32"),
    ("sgemm_128x128x8_NN_vec", "gemm", "cublas", "fp32"),
    ("zgemm_64x32_NN", "gemm", "cublas", None),
    ("dgemm_largek_lds64", "gemm", "cublas", "fp64"),
    ("void hgemm_largek_lds64<true, false, 5, 5>(__half*)", "gemm", "cublas", "fp16"),
    (f"void dot_kernel<float, 128, 0, cublasDotParams<{TENSORS.format('__half', '__half')}, cublasGemvTensor<float> > >()",
     "gemm", "cublas", "fp16"),
    (f"void gemmSN_NN_kernel<float, 128, {TENSORS.format('__half', '__half')}, cublasGemvTensor<float> >()",
     "gemm", "cublas", "fp16"),
]  # fmt: skip

NOT = [
    # A name of the user's around the same words.
    ("my_5x_cudnn_volta_scudnn_128x64_relu", "library", "cudnn"),
    ("_x_cudnn_volta_scudnn_128x64_relu", "library", "cudnn"),
    ("_5x_cudnn_volta_sgemm_128x64_nn", "family", "conv"),
    # The same templates in a product.
    (
        "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock13MmaMultistageINS1_9GemmShapeILi128ELi128EEE",
        "family",
        "conv",
    ),
    (IMPLICIT.format("Wgrad", "6half_t").replace("6half_t", "f"), "dtype", "fp16"),
    ("user_reduction_prod_kernel", "library", "aten"),
    ("reduction_prod_kernel_v2", "library", "aten"),
    ("void mine::reduction_prod_kernel<float>(float*)", "library", "aten"),
    # What it computes in is not what its tensors are.
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<int, float, 512, true, 1>(cudnnTensorStruct)", "dtype", "fp32"),
    ("_ZN5cudnn3cnn17wgrad_alg0_engineI6__halffLi128ELi6ELi7EEEv", "dtype", "fp16"),
    ("fused_sgemm_largek_kernel", "library", "cublas"),
    # Operands that differ.
    (f"void gemv2T_kernel_val<int, int, __half, float, float, float, 128, {TENSORS.format('__half', 'float')}>()",
     "dtype", "fp16"),
    (f"void gemv2T_kernel_val<int, int, __half, float, float, float, 128, {TENSORS.format('__half', 'float')}>()",
     "dtype", "fp32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "library", "dtype"), CASES)
def test_what_a_name_says(name, family, library, dtype):
    found = decode(name)
    assert (found.family, found.library, found.dtype) == (family, library, dtype)


@pytest.mark.parametrize(("name", "field", "value"), NOT)
def test_what_a_name_does_not_say(name, field, value):
    assert getattr(decode(name), field) != value


@pytest.mark.parametrize("name", [name for name, family, *_ in CASES if family == "conv"])
def test_a_convolution_is_forbidden_whatever_it_is_called(tmp_path, name):
    from builder import own_recording

    from pytest_torchprof import LimitsMissed, load

    with pytest.raises(LimitsMissed):
        load(own_recording({name: 1}).write(tmp_path / "t.json")).expect(forbid_kernels=conv())

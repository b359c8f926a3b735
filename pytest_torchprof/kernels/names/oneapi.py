"""Intel: oneDNN primitives and SYCL kernels of torch-xpu-ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import first_meaning, word_table

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# Start of oneDNN's kernel name -> family (its JIT generators and OpenCL kernels; no dtype, no layout in the name).
_ONEDNN: Final = word_table(
    """
    gemm: gemm_kernel gemmstone jit_gemm gen_gemm xe_hp_systolic_gemm xe_hpc_systolic_gemm ref_gemm ref_matmul
    conv: gen_conv gen9_conv xe_lp_x8s8x_conv ref_convolution xe_conv
    attention: micro_sdpa
    softmax: ref_softmax gen9_softmax reusable_softmax simple_softmax
    normalization: ref_bnorm gen9_bnorm ref_lnorm vectorized_lnorm reusable_vectorized_lnorm
    reduction: gen9_pooling ref_pooling gen9_reduction ref_reduce atomic_reduce
    pointwise: gen9_binary ref_eltwise multi_po_reorder_binary simple_binary ref_sum
    copy: ref_reorder custom_reorder generic_reorder
    index: simple_concat multi_concat reusable_simple_concat
    """
)
_STARTS: Final = tuple(start for start, _ in _ONEDNN)
# Word in a SYCL kernel of at::native::xpu -> family; the first that occurs.
_SYCL: Final = word_table(
    """
    copy: CopyScalarFunc CopyFunctor copy_kernel
    index: CatArray
    softmax: Softmax SoftMax
    normalization: LayerNorm GroupNorm BatchNorm RMSNorm
    optimizer: FusedAdam FusedSgd FusedSGD
    sort: RadixSort SegmentedSort TopK
    index: Scatter Gather Index Embedding
    rng: Distribution Dropout
    reduction: Reduce Scan Pool
    pointwise: MultiTensorApply Elementwise Upsample
    """
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a oneDNN or SYCL kernel; None for any other."""
    base = text.base
    if base.startswith(_STARTS):
        return KernelName(family=next(family for start, family in _ONEDNN if base.startswith(start)), stem=base)
    if "at::native::xpu::" in text.head[:300] or base.startswith("at::native::xpu"):
        where = text.head[:600]
        return KernelName(family=first_meaning(where, _SYCL), library="aten", stem=text.last)
    if base.startswith("sycl::") or "cutlass::fmha" in base:
        return KernelName(stem=text.last)
    return None

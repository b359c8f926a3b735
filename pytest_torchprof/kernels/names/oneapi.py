"""Intel: oneDNN primitives and SYCL kernels of torch-xpu-ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import looked_up

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# Start of oneDNN's kernel name -> family (its JIT generators and OpenCL kernels; no dtype, no layout in the name).
_ONEDNN: Final = (
    ("gemm_kernel", "gemm"),
    ("gemmstone", "gemm"),
    ("jit_gemm", "gemm"),
    ("gen_gemm", "gemm"),
    ("xe_hp_systolic_gemm", "gemm"),
    ("xe_hpc_systolic_gemm", "gemm"),
    ("ref_gemm", "gemm"),
    ("ref_matmul", "gemm"),
    ("gen_conv", "conv"),
    ("gen9_conv", "conv"),
    ("xe_lp_x8s8x_conv", "conv"),
    ("ref_convolution", "conv"),
    ("xe_conv", "conv"),
    ("micro_sdpa", "attention"),
    ("ref_softmax", "softmax"),
    ("gen9_softmax", "softmax"),
    ("reusable_softmax", "softmax"),
    ("simple_softmax", "softmax"),
    ("ref_bnorm", "normalization"),
    ("gen9_bnorm", "normalization"),
    ("ref_lnorm", "normalization"),
    ("vectorized_lnorm", "normalization"),
    ("reusable_vectorized_lnorm", "normalization"),
    ("gen9_pooling", "reduction"),
    ("ref_pooling", "reduction"),
    ("gen9_reduction", "reduction"),
    ("ref_reduce", "reduction"),
    ("atomic_reduce", "reduction"),
    ("gen9_binary", "pointwise"),
    ("ref_eltwise", "pointwise"),
    ("multi_po_reorder_binary", "pointwise"),
    ("simple_binary", "pointwise"),
    ("ref_sum", "pointwise"),
    ("ref_reorder", "copy"),
    ("custom_reorder", "copy"),
    ("generic_reorder", "copy"),
    ("simple_concat", "index"),
    ("multi_concat", "index"),
    ("reusable_simple_concat", "index"),
)
_STARTS: Final = tuple(start for start, _ in _ONEDNN)
# Word in a SYCL kernel of at::native::xpu -> family; the first that occurs.
_SYCL: Final = (
    ("CopyScalarFunc", "copy"),
    ("CopyFunctor", "copy"),
    ("copy_kernel", "copy"),
    ("CatArray", "index"),
    ("Softmax", "softmax"),
    ("SoftMax", "softmax"),
    ("LayerNorm", "normalization"),
    ("GroupNorm", "normalization"),
    ("BatchNorm", "normalization"),
    ("RMSNorm", "normalization"),
    ("FusedAdam", "optimizer"),
    ("FusedSgd", "optimizer"),
    ("FusedSGD", "optimizer"),
    ("RadixSort", "sort"),
    ("SegmentedSort", "sort"),
    ("TopK", "sort"),
    ("Scatter", "index"),
    ("Gather", "index"),
    ("Index", "index"),
    ("Embedding", "index"),
    ("Distribution", "rng"),
    ("Dropout", "rng"),
    ("Reduce", "reduction"),
    ("Scan", "reduction"),
    ("Pool", "reduction"),
    ("MultiTensorApply", "pointwise"),
    ("Elementwise", "pointwise"),
    ("Upsample", "pointwise"),
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a oneDNN or SYCL kernel, None for any other."""
    base = text.base
    if base.startswith(_STARTS):
        family = next(family for start, family in _ONEDNN if base.startswith(start))
        return KernelName(family=family, stem=base)
    if "at::native::xpu::" in text.head[:300] or base.startswith("at::native::xpu"):
        where = text.head[:600]
        family = looked_up(where, _SYCL) or "other"
        return KernelName(family=family, library="aten", stem=text.last)
    if base.startswith("sycl::") or "cutlass::fmha" in base:
        return KernelName(stem=text.last)
    return None

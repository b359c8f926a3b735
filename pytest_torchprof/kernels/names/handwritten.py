"""Hand-written Triton and CuTe DSL kernels: the function's name is all there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import Expression, looked_up, word_table

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# Triton 2 appended a signature: _fwd_kernel_0d1d2de3.
_SIGNATURE: Final = Expression(r"_0[\dcde]*d[\dcde]*$")
_WORDS: Final = word_table(
    """
    gemm: matmul_ogs fused_moe matmul gemm bmm
    normalization: rmsnorm rms_norm layernorm layer_norm group_norm
    softmax: softmax
    reduction: cross_entropy sum_bitmatrix
    sort: topk
    pointwise: rope rotary swiglu geglu silu gelu quant
    """
)


def decode(text: Text) -> KernelName | None:
    """Return what a plain function name says, None for names with namespaces or arguments."""
    if text.args or "::" in text.base or text.mangled:
        return None
    signed = _SIGNATURE.search(text.base)
    base = text.base[: signed.start()] if signed else text.base
    family = looked_up(base.lower(), _WORDS)
    if family is None and not signed:
        return None
    return KernelName(family=family, library="triton" if signed else "other", stem=base)

"""Hand-written Triton and CuTe DSL kernels, of which only the function's name is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import word_table
from pytest_torchprof.kernels.names.words import end_of, names_product
from pytest_torchprof.text.expressions import Expression, contains

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


def _family(text: Text, base: str) -> str | None:
    """Return the family that the words name; None if they name none, or a product and something else."""
    families = list(dict.fromkeys(meaning for word, meaning in _WORDS if word in base))
    is_product = "gemm" in families or names_product(end_of(text))
    return families[0] if families and (families == ["gemm"] or not is_product) else None


def decode(text: Text) -> KernelName | None:
    """Return the decoded form of a plain function name; None for names with namespaces or arguments."""
    if text.args or "::" in text.base or text.mangled:
        return None
    signed = _SIGNATURE.search(text.base)
    base = text.base[: signed.start()] if signed else text.base
    family = _family(text, base.lower())
    by_word = contains(base.lower(), (word for word, _ in _WORDS))
    if not by_word and not signed:
        return None
    return KernelName(family=family, by_word=by_word, library="triton" if signed else "other", stem=base)

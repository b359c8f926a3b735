"""AMD's Composable Kernel and ck_tile, aiter's assembler kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import first_meaning, mangled_dtype, word_table
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A part of a CK name -> family; the first that occurs. Convolutions go through GridwiseGemm, so they come first.
_WORDS: Final = word_table(
    """
    attention: multi_head_attention
    conv: Conv conv
    attention: Fmha fmha Attention
    normalization: Rmsnorm rmsnorm rms_norm Layernorm LayerNorm layernorm Batchnorm
    softmax: Softmax softmax
    sort: TopkSoftmax MoeSorting moe_sorting
    pointwise: MoeSmoothquant Smoothquant smooth_quant quant act_and_mul
    gemm: Gemm gemm FusedMoe fmoe
    reduction: Reduc reduc
    sort: topk
    copy: Permute permute Transpose reshape_and_cache
    pointwise: rope Elementwise elementwise
    """
)
_WORD: Final = Expression(r"_(bf16|fp16|fp8|f16)(?=_|$)")
_PART: Final = Expression(r"[A-Z][a-z]{1,30}\w{0,60}?(?:Fwd|Bwd|Kernel|Gemm|Norm|Problem)\w*")
_TYPE: Final = Expression(
    r"(?:ck_tile::|ck::)?(?:_Float16|_BitInt\(8\)|bf16_t|bfloat16_t|half_t|fp8_t|f8_t|bhalf_t)(?!\w)|DF16b|DF16_"
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a CK or aiter kernel; None for any other."""
    base = text.base
    if not base.startswith(
        ("ck::", "ck_tile::", "aiter::", "kernel_gemm_", "kernel_grouped_conv", "kernel_batched_gemm")
    ):
        return None
    of_aiter = base.startswith("aiter::")
    where = base if of_aiter else f"{base} {text.args[:600]}"
    family = first_meaning(where, _WORDS)
    if family is None and of_aiter:
        return None
    return KernelName(
        family=family,
        library="other" if of_aiter else "ck",
        dtype=_dtype(text, family),
        tensor_core=True if "xdl" in where or "Xdl" in where else None,
        stem=_stem(text, where),
    )


def _dtype(text: Text, family: str | None) -> str | None:
    """Return the operand type if all types in the name are the same; else None."""
    if text.base.startswith("aiter::"):
        if text.mangled:
            return mangled_dtype(text.args)
        words = _WORD.findall(text.base)
        named = {"f16": "fp16"}.get(words[0], words[0]) if words else None
        return named if len(set(words)) == 1 else None
    if family not in ("gemm", "conv"):
        return None
    kinds = {_kind(match[0]) for match in _TYPE.finditer(text.args[:900])}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(word: str) -> str | None:
    word = word.rpartition("::")[2]
    return {
        "_Float16": "fp16",
        "half_t": "fp16",
        "DF16_": "fp16",
        "fp8_t": "fp8",
        "f8_t": "fp8",
        "_BitInt(8)": "fp8",
    }.get(word, "bf16")


def _stem(text: Text, where: str) -> str:
    if text.last not in ("kentry", "kernel"):
        return text.last
    match = _PART.search(where[:300])
    return f"ck {match[0]}" if match else text.last

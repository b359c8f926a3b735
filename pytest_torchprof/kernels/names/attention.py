"""Fused attention: FlashAttention 2, 3 and 4, memory-efficient, cuDNN, AOTriton, CK, serving engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import Expression, contains, first_element, looked_up

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's name -> library; the first that occurs.
_WORDS: Final = (
    ("cudnn_generated_fort_native_sdpa", "cudnn"),
    ("cudnn_generated_oss_sdpa", "cudnn"),
    ("fmha_cutlass", "cutlass"),
    ("flash_fwd", "flash"),
    ("flash_bwd", "flash"),
    ("flash_attn", "flash"),
    ("flash_attention", "flash"),
    ("FlashAttn", "flash"),
    ("FlashAttention", "flash"),
    ("flash::", "flash"),
    ("fmhaSm", "other"),
    ("fmha_v2", "other"),
    ("fmha_mha", "other"),
    ("fmha_fwd", "other"),
    ("fmha_bwd", "other"),
    ("fmha_", "other"),
    ("Fmha", "other"),
    ("attn_fwd", "triton"),
    ("attn_bwd", "triton"),
    ("bwd_kernel_dk_dv", "triton"),
    ("bwd_kernel_dq", "triton"),
    ("bwd_kernel_fuse", "triton"),
    ("bwd_preprocess", "triton"),
    ("_attn_fwd", "triton"),
    ("aged_attention", "other"),
    ("PagedAttention", "other"),
    ("pa_fwd", "other"),
    ("pa_bf16", "other"),
    ("pa_fp16", "other"),
    ("mla_", "other"),
    ("MLAKernel", "other"),
    ("_fwd_grouped_kernel_stage", "triton"),
    ("_fwd_kernel_stage", "triton"),
    ("_fwd_kernel_aligned", "triton"),
    ("flash_decode", "triton"),
    ("mqa_logits", "other"),
    ("unified_attention", "triton"),
    ("masked_multihead_attention", "other"),
    ("mmha::", "other"),
    ("multi_query_attention", "other"),
    ("BatchPrefillWith", "other"),
    ("BatchDecodeWith", "other"),
    ("SinglePrefillWith", "other"),
    ("SingleDecodeWith", "other"),
    ("MergeState", "other"),
    ("AttentionKernel", "cutlass"),
    ("AttentionBackwardKernel", "cutlass"),
    ("attention_kernel", "other"),
    ("splash_attention", "other"),
    ("sparse_attn", "other"),
    ("natten", "other"),
)
# One of these is in every word above: most names are told with eight tests instead of fifty.
_GATE: Final = (
    "mha",
    "lash",
    "ttn",
    "ttention",
    "sdpa",
    "bwd_",
    "With",
    "mla_",
    "MLA",
    "pa_",
    "MergeState",
    "query",
    "_stage",
    "_aligned",
    "mqa_",
    "natten",
)
# Words that only look like attention.
_NOT: Final = (
    "softmax",
    "layernorm",
    "rope",
    "rotary",
    "and_cache",
    "kv_cache",
    "quant",
    "metadata",
    "indices",
    "prepare",
)
_WRAPPED: Final = (
    ("flash::", "flash"),
    ("FlashAttn", "flash"),
    ("Flash_", "flash"),
    ("FmhaFwd", "ck"),
    ("FmhaBwd", "ck"),
    ("Fmha", "cutlass"),
    ("fmha", "cutlass"),
    ("AttentionKernel", "cutlass"),
    ("BatchPrefill", "flash"),
)
_FMHA_CUTLASS: Final = Expression(r"fmha_cutlass[FB]_(?P<dt>bf16|f16|f32)_")
_WORD_TYPE: Final = Expression(r"_(bf16|fp16|fp8|f16|f32)(?:_|$)|QkvE4m3|Qkv(Bfloat16|Fp16|E4m3)")
_ARCH: Final = Expression(r"[sS]m(\d{2,3}a?)(?!\d)")
_PART: Final = Expression(r"(?:flash::|Flash)\w+|\b\w{0,40}?(?:Fmha|fmha)\w+")
_HELPERS: Final = (
    ("_combine", "attention reduce"),
    ("Combine", "attention reduce"),
    ("_reduce_kernel", "attention reduce"),
    ("dot_do_o", "attention backward part"),
    ("convert_dq", "attention backward part"),
    ("convert_dkv", "attention backward part"),
    ("reprocess", "attention backward part"),
    ("Postprocess", "attention backward part"),
)
_WORD_TYPES: Final = {
    "bf16": "bf16",
    "fp16": "fp16",
    "f16": "fp16",
    "fp8": "fp8",
    "f32": "fp32",
    "Bfloat16": "bf16",
    "Fp16": "fp16",
}


def _dtype(text: Text, library: str) -> str | None:
    """Return the dtype of Q, K and V; cuDNN writes f16 for bf16 too, so its names say nothing."""
    if library == "cudnn":
        return None
    if found := _FMHA_CUTLASS.match(text.base):
        return _WORD_TYPES[found["dt"]]
    if "QkvE4m3" in text.base:
        return "fp8"
    if found := _WORD_TYPE.search(text.base):
        return _WORD_TYPES.get(found[1] or found[2] or "")
    return first_element(text.args[:500])


def _library(text: Text) -> str | None:
    base = text.base
    if contains(base, _GATE) and (library := looked_up(base, _WORDS)):
        return library
    if base.startswith(("cutlass::", "ck_tile::", "ck::")) or "kentry" in base:
        return looked_up(text.args[:400], _WRAPPED)
    return None


def _arch(text: Text) -> str | None:
    found = _ARCH.search(text.head[:200])
    return f"sm{found[1]}" if found else None


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a fused attention kernel, None for any other."""
    library = _library(text)
    if library is None or contains(text.last.lower(), _NOT):
        return None
    helper = looked_up(text.head[:300], _HELPERS)
    return KernelName(
        family="attention",
        library=library,
        dtype=_dtype(text, library),
        tensor_core=None if helper else True if library in ("flash", "cudnn", "cutlass", "ck") else None,
        arch=_arch(text),
        helper=helper,
        stem=_stem(text),
    )


def _stem(text: Text) -> str:
    base = text.base
    if base.startswith(("cutlass::", "cutlass__")) or "kentry" in base:
        found = _PART.search(text.args[:400].replace("flash::enable_sm", ""))
        return found[0] if found else text.last
    return text.last

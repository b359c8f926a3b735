"""Fused attention: FlashAttention 2, 3 and 4, memory-efficient, cuDNN, AOTriton, CK, serving engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.names.kernelname import KernelName
from pytest_torchprof.names.words import dtype_of

if TYPE_CHECKING:
    from pytest_torchprof.names.text import Text

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
    ("flashinfer::", "other"),
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
    "qkv_",
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
_ELEMENT: Final = re.compile(
    r"(?:cutlass::|c10::|at::)?(?:bfloat16_t|half_t|float_e4m3_t|float_e5m2_t|BFloat16|__nv_bfloat16|__half|__hip_bfloat16|"
    r"tfloat32_t)(?!\w)|DF16b|DF16_"
)
_FMHA_CUTLASS: Final = re.compile(r"fmha_cutlass[FB]_(?P<dt>bf16|f16|f32)_")
_WORD_TYPE: Final = re.compile(r"_(bf16|fp16|fp8|f16|f32)(?:_|$)|QkvE4m3|Qkv(Bfloat16|Fp16|E4m3)")
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
    found = _ELEMENT.search(text.head)
    if not found:
        return None
    word = found[0]
    return {"DF16b": "bf16", "DF16_": "fp16"}.get(word) or dtype_of(word)


def _library(text: Text) -> str | None:
    base = text.base
    for word, library in _WORDS:
        if word in base:
            return library
    if base.startswith(("cutlass::", "ck_tile::", "ck::")) or "kentry" in base:
        return next((library for word, library in _WRAPPED if word in text.args[:400]), None)
    return None


def _arch(text: Text) -> str | None:
    found = re.search(r"(?:_sm|Sm|enable_sm|sm)(\d{2,3}a?)(?!\d)", text.head[:400])
    return f"sm{found[1]}" if found else None


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a fused attention kernel, None for any other."""
    library = _library(text)
    if library is None or any(word in text.last.lower() for word in _NOT):
        return None
    helper = None
    if any(word in text.head[:300] for word in ("_combine", "Combine", "_reduce_kernel", "splitkv_combine")):
        helper = "attention reduce"
    elif any(
        word in text.head[:300]
        for word in ("dot_do_o", "convert_dq", "convert_dkv", "preprocess", "Preprocess", "Postprocess")
    ):
        helper = "attention backward part"
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
        found = re.search(r"(?:flash::|Flash)\w+|\w*(?:Fmha|fmha)\w+", text.args[:400].replace("flash::enable_sm", ""))
        return found[0] if found else text.last
    return text.last

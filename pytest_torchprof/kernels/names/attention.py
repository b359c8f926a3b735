"""Fused attention: FlashAttention 2, 3 and 4, memory-efficient, cuDNN, AOTriton, CK, serving engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import Expression, contains, first_element, looked_up, word_list, word_table

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's name -> library; the first that occurs.
_WORDS: Final = word_table(
    """
    cudnn: cudnn_generated_fort_native_sdpa cudnn_generated_oss_sdpa
    cutlass: fmha_cutlass
    flash: flash_fwd flash_bwd flash_attn flash_attention FlashAttn FlashAttention flash::
    other: fmhaSm fmha_v2 fmha_mha fmha_fwd fmha_bwd fmha_ Fmha
    triton: attn_fwd attn_bwd bwd_kernel_dk_dv bwd_kernel_dq bwd_kernel_fuse bwd_preprocess _attn_fwd
    other: aged_attention PagedAttention pa_fwd pa_bf16 pa_fp16 mla_ MLAKernel
    triton: _fwd_grouped_kernel_stage _fwd_kernel_stage _fwd_kernel_aligned flash_decode
    other: mqa_logits
    triton: unified_attention
    other: masked_multihead_attention mmha:: multi_query_attention BatchPrefillWith BatchDecodeWith SinglePrefillWith
    other: SingleDecodeWith MergeState
    cutlass: AttentionKernel AttentionBackwardKernel
    other: attention_kernel splash_attention sparse_attn natten
    """
)
# One of these is in every word above: most names are told with eight tests instead of fifty.
_GATE: Final = word_list(
    "mha lash ttn ttention sdpa bwd_ With mla_ MLA pa_ MergeState query _stage _aligned mqa_ natten"
)
# Words that only look like attention.
_NOT: Final = word_list("softmax layernorm rope rotary and_cache kv_cache quant metadata indices prepare")
_WRAPPED: Final = word_table(
    """
    flash: flash:: FlashAttn Flash_
    ck: FmhaFwd FmhaBwd
    cutlass: Fmha fmha AttentionKernel
    flash: BatchPrefill
    """
)
_FMHA_CUTLASS: Final = Expression(r"fmha_cutlass[FB]_(?P<dt>bf16|f16|f32)_")
_WORD_TYPE: Final = Expression(r"_(bf16|fp16|fp8|f16|f32)(?:_|$)|QkvE4m3|Qkv(Bfloat16|Fp16|E4m3)")
_ARCH: Final = Expression(r"[sS]m(\d{2,3}a?)(?!\d)")
_PART: Final = Expression(r"(?:flash::|Flash)\w+|\b\w{0,40}?(?:Fmha|fmha)\w+")
_HELPERS: Final = word_table(
    """
    attention reduce: _combine Combine _reduce_kernel
    attention backward part: dot_do_o convert_dq convert_dkv reprocess Postprocess
    """
)
_WORD_TYPES: Final = dict(
    word_table(
        """
        bf16: bf16 Bfloat16
        fp16: fp16 f16 Fp16
        fp8: fp8
        fp32: f32
        """
    )
)

# The kernels of FlashAttention 2 itself: others are built from the same traits (FlashMLA, block-sparse attention).
_FA2_KERNELS: Final = frozenset(
    word_list(
        """
        flash_fwd_kernel flash_fwd_splitkv_kernel flash_fwd_splitkv_combine_kernel flash_bwd_dot_do_o_kernel
        flash_bwd_dq_dk_dv_loop_kernel flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel flash_bwd_convert_dq_kernel
        flash_bwd_convert_dkv_kernel
        """
    )
)
_FA2_TRAITS: Final = Expression(r"Flash_[fb]wd_kernel_traits[<I]")
# flash::enable_sm90<flash::FlashAttnFwdSm90<.., or mangled; a copy of it in another namespace is none.
_FA3: Final = Expression(
    r"<(?:flash::enable_sm\w+<)?flash::FlashAttn[FB]wd|N5flash(?:\d+enable_sm\w{2,20}?INS\w?_)?\d+FlashAttn[FB]wd"
)
# CuTe DSL's names join module and class: flash_attn.cute.flash_fwd_sm100, FlashAttentionForwardSm100.
_FA4: Final = Expression(
    r"kernel_cutlass_\w{0,40}flash_attncuteflash_[fb]wd\w{0,40}?FlashAttention(?:Forward|Backward)"
)
_OTHERS: Final = ("cudnn", "cutlass")
"""Libraries whose attention is not FlashAttention's; CK, Triton and serving engines may or may not call theirs so."""


def _version(text: Text, library: str) -> int | None:
    """Return which FlashAttention the name proves, 0 where it proves that it is none."""
    if library in _OTHERS:
        return 0
    if text.last in _FA2_KERNELS and _FA2_TRAITS.search(text.args[:120]):
        return 2
    if (
        text.base == "cutlass::device_kernel" and _FA3.search(text.args[:160])
    ) or text.base == "flash::compute_attn_ws":
        return 3
    return 4 if _FA4.search(text.head[:400]) else None


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
        by_word=library in ("other", "triton"),
        library=library,
        dtype=_dtype(text, library),
        tensor_core=None if helper else True if library in ("flash", "cudnn", "cutlass", "ck") else None,
        arch=_arch(text),
        version=_version(text, library),
        helper=helper,
        stem=_stem(text),
    )


def _stem(text: Text) -> str:
    base = text.base
    if base.startswith(("cutlass::", "cutlass__")) or "kentry" in base:
        found = _PART.search(text.args[:400].replace("flash::enable_sm", ""))
        return found[0] if found else text.last
    return text.last

"""Fused attention: FlashAttention 2, 3 and 4, memory-efficient, cuDNN, AOTriton, CK, serving engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import common_dtype, first_element, first_meaning, word_list, word_table
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# A word in the function's name -> library; the first that occurs.
_WORDS: Final = word_table(
    """
    cudnn: cudnn_generated_fort_native_sdpa cudnn_generated_oss_sdpa
    cutlass: fmha_cutlass
    flash: flash_fwd flash_bwd flash_attn flash_attention FlashAttn FlashAttention
    other: fmha Fmha
    triton: attn_fwd attn_bwd bwd_preprocess _attn_fwd
    other: aged_attention PagedAttention PageAttention pa_fwd pa_bf16 pa_fp16 mla_ MLAKernel
    triton: _fwd_grouped_kernel_stage _fwd_kernel_stage _fwd_kernel_aligned flash_decode
    other: mqa_logits
    triton: unified_attention
    other: masked_multihead_attention multi_query_attention PrefillWith DecodeWith PODWith MergeState
    other: merge_attn_state AttentionSum
    cutlass: AttentionKernel AttentionBackwardKernel
    other: attention_kernel splash_attention sparse_attn natten
    """
)
# Each word above contains one of these: most names are ruled out by eight tests instead of fifty.
_GATE: Final = word_list(
    "mha lash ttn ttention sdpa bwd_ With mla_ MLA pa_ MergeState query _stage _aligned mqa_ natten"
)
# If the function has a name such as kernel, its namespace shows the library: flash::compute_attn_ws.
_SPACES: Final = word_table(
    """
    flash: flash::
    other: mmha::
    """
)
# AOTriton's backward pass; other names end in the same words: chunk_bwd_kernel_dqkwg of linear attention.
_BACKWARD: Final = Expression(r"_?bwd_kernel_(?:dk_dv|dq|fuse)(?:_|$)")
# Words that only look like attention, and words beside it which say that the kernel stores, joins or moves its
# operands.
_NOT: Final = word_list(
    """
    softmax layernorm rope rotary and_cache kv_cache quant metadata indices prepare concat store set_mla transfer kvpack
    sched output_gate gather insert remap expand flashmla_cache
    """
)
# The kernels that decode in stages rotate their queries on the way.
_STAGES: Final = Expression(r"_fwd_(?:grouped_)?kernel_stage\d", words="kernel_stage")
_CUDNN_GENERATED: Final = Expression(
    r"cudnn_generated_\w{0,20}_sdpa_\w{0,20}?flash_(?P<way>[fb]prop)_\w{0,30}?_(?P<tile>\d+x\d+x\d+)_",
    words="cudnn_generated_",
)
# What cuDNN runs before and after the kernel of its backward pass.
_CUDNN_PARTS: Final = Expression(
    r"cudnn::fusion::(?:compute_dot_do_o|convert_dq_to_16bits|fmha_reduce_head)", words="cudnn::fusion::"
)
_WRAPPED: Final = word_table(
    """
    flash: flash:: FlashAttn Flash_
    ck: FmhaFwd FmhaBwd
    cutlass: Fmha fmha AttentionKernel
    flash: BatchPrefill
    """
)
_FMHA_CUTLASS: Final = Expression(r"fmha_cutlass[FB]_(?P<dt>bf16|f16|f32)_", words="fmha_cutlass")
_WORD_TYPE: Final = Expression(r"_(bf16|fp16|fp8|f16|f32)(?:_|$)")
# trtllm-gen: fmhaSm100aKernel_QkvE4m3OBfloat16.., _QBfloat16KvE4m3OBfloat16.., _QkInt8VE4m3OBfloat16..
_GENERATED: Final = Expression(
    r"Kernel_Q(?:kv(?P<all>[A-Z][a-z]*\d+(?:m\d)?)O|(?P<q>[A-Z][a-z]*\d+(?:m\d)?)Kv(?P<kv>[A-Z][a-z]*\d+(?:m\d)?)O|k[A-Z])",
    words="Kernel_Q",
)
_GENERATED_TYPES: Final = {"Bfloat16": "bf16", "Fp16": "fp16", "E4m3": "fp8", "E2m1": "fp4"}
_ARCH: Final = Expression(r"[sS]m(\d{2,3}a?)(?!\d)")
_PART: Final = Expression(r"(?:flash::|Flash)\w+|\b\w{0,40}?(?:Fmha|fmha)\w+")
_HELPERS: Final = word_table(
    """
    attention reduce: _combine Combine _reduce_kernel MlaReduction fmhaReduction fmha_reduction kn_mla_reduce
    attention reduce: MergeState merge_attn_state AttentionSum
    attention backward part: dot_do_o convert_dq convert_dkv fmha_reduce_head reprocess Postprocess BwdSumOdO BwdConvert
    """
)
_WORD_TYPES: Final = dict(
    word_table(
        """
        bf16: bf16
        fp16: fp16 f16
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
"""Libraries whose attention is not FlashAttention's; that of CK, Triton and serving engines may or may not be."""


def _version(text: Text, library: str) -> int | None:
    """Return the version of FlashAttention that the name proves; 0 if it proves that the kernel is another's."""
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
    if match := _FMHA_CUTLASS.match(text.base):
        return _WORD_TYPES[match["dt"]]
    if match := _GENERATED.search(text.base):
        operands = ("all",) if match["all"] else ("q", "kv")
        return common_dtype(_GENERATED_TYPES.get(match[operand] or "") for operand in operands)
    if match := _WORD_TYPE.search(text.base):
        return _WORD_TYPES[match[1]]
    return first_element(text.args[:500])


def _library(text: Text) -> str | None:
    base = text.base
    if _CUDNN_PARTS.match(base):
        return "cudnn"
    if contains(base, _GATE):
        if library := first_meaning(text.last, _WORDS) or first_meaning(base, _SPACES):
            return library
        if _BACKWARD.match(text.last):
            return "triton"
    if base.startswith(("cutlass::", "ck_tile::", "ck::")) or "kentry" in base:
        return first_meaning(text.args[:400], _WRAPPED)
    return None


def _arch(text: Text) -> str | None:
    match = _ARCH.search(text.head[:200])
    return f"sm{match[1]}" if match else None


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a fused attention kernel; None for any other."""
    library = _library(text)
    is_sure = _STAGES.match(text.last) or _GENERATED.search(text.last)
    if library is None or (contains(text.last.lower(), _NOT) and not is_sure):
        return None
    helper = first_meaning(text.head[:300], _HELPERS)
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
    if generated := _CUDNN_GENERATED.match(base):
        return f"cudnn_{generated['way']}_{generated['tile']}"
    if base.startswith(("cutlass::", "cutlass__")) or "kentry" in base:
        match = _PART.search(text.args[:400].replace("flash::enable_sm", ""))
        return match[0] if match else text.last
    return text.last

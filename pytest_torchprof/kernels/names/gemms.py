"""GEMMs of other libraries: quantized and grouped GEMMs of serving engines, MAGMA, TensorRT-LLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import (
    common_dtype,
    dtype_of,
    leading_types,
    mangled_dtypes,
    numbers,
    word_list,
)
from pytest_torchprof.kernels.names.words import serves_products, without_deep_gemm
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    import re

    from pytest_torchprof.kernels.names.text import Text

# trtllm-gen: <bmm|gemm>_<D>_<A><B>_<acc>_t<tile>.. (the fp4 and fp8 MoE of flashinfer and vLLM).
_TRTLLM: Final = Expression(
    r"(?:bmm|gemm|gemmGatedAct|batchedGemm)_[A-Za-z0-9]+_(?P<ab>[A-Za-z0-9]+)_Fp32_\w{0,30}?t(?P<tile>\d+x\d+x\d+)"
)
_TRTLLM_TYPE: Final = Expression(r"(?:Mx)?(Bfloat16|Fp16|E4m3|E2m1|Int4|Int8)")
_TRTLLM_TYPES: Final = {"Bfloat16": "bf16", "Fp16": "fp16", "E4m3": "fp8", "E2m1": "fp4", "Int8": "int8"}

# Words in the function's name; each means a matrix product, regardless of the rest of the name.
_WORDS: Final = word_list(
    """
    marlin:: marlin_ gptq_marlin marlin_moe machete fp8_gemm_kernel sm90_fp8_gemm sm90_bf16_gemm sm100_fp8_gemm
    sm100_bf16_gemm magma_sgemm magma_dgemm magma_hgemm magma_lds exllama gemm_half_q_half gemm_forward_4bit
    kgemm_4bit_inference gemm_4bit gemv_4bit awq_gemm gemv_kernel_g64 gemv_kernel_g128 qgemm wvSplitK LLGemm LLMM1
    llmm1 moe_gemm fused_moe_kernel moe_mmk grouped_gemm group_gemm groupedGemm GroupedGemm splitk_gemm tinygemm
    weight_only_gemm fpA_intB weight_only_batched_gemv w8a8_block_fp8_matmul scaled_mm _matmul_ogs_ matmul_kernel
    gemm_kernel gemm_afp4wfp4 gemm_a8w8 gemm_a16w16 gemm_a16wfp4 sgmv_ bgmv_ lora_shrink lora_expand
    mul_mat_q mul_mat_vec int4_mm int8_mm Gemm_ einsum
    """
)
# Every word above and every name below contains one of these.
_GATE: Final = word_list(
    "gemm Gemm gemv arlin achete magma exllama plitK MM1 mm1 moe_ intB mm_ _mm matmul gmv_ lora_ mul_mat einsum"
)
_NOT: Final = word_list(
    """
    fbgemm quantize permute reduce transpose repack prepare sort align count finalize softmax rmsnorm layernorm
    layer_norm rms_norm attn cross_entropy rope rotary topk interleave reconstruct preprocess
    """
)
# Functions whose name shows no more than their library's, or has the word among others: r4d_gemm_w4a16_nt_kernel.
_FUNCTIONS: Final = ("Marlin", "MacheteKernel", "mm_kernel", "mm_kernel_general_host_tma")
_WORD: Final = Expression(r"(?:^|_)(?:[a-z]\d{0,2})?(?:fp8|bf16|fp16|i8)?gem[mv](?:_|$)")
# sm100_fp8_gemm_1d1d_impl, m_grouped_bf16_gemm_contiguous: a single type before the product is that of both operands.
_TYPE: Final = r"mxfp8|mxfp4|nvfp4|fp8|fp4|bf16|fp16|int8|tf32"
_TYPED: Final = Expression(rf"(?:^|_)(?P<type>{_TYPE})_(?:gemm|einsum|bmm)(?:_|$)")
_TYPES: Final = Expression(rf"(?:{_TYPE}|w\d+a\d+|a\d+w\w*\d)(?![a-z0-9])")
_LOW_TYPES: Final = {"mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
# DeepSeek's products of tiles of 128 values, each with its own scale.
TILES_OF_FP8: Final = Expression(r"(?<![a-z0-9])fp8_d?ptp128c")
# vLLM's products with few rows on MI300: the first argument is the type of both operands, or the second in the names
# with Q.
_SKINNY: Final = ("wvSplitK", "LLGemm1", "LLMM1", "wv_splitk")
_NAMED: Final = Expression(r"(?:^|_)(?P<a>bf16|fp16|f16|fp8|mxfp8)x(?P<b>bf16|fp16|f16|fp8|mxfp8|mxfp4)(?=x|_|$)")


def _decode_trtllm(match: re.Match[str]) -> KernelName:
    operands = [_TRTLLM_TYPES.get(word) for word in _TRTLLM_TYPE.findall(match["ab"])]
    return KernelName(
        family="gemm",
        dtype=common_dtype(operands),
        tensor_core=True,
        tile=numbers(match["tile"]),
        stem=f"trtllm {match['ab']} {match['tile']}",
    )


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a third-party GEMM; None for any other."""
    base = without_deep_gemm(text.base)
    if base.startswith(("bmm_", "gemm_", "gemmGatedAct_", "batchedGemm_")) and (match := _TRTLLM.match(base)):
        return _decode_trtllm(match)
    if not contains(base, _GATE):
        return None
    named = contains(base, _WORDS) or text.last in _FUNCTIONS or _WORD.search(without_deep_gemm(text.last))
    if named and not contains(base, _NOT) and not serves_products(text):
        plain = "::" not in base and not text.args
        return KernelName(
            family="gemm",
            by_word=True,
            library="triton" if plain and "_matmul_ogs" in base else "other",
            dtype=_dtype(text),
            stem=text.last,
        )
    return None


def _dtype(text: Text) -> str | None:
    """Return the type of both operands; None if they differ or the name does not say."""
    if pair := _NAMED.search(text.base):
        return {"f16": "fp16", "mxfp8": "fp8"}.get(pair["a"], pair["a"]) if pair["a"] == pair["b"] else None
    if text.last.startswith(_SKINNY):
        given = mangled_dtypes(text.args, 2) if text.mangled else list(map(dtype_of, leading_types(text.args, 2)))
        at = 1 if "KQ_" in text.last else 0
        return given[at] if len(given) > at else None
    if TILES_OF_FP8.search(text.base):
        return "fp8"
    if (match := _TYPED.search(text.last)) and len(set(_TYPES.findall(text.last))) == 1:
        return _LOW_TYPES.get(match["type"], match["type"])
    return None

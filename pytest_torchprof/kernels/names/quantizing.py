"""Casts to types of 8 and 4 bits and back, whichever engine wrote them: they are pointwise, and their stems say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.text import dtype_of, leading_types, mangled_dtypes, word_list
from pytest_torchprof.kernels.names.words import function_of, names_product, serves_products
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_LOW: Final = r"(?:mxfp[48]?|nvfp4|fp[48]|u?e4m3|e5m2|e2m1|ue8m0|int[48])"
_WIDE: Final = r"(?:bf16|bfloat16|fp16|half|fp32|float)"
_CAST: Final = r"(?:(?<!broad)cast|cvt|convert|cpy|pack)"
# scaled_fp8_quant; cvt_fp16_to_fp4, downcast_to_mxfp, pack_fp32_into_ue8m0; cast_fp8_2D; mxfp8_scaling_partial_cast;
# cast_transpose and per_channel_cast, which quantize in every library that uses these names.
_QUANTIZES: Final = Expression(
    rf"quant(?!il|it|um)|{_CAST}\w*?(?:to|into|2)_?(?:static_)?{_LOW}|{_CAST}_(?:[qkv]{{1,3}}_)?{_LOW}|"
    rf"{_LOW}\w*_(?:partial_)?cast(?![a-z])|"
    rf"(?<!broad)cast_(?:and_)?transpose|per_(?:channel|token|block|group|tensor)_cast",
    words="quant cast cvt convert cpy pack",
)
_DEQUANTIZES: Final = Expression(
    rf"dequant|upcast_from|{_LOW}\w*?(?:to|2)_?{_WIDE}|reconstruct_(?:exllama|gptq)",
    words="dequant upcast_from reconstruct_ mxfp fp4 fp8 e4m3 e5m2 e2m1 ue8m0 int4 int8",
)
# The integer result of a product becomes floats.
_RESULT: Final = Expression(r"dequant_mm_int32")
_LOW_TYPES: Final = frozenset({"fp8", "fp4", "int8"})
# A float among the arguments may be the type of the scales.
_WIDE_TYPES: Final = frozenset({"bf16", "fp16"})
# Kernels with one of these words do more than cast, and are in other tables.
_OTHERS: Final = word_list(
    "norm rms_ gather scatter permut topk top_k sort softmax embedding amax reduce_ moe_sum attn attention conv1d"
)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel that only changes the type of values; None for any other."""
    name = function_of(text)
    back = _DEQUANTIZES.search(name) is not None
    if not (back or _QUANTIZES.search(name)) or contains(name, _OTHERS) or serves_products(text):
        return None
    if names_product(name) and not _RESULT.search(name):
        return None
    word = "dequantize" if back and "quant_dequant" not in name else "quantize"
    return KernelName(
        family="pointwise",
        by_word=True,
        dtype=_dtype(text, _LOW_TYPES if back else _WIDE_TYPES),
        stem=text.last if word in text.last else f"{word} {text.last}",
    )


def _dtype(text: Text, kinds: frozenset[str]) -> str | None:
    """Return the type that is cast: the only one of ``kinds`` among the first template arguments; else None."""
    given = mangled_dtypes(text.args, 4) if text.mangled else map(dtype_of, leading_types(text.args, 4))
    types = kinds.intersection(given)
    return next(iter(types)) if len(types) == 1 else None

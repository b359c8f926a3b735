"""Words that several tables share: of products, and of what kernels do for one without being one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.text import Expression, word_list

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_WHOLE: Final = "b?mm|mlp|ffn|fc\\d?|linear(?!_grid)|proj|dot|conv(?:[123]d)?|mla|mha|mqa|gqa|matvec|einsum"
# Gemma is a model, fbgemm a library.
_PRODUCT: Final = Expression(
    rf"(?<!fb)gemm(?!a)|gemv|matmul|attn|attention|sdpa|fmha|fused_moe|(?:^|_|::)(?:{_WHOLE})(?=_|$|kernel)"
)
# Kernels that run after a product, or store what one is to read.
_AFTER_PRODUCTS: Final = Expression("finalize_matmul|and_cache|kv_?cache")
# A library's name in a function's name says for whom it works: silu_mul_fp8_quant_deep_gemm quantizes.
_DEEP_GEMM: Final = Expression("deep_?gemm")
# What computes where a product's operands lie, or how it divides its work.
_BOOKKEEPING: Final = Expression(
    r"tensor_?maps?(?![a-z])|tma_?desc|descriptors?(?![a-z])|problem_?sizes|gemm_?(?:starts|args)|pre_?compute_?kernel|"
    r"meta_?data|(?<![a-z])sched(?:uler?)?(?![a-z])|expert_?(?:blockscale_)?offsets|compute_?strides"
)
_GENERIC: Final = frozenset(
    word_list(
        """
        fwd bwd forward backward fused inner main impl device triton kernel kern kfunc kentry entry run func fn stage
        pass bulk v sm
        """
    )
) | {""}
_END: Final = 96


def without_deep_gemm(name: str) -> str:
    """Return a name without the library's, so that what is left says what the kernel does."""
    return _DEEP_GEMM.compiled().sub("", name)


def function_of(text: Text) -> str:
    """Return the end of the function's own name, lower case, without a library that is its user."""
    return without_deep_gemm(text.last[-_END:].lower())


def says_nothing(function: str) -> bool:
    """Tell whether a function's name has no word of what it computes: ``_fwd_kernel``, ``kernel``."""
    return all(word.rstrip("0123456789") in _GENERIC for word in function[:_END].lower().split("_"))


def end_of(text: Text) -> str:
    """Return the end of the function's qualified name, lower case: what it does stands there."""
    return without_deep_gemm(text.base[-_END:].lower())


def names_product(name: str) -> bool:
    """Tell whether a word of a name, lower case, says that the kernel may be a product, whatever other words say."""
    return _PRODUCT.search(name) is not None and _AFTER_PRODUCTS.search(name) is None


def serves_products(text: Text) -> bool:
    """Tell whether a word says that the kernel computes what a product needs to run, and no product."""
    return _BOOKKEEPING.search(function_of(text)) is not None

"""Words that several tables share: those of products, and of kernels that serve a product without being one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.text import parse, word_list
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_WHOLE: Final = "b?mm|mlp|ffn|fc\\d?|linear(?!_grid)|proj|dot|conv(?:[123]d)?|mla|mha|mqa|gqa|matvec|einsum"
# Gemma is a model, fbgemm a library.
_PRODUCT: Final = Expression(
    rf"(?<!fb)gemm(?!a)|gemv|matmul|attn|attention|sdpa|fmha|fused_moe|(?:^|_|::)(?:{_WHOLE})(?=_|$|kernel)"
)
# Kernels that run after a product, or store what a product will read.
_AFTER_PRODUCTS: Final = Expression("finalize_matmul|and_cache|kv_?cache")
# A library's name in a function's name says for which library it works: silu_mul_fp8_quant_deep_gemm quantizes.
_DEEP_GEMM: Final = Expression("deep_?gemm")
# Kernels that compute where a product's operands lie, or how it divides its work.
_BOOKKEEPING: Final = Expression(
    r"tensor_?maps?(?![a-z])|tma_?desc|descriptors?(?![a-z])|problem_?sizes|gemm_?(?:starts|args)|pre_?compute_?kernel|"
    r"meta_?data|(?<![a-z])sched(?:uler?)?(?![a-z])|expert_?(?:blockscale_)?offsets|compute_?strides"
)
# torch.cuda._sleep's spin_kernel, sleep_kernel, busy_wait, delayKernel: their only work is to last.
_LASTS: Final = Expression(
    r"(?:^|_)(?:spin|sleep|nano_?sleep|delay|busy_?(?:wait|loop|spin)|wait_?cycles)(?:_?(?:gpu|kernel|cycles|ns|us|ms|for))*(?:_|$)",
    words="spin sleep delay busy wait",
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
    """Return a name without the library's name, so that the rest shows the kernel's work."""
    return _DEEP_GEMM.compiled().sub("", name)


def function_of(text: Text) -> str:
    """Return the end of the function's own name, in lower case, without the name of a library that uses it."""
    return without_deep_gemm(text.last[-_END:].lower())


def says_nothing(function: str) -> bool:
    """Return whether a function's name has no word for its work: ``_fwd_kernel``, ``kernel``."""
    return all(word.rstrip("0123456789") in _GENERIC for word in function[:_END].lower().split("_"))


def end_of(text: Text) -> str:
    """Return the end of the function's qualified name, in lower case: it shows the function's work."""
    return without_deep_gemm(text.base[-_END:].lower())


def names_product(name: str) -> bool:
    """Return whether a word of a lower-case name says that the kernel may be a product, despite other words."""
    return _PRODUCT.search(name) is not None and _AFTER_PRODUCTS.search(name) is None


def serves_products(text: Text) -> bool:
    """Return whether a word says that the kernel prepares or completes a product, and is none."""
    return _BOOKKEEPING.search(function_of(text)) is not None


@lru_cache(maxsize=16384)
def only_lasts(name: str) -> bool:
    """Return whether the name of a function says that the kernel computes nothing and is made to take time."""
    # Kept as decoded names are: a fleet's recordings have the same kernels again and again.
    return _LASTS.search(function_of(parse(name))) is not None

"""Words of products: what stands beside one of them in a name tells a part of what a fused kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.text import Expression

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_WHOLE: Final = "b?mm|mlp|ffn|fc\\d?|linear|proj|dot|conv(?:[123]d)?|mla|mha|mqa|gqa|matvec"
_PRODUCT: Final = Expression(
    rf"(?<!fb)gemm|gemv|matmul|attn|attention|sdpa|fmha|fused_moe|(?:^|_|::)(?:{_WHOLE})(?=_|$|kernel)"
)
# Kernels that run after a product, or store what one is to read.
_AFTER_PRODUCTS: Final = Expression("finalize_matmul|and_cache|kv_?cache")


def end_of(text: Text) -> str:
    """Return the end of the function's qualified name, lower case: what it does stands there."""
    return text.base[-96:].lower()


def names_product(text: Text) -> bool:
    """Tell whether a word says that the kernel may be a product, whatever other words say."""
    base = end_of(text)
    return _PRODUCT.search(base) is not None and _AFTER_PRODUCTS.search(base) is None

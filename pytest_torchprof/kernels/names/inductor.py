"""What Inductor generates: Triton kernels, and C++ kernels on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.expression import Expression
from pytest_torchprof.kernels.names.kernelname import KernelName
from pytest_torchprof.kernels.names.torchops import GEMM_OPS, KNOWN_OPS, REDUCING_OPS

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# triton_<category>_fused_<ops>_<n>, while autotuning triton_mm_<n>; AOTInductor puts the model's name in front and
# Triton 2 a signature (_0d1d2de) behind.
_FUSED: Final = Expression(
    r"(?:[A-Za-z]\w{0,80}?_)?triton_(?P<cat>poi|per|red|tem|for|spl|unk)_fused(?P<ops>\w*?)(?:_(?P<index>\d+))?"
    r"(?:_0[\dcde]*d[\dcde]*)?$"
)
_TEMPLATE: Final = Expression(
    r"triton_(?:tem_)?(?P<what>mm_plus_mm|mm|bmm|addmm|flex_attention(?:_backward)?|flex_decoding|convolution(?:[23]d)?|"
    r"scaled_mm|scaled_grouped_mm|grouped_mm)(?:_(?P<index>\d+))?$"
)
_ANONYMOUS: Final = Expression(r"triton_(?:_?\d[\dcde]*)?$")
_CPP: Final = Expression(r"(?:graph_\d+_)?cpp_(?:\w{0,80}?_)?fused(?P<ops>\w*?)(?:_(?P<index>\d+))?$")

# Longest known operator names that hold an underscore: "_"-joined tokens are ambiguous without them.
_KNOWN_OPS: Final = frozenset(KNOWN_OPS.split())
_LONGEST: Final = max(op.count("_") for op in _KNOWN_OPS) + 1
# C++ templates of the CPU: graph_0_gemm_m64n64k64_.., cpp_CppMicroGemmFP32Vec_..
_CPP_TEMPLATE: Final = Expression(r"(?:graph_\d+_)?(?:gemm_m\d+n\d+k\d+|cpp_CppMicroGemm)")


def fused_ops(text: str) -> tuple[str, ...]:
    """Return the operators of the ``_add_gelu`` part of an Inductor name, in its order.

    Known operators that hold an underscore are kept whole; an unknown word stands for itself.
    """
    words = text[1:].split("_")
    found: list[str] = []
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST, len(words) - at), 0, -1):
            candidate = "_".join(words[at : at + length])
            if length == 1 or candidate in _KNOWN_OPS:
                break
        found.append(candidate)
        at += length
    return tuple(word for word in found if word)


# A template is what it was made for; of the others the category says it, whatever ops they name.
_GEMM_OPS: Final = frozenset(GEMM_OPS.split())
_ATTENTION_OPS: Final = frozenset({"flex_attention", "flex_attention_backward", "flex_decoding"})
_FAMILY_OF_CATEGORY: Final = {
    "poi": "pointwise",
    "for": "pointwise",
    "per": "reduction",
    "red": "reduction",
    "spl": "reduction",
}
_REDUCING_OPS: Final = frozenset(REDUCING_OPS.split())


def _family(category: str | None, ops: tuple[str, ...]) -> str:
    """Return what a generated kernel computes."""
    if category == "tem":
        named = frozenset(ops)
        if named & _ATTENTION_OPS:
            return "attention"
        if named & _GEMM_OPS:
            return "gemm"
        return "conv" if any(op.startswith("convolution") for op in ops) else "other"
    if category in (None, "unk") and _REDUCING_OPS.intersection(ops):
        return "reduction"
    return "pointwise" if category is None else _FAMILY_OF_CATEGORY.get(category, "other")


def _generated(category: str | None, ops: tuple[str, ...], index: str | None, stem: str) -> KernelName:
    return KernelName(
        family=_family(category, ops),
        library="triton" if category else "other",
        triton=category,
        triton_ops=ops,
        triton_index=int(index[:9]) if index else None,
        stem=stem,
    )


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel that Inductor generated, None for any other."""
    if text.args:
        return None
    if "triton_" in text.base:
        return _decode_triton(text)
    if "cpp_" in text.base and (found := _CPP.match(text.head)):
        return _generated(None, fused_ops(found["ops"][:1200]), found["index"], text.head)
    if ("gemm_m" in text.base or "CppMicroGemm" in text.base) and _CPP_TEMPLATE.match(text.head):
        return KernelName(family="gemm", stem=text.head)
    return None


def _decode_triton(text: Text) -> KernelName | None:
    if found := _FUSED.match(text.head):
        return _generated(found["cat"], fused_ops(found["ops"][:1200]), found["index"], text.head)
    if found := _TEMPLATE.match(text.head):
        return _generated("tem", (found["what"],), found["index"], text.head)
    # With unique_kernel_names off every Inductor kernel is called triton_, so its category is unknown.
    return KernelName(library="triton", triton="unk", stem=text.head) if _ANONYMOUS.match(text.head) else None

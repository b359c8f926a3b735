"""The facts about a kernel that come from the launching operator, besides those in its name.

The rules, in the order they are applied:

- *Who wins.* The name is the code that ran, the operator is the request. If only one of them shows a fact, it is
  believed. If both show it and agree, the name stands (it distinguishes fp32 from tf32, the operator does not). If they
  contradict each other, the field is None: one of the two is not what it seems, and neither is reported.
- *dtype.* The operands' types decide only if they are all the same type. A float operand may run as fp32 or as tf32:
  it confirms either, and completes a missing dtype only for a kernel that surely uses no tensor core.
- *layout.* Strides decide only for a matrix product whose M, N and K are all above 1 and whose operands both have one
  unit stride. A size of 1 makes a stride meaningless; an operand without a unit stride was copied before the product.
- *Names without content.* A Triton kernel called ``triton_`` takes family, category and operators from the CPU range
  that launched it, which carries the descriptive name.
- *Hand-written Triton kernels* have the name of their function and no more. A recording of this package says which they
  are; in others a kernel with a plain name that the driver launched is taken for one. If our recording does not say, or
  a CUDA graph launched the kernel, it may be one.
- *Communication.* Collective and dtype come from the event's arguments: NCCL's names lie about the dtype.
- *What is not known.* A kernel whose name shows no family is no product if an operator of ATen's launched it that is no
  product: a kernel that ``aten::add`` launches is no GEMM, from whatever library.
- *Names without a word.* If the function is called ``_fwd_kernel`` or ``kernel``, the words in the name of the
  operator that launched it give the family: under ``mylib::attention`` it is attention, under ``aten::silu`` it is
  pointwise. Other names that no table knows do have a meaning, and an operator does not show which of its kernels
  they name.
- *Helpers.* A copy or fill that a product launches on its output is named as its helper, never as a second product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.communication import collective_of
from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT
from pytest_torchprof.kernels.names.text import word_list
from pytest_torchprof.kernels.names.words import says_nothing
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.kernels.names import KernelName

# The positions of mat1 and mat2 among the inputs of an operator that runs one matrix product.
_PRODUCTS: Final = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_scaled_mm", "aten::_int_mm"), (0, 1)),
    **dict.fromkeys(
        word_list("aten::addmm aten::addmm_ aten::baddbmm aten::baddbmm_ aten::addbmm aten::_addmm_activation"),
        (1, 2),
    ),
}
# Products with a vector, and convolutions: the operands' types count, their strides do not.
OPERANDS: Final[dict[str, tuple[int, ...]]] = {
    **_PRODUCTS,
    **dict.fromkeys(
        word_list(
            """
            aten::mv aten::dot aten::vdot aten::convolution aten::_convolution aten::cudnn_convolution
            aten::cudnn_convolution_relu aten::cudnn_convolution_add_relu aten::cudnn_convolution_transpose
            aten::cudnn_convolution_backward_input aten::cudnn_convolution_backward_weight aten::miopen_convolution
            aten::miopen_convolution_transpose aten::miopen_depthwise_convolution aten::_conv_depthwise2d
            aten::conv_depthwise3d aten::convolution_overrideable
            """
        ),
        (0, 1),
    ),
    **dict.fromkeys(
        word_list("aten::addmv aten::addmv_"),
        (1, 2),
    ),
    **dict.fromkeys(
        word_list(
            """
            aten::convolution_backward aten::_scaled_dot_product_flash_attention
            aten::_scaled_dot_product_efficient_attention aten::_scaled_dot_product_cudnn_attention
            aten::_scaled_dot_product_fused_attention_overrideable aten::_scaled_dot_product_attention_math
            aten::_flash_attention_forward aten::_efficient_attention_forward aten::_cudnn_attention_forward
            flash_attn::_flash_attn_forward
            """
        ),
        (0, 1, 2),
    ),
    **dict.fromkeys(
        word_list(
            """
            aten::_scaled_dot_product_flash_attention_backward
            aten::_scaled_dot_product_efficient_attention_backward
            aten::_scaled_dot_product_cudnn_attention_backward aten::_flash_attention_backward
            aten::_efficient_attention_backward aten::_cudnn_attention_backward flash_attn::_flash_attn_backward
            """
        ),
        (0, 1, 2, 3),
    ),
}
CONTRACTING: Final = ("gemm", "conv", "attention")
# Further families whose kernels work on the operator's inputs themselves: a single type of all inputs is the kernel's.
ELEMENTWISE: Final = ("pointwise", "softmax", "normalization", "copy")

_FLOATS: Final = {
    "c10::BFloat16": "bf16",
    "BFloat16": "bf16",
    "c10::Half": "fp16",
    "Half": "fp16",
    "float": "fp32",
    "Float": "fp32",
    "double": "fp64",
    "Double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
    "c10::Float4_e2m1fn_x2": "fp4",
    "c10::complex<float>": "complex64",
    "ComplexFloat": "complex64",
    "signed char": "int8",
    "Char": "int8",
}
# Other types, for which only selectors ask: a kernel's own dtype serves to distinguish products and kernels of floats.
DTYPES: Final = {
    **_FLOATS,
    "c10::complex<double>": "complex128",
    "ComplexDouble": "complex128",
    "long int": "int64",
    "long": "int64",
    "Long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "Short": "int16",
    "unsigned char": "uint8",
    "Byte": "uint8",
    "bool": "bool",
}
# An input other than a tensor has one of these words as its type.
NO_TENSOR: Final = frozenset(
    {"", "Scalar", "ScalarList", "None", "GenericList", "TensorList", "Device", "Layout", "Int", "Bool"}
)

_DRIVER_LAUNCHES: Final = frozenset(
    {"cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel"}
)
# Compiled kernels that the driver launches too, by the start of their names.
_NOT_TRITON: Final = word_list(
    """
    _Z nvjet cudnn cutlass kernel_cutlass flash fmha Cijk Custom_Cijk igemm_ miopen gemm_ bmm_ batched_transpose
    naive_conv deep_gemm
    """
)
_ADDING: Final = (
    "aten::addmm",
    "aten::addmm_",
    "aten::baddbmm",
    "aten::baddbmm_",
    "aten::addmv",
    "aten::_addmm_activation",
)


# Whole words in the names of libraries' operators; a name with words of two families says nothing.
_OPERATOR_WORDS: Final = tuple(
    (Expression(rf"(?i)(?:^|_|(?<=[a-z]))(?:{words})(?=_|fn|func|backward|forward|with|$|\d)"), family)
    for words, family in (
        ("attention|attn|sdpa|mha|mla|flashattention|flashattn", "attention"),
        ("(?:layer|rms|batch|group|instance|l2)_?norm", "normalization"),
        ("softmax", "softmax"),
        ("matmul|gemm|bmm|mm|linear", "gemm"),
        ("conv[123]d|convolution", "conv"),
        ("rope|rotary|silu|gelu|swiglu|geglu|quantize|dequantize", "pointwise"),
        ("cache|metadata|mask|bias|prepare|loss|cross_entropy|reduce|sum|mean|topk|sort|embedding|dropout", None),
    )
)


class Launch(Struct, frozen=True, kw_only=True):
    """The facts that the recording has on a kernel's launch, in its own words; None or empty for missing ones."""

    op: str | None = None
    op_chain: Sequence[str] = ()
    """Enclosing operators from the outermost to ``op``."""
    dtypes: Sequence[object] | None = None
    shapes: Sequence[object] | None = None
    strides: Sequence[object] | None = None
    settings: Sequence[object] | None = None
    """Its inputs other than tensors, each at its position as text; recorded for a few operators."""
    by_mask: bool = False
    """Whether the operator turned a mask, which it was given in a list of tensors, into indices."""
    call: str | None = None
    """The runtime or driver call ("cuLaunchKernel")."""
    collective: str | None = None
    collective_dtype: str | None = None
    triton: bool | None = None
    """Whether the recording says that Triton made the kernel; None if it says so of no kernel."""


def complete(name: str, launch: Launch, says: Callable[[str], KernelName] = decode) -> KernelName:
    """Return the facts from the raw ``name`` and its ``launch``, by this module's rules; ``says`` reads the name."""
    decoded = says(name)
    if decoded.triton == "unk" and not decoded.triton_ops and launch.op:
        decoded = _from_range(decoded, launch.op)
    elif decoded.family == "communication":
        decoded = _communication(decoded, launch)
    elif decoded.triton is None and _is_user_triton(name, launch):
        decoded = replace(decoded, triton="user", library="triton")
    if launch.op is None:
        return decoded
    if decoded.family is None and decoded.triton in (None, "user") and says_nothing(decoded.stem):
        decoded = replace(decoded, family=_family_of_operator(launch.op, says), by_word=True)
    return replace(
        decoded,
        never=decoded.never | _excluded_families(decoded, launch.op, says),
        dtype=_dtype(decoded, launch),
        layout=_layout(decoded, launch),
        helper=decoded.helper or _helper_task(decoded, launch),
    )


def _excluded_families(decoded: KernelName, op: str, says: Callable[[str], KernelName]) -> frozenset[str]:
    """Return the families that a kernel of unknown family is not of, by the ATen operator that launched it."""
    if decoded.family is not None or not op.startswith("aten::"):
        return frozenset()
    family = says(op).family
    return NO_PRODUCT if family is not None and family not in (*CONTRACTING, "other") else frozenset()


def _family_of_operator(op: str, says: Callable[[str], KernelName]) -> str | None:
    """Return the family that an operator's name shows: for torch's own by a table, for any other by its words."""
    if op.startswith("aten::"):
        return says(op).family
    families = {family for words, family in _OPERATOR_WORDS if words.search(op.rpartition("::")[2])}
    return families.pop() if len(families) == 1 else None


def _from_range(decoded: KernelName, op: str) -> KernelName:
    described = decode(op)
    return described if described.library == "triton" and described.triton not in (None, "unk") else decoded


def _communication(decoded: KernelName, launch: Launch) -> KernelName:
    collective = (collective_of(launch.collective) if launch.collective else None) or decoded.collective
    dtype = _FLOATS.get(launch.collective_dtype or "")
    return replace(decoded, collective=collective, dtype=dtype)


def is_plain_name(name: str) -> bool:
    """Return whether a kernel's name is just a function's name, as with Triton, and surely not that of a library."""
    return not any(mark in name for mark in ("::", "<", "(")) and decode(name).library in ("other", "triton", "flash")


def _looks_like_triton(name: str) -> bool:
    others = name.startswith(_NOT_TRITON) or "cutlass" in name or decode(name).library == "flash"
    return is_plain_name(name) and not others


def _is_user_triton(name: str, launch: Launch) -> bool:
    """Return whether it is a hand-written Triton kernel, by what the recording says or by the form of its name."""
    if launch.triton is not None:
        return launch.triton
    return launch.call in _DRIVER_LAUNCHES and _looks_like_triton(name)


def may_be_triton(name: str, call: str | None, *, in_graph: bool) -> bool:
    """Return whether a kernel may be Triton's although nothing shows it."""
    return (in_graph or call is None or call in _DRIVER_LAUNCHES) and _looks_like_triton(name)


def tensor_types(types: Sequence[object], positions: Sequence[int] | None) -> list[str]:
    """Return the recorded types of the tensors among the inputs, at ``positions`` or all."""
    if positions is not None and any(at >= len(types) for at in positions):
        return []
    chosen = types if positions is None else [types[at] for at in positions]
    return [word for word in map(str, chosen) if word not in NO_TENSOR]


def _operator_dtype(decoded: KernelName, launch: Launch) -> str | None:
    """Return the dtype that all operands of the operator share; None if they differ or no rule is about them."""
    if launch.dtypes is None or decoded.helper is not None:
        return None
    if decoded.family in CONTRACTING:
        positions = OPERANDS.get(launch.op or "")
        types = tensor_types(launch.dtypes, positions) if positions else []
    elif decoded.family in ELEMENTWISE and decoded.library == "aten":
        types = tensor_types(launch.dtypes, None)
    else:
        return None
    known = {_FLOATS.get(word) for word in types}
    return known.pop() if len(known) == 1 else None


FLOAT: Final = 2


def kind_of_dtype(dtype: str | None) -> int:
    """Return the rank of a dtype's kind: bools, integers, floats, complex numbers."""
    if dtype == "bool":
        return 0
    return 1 if str(dtype).startswith(("int", "uint")) else 3 if str(dtype).startswith("complex") else FLOAT


def _dtype(decoded: KernelName, launch: Launch) -> str | None:
    of_operator = _operator_dtype(decoded, launch)
    if of_operator is None or of_operator == decoded.dtype:
        return decoded.dtype
    if decoded.dtype is None:
        exact = of_operator != "fp32" or decoded.tensor_core is False or decoded.family not in CONTRACTING
        return of_operator if exact else None
    if of_operator == "fp32" and decoded.dtype == "tf32":
        return "tf32"
    # Elementwise kernels read their operator's inputs through casts of their own: the name has the type that they
    # compute in.
    return None if decoded.family in CONTRACTING else decoded.dtype


def _sizes(value: object) -> list[int] | None:
    if isinstance(value, list | tuple) and len(value) >= 2 and all(isinstance(size, int) for size in value):
        return list(value)
    return None


def strides_layout(op: str, shapes: Sequence[object] | None, strides: Sequence[object] | None) -> str | None:
    """Return the layout of a product operator's operands; None if their strides leave it open.

    The first letter is mat2's (``t``: K contiguous), the second mat1's (``n``: row-major).
    """
    positions = _PRODUCTS.get(op)
    if positions is None or not shapes or not strides or max(positions) >= min(len(shapes), len(strides)):
        return None
    mat1, mat2 = (_sizes(shapes[at]) for at in positions)
    stride1, stride2 = (_sizes(strides[at]) for at in positions)
    if mat1 is None or mat2 is None or stride1 is None or stride2 is None:
        return None
    if 1 in (*mat1[-2:], mat2[-1]):
        return None
    second, first = _letter(stride2), _letter(stride1)
    return second + first if second and first else None


def _letter(stride: list[int]) -> str | None:
    """Return ``n`` for a row-major matrix, ``t`` for a transposed view of one; None for neither or both."""
    if (stride[-1] == 1) == (stride[-2] == 1):
        return None
    return "n" if stride[-1] == 1 else "t"


def _layout(decoded: KernelName, launch: Launch) -> str | None:
    if decoded.family != "gemm" or decoded.helper is not None:
        return decoded.layout
    by_strides = strides_layout(launch.op or "", launch.shapes, launch.strides)
    if by_strides is None or by_strides == decoded.layout:
        return decoded.layout
    # A product with a vector has no layout, and a Triton template reads any stride.
    if decoded.layout is None:
        return None if decoded.library == "triton" or "gemv" in decoded.stem or "dot" in decoded.stem else by_strides
    return None


def may_help(decoded: KernelName) -> bool:
    """Return whether a kernel whose name says this may turn out, by its launch, to only help a product."""
    return decoded.family is None or decoded.triton == "unk" or _copies_or_fills(decoded)


def _copies_or_fills(decoded: KernelName) -> bool:
    return decoded.family == "copy" or (decoded.family == "pointwise" and decoded.stem == "fill")


def _helper_task(decoded: KernelName, launch: Launch) -> str | None:
    """Return the task of a copy or fill for the product whose operator launched it; None without such a product."""
    if not _copies_or_fills(decoded):
        return None
    chain = list(launch.op_chain) or [launch.op or ""]
    at = next((at for at in range(len(chain) - 1, -1, -1) if chain[at] in _PRODUCTS or chain[at] in _ADDING), None)
    if at is None:
        return None
    inner = chain[at + 1 :]
    if decoded.family == "copy":
        direct = inner in ([], ["aten::copy_"])
        return "bias copy" if direct and chain[at] in _ADDING else "operand copy"
    return "output fill"

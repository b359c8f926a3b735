"""A kernel's operands, in a few words: they distinguish kernels whose dtype and layout are not known."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_torchprof.kernels.asked_types import ALWAYS_ASKED, asked_type
from pytest_torchprof.kernels.names.inductor import family_of
from pytest_torchprof.kernels.operands import CONTRACTING, DTYPES, FLOAT, NO_TENSOR, is_plain_name, kind_of_dtype
from pytest_torchprof.text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.kernels.kernel import Kernel, LaunchedKernel
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.operands import Launch
    from pytest_torchprof.trace.compile_evidence import GeneratedKernel

STRIDED: Final = "strided"
"""An operand that has no dimension of unit stride."""
_FP8: Final = "fp8"
_ASKED: Final = "->"
_JOINED: Final = Expression(
    r"CatArrayBatchedCopy\w*<[^<]{0,80}OpaqueType<(?P<bytes>\d{1,3})u?>", words="CatArrayBatchedCopy"
)
_FOREIGN: Final = r"[^\w.<>,]+"


def with_code(decoded: KernelName, code: GeneratedKernel | None) -> KernelName:
    """Return a decoded name with the family and the type from Inductor's code; a missing type stays None among several.

    A kernel that computes in fp64 counts as fp64, regardless of the types that it reads and writes; integers count only
    if there are no floats.
    """
    if code is None:
        return decoded
    if decoded.family is None and code.ops:
        decoded = replace(decoded, family=family_of(decoded.triton, code.ops))
    if decoded.dtype is not None:
        return decoded
    floats = {dtype for dtype in code.dtypes if kind_of_dtype(dtype) >= FLOAT}
    dtypes = {"fp64"} if "fp64" in floats else floats or set(code.dtypes)
    return replace(decoded, dtype=next(iter(dtypes))) if len(dtypes) == 1 else decoded


def with_operands(name: str, decoded: KernelName, launch: Launch) -> KernelName:
    """Return a completed name with its operator's operands, if dtype or, for a product, layout leaves them open.

    "bf16 int64" are the types of its tensors in order, equal neighbours once; a Python number counts only if it is of a
    higher kind than the tensors. For products, convolutions and attention they also show how an operand lies in memory
    unless its last dimension is innermost: "bf16:0231" by the order of its dimensions, "bf16:strided" without a unit
    stride. No recording of a GPU holds the types in a list of tensors, but the names of the kernels that join them show
    the size of an element: "2-byte". A mask of an operator that takes indices is "bool"; a type that the operator was
    asked for comes last: "fp32 ->fp64". The operands are None if dtype and layout say everything, or if nothing is
    recorded.
    """
    arranged = decoded.family in CONTRACTING and decoded.layout is None
    fields = (decoded.family, decoded.dtype, decoded.layout, decoded.helper)
    # A name that is not an operator's shows the type that its kernel computes in.
    asked = asked_type(launch) if leaves_open(*fields) or name == launch.op else None
    if (not leaves_open(*fields) and asked is None) or decoded.family == "communication":
        return decoded
    if joined := _JOINED.search(name):
        return replace(decoded, operands=f"{joined['bytes']}-byte")
    if launch.op is None:
        return decoded
    words = [
        _type(word) + (_arrangement(shape, strides) if arranged else "") for word, shape, strides in _tensors(launch)
    ]
    if launch.by_mask:
        words.append("bool")
    if asked is not None:
        words.append(f"{_ASKED}{asked}")
    return replace(decoded, operands=" ".join(word for word, _ in groupby(words))) if words else decoded


def leaves_open(family: str | None, dtype: str | None, layout: str | None, helper: str | None) -> bool:
    """Return whether dtype and layout leave a kernel's operands open; there are several 8-bit floats."""
    arranged = family in CONTRACTING and layout is None
    return helper is None and (arranged or dtype in (None, _FP8))


def recorded_types(kernel: LaunchedKernel) -> str | None:
    """Return the types that a kernel works on; None if neither its name nor its operator shows them."""
    operands, dtype = kernel.decoded.operands, kernel.decoded.dtype
    return " ".join(types_of(operands)) if operands and dtype in (None, _FP8) else dtype


def hides_types(kernel: Kernel) -> bool:
    """Return whether an operator that is the kernel got, or may have got, lists of tensors without recorded types."""
    if kernel.name != kernel.op or kernel.decoded.helper is not None or recorded_types(kernel) is not None:
        return False
    if kernel.family == "communication":
        return False  # A collective's backend names the type that it sends, for which there are limits of their own.
    if kernel.op_dtypes is None or kernel.op_shapes is None:
        return kernel.family in ("copy", "optimizer")
    return any(kind == "TensorList" and shape for kind, shape in zip(kernel.op_dtypes, kernel.op_shapes, strict=False))


def types_of(operands: str) -> tuple[str, ...]:
    """Return the types among a kernel's operands, equal neighbours once."""
    return tuple(word for word, _ in groupby(operand.partition(":")[0] for operand in operands.split()))


def has_no_unit_stride(operands: str) -> bool:
    """Return whether one of a kernel's operands is strided in every dimension."""
    return any(operand.partition(":")[2] == STRIDED for operand in operands.split())


def may_compute_in(operands: str, dtype: str) -> bool:
    """Return whether a kernel of a dtype may have these operands: their floats, or all of them, have this dtype."""
    types = {given for given in types_of(operands) if not given.startswith(_ASKED)}
    types = {_FP8 if given.startswith(_FP8) else given for given in types}
    floats = {given for given in types if kind_of_dtype(given) >= kind_of_dtype("fp32")}
    return (floats or types) == {"fp32" if dtype == "tf32" else dtype}


def tells_all_types(name: str, op: str | None, family: str | None) -> bool:
    """Return whether a dtype without operands means that all operands have it: only if an operator is the kernel.

    For products it is the dtype of the factors, not of the addend; earlier versions kept no type that has to be asked
    for.
    """
    return name == op and "::" in name and family not in CONTRACTING and op not in ALWAYS_ASKED


def name_is_the_code(name: str, op: str | None) -> bool:
    """Return whether kernels of this name are surely the same code, which works on one type.

    An operator, which is the kernel if the CPU is the device, works on any type; so does a function that Triton
    compiles anew for each type, and a C++ function of Inductor's.
    """
    return name != op and not is_plain_name(name)


def _tensors(launch: Launch) -> Iterator[tuple[str, Any, Any]]:
    types = [*map(str, launch.dtypes or ())]
    operands = zip(types, _as_many(launch.shapes, types), _as_many(launch.strides, types), strict=True)
    tensors = [operand for operand in operands if operand[0] not in NO_TENSOR]
    sized = [DTYPES.get(word) for word, shape, _ in tensors if shape not in ([], ())]
    highest = max(map(kind_of_dtype, sized), default=-1)
    for word, shape, strides in tensors:
        if shape not in ([], ()) or kind_of_dtype(DTYPES.get(word)) > highest:
            yield word, shape, strides


def _as_many(values: Sequence[Any] | None, types: Sequence[str]) -> Sequence[Any]:
    return values if values is not None and len(values) == len(types) else [None] * len(types)


def _type(word: str) -> str:
    plain = word.removeprefix("c10::")
    if plain.startswith("Float8_"):
        return f"{_FP8}_{plain.removeprefix('Float8_')}"
    return DTYPES.get(word) or re.sub(_FOREIGN, "_", plain)


def _arrangement(shape: Any, strides: Any) -> str:
    """Return the order in which an operand's dimensions lie in memory; empty if it is their own order."""
    if not isinstance(shape, list | tuple) or not isinstance(strides, list | tuple) or len(shape) != len(strides):
        return ""
    if not all(isinstance(number, int) for number in (*shape, *strides)):
        return ""
    # The stride of a dimension of size 1 means nothing, and an expanded one (0) is read again.
    moved = [at for at, size in enumerate(shape) if size > 1]
    steps = [strides[at] for at in moved if strides[at]]
    if steps and min(steps) > 1:
        return f":{STRIDED}"
    if _outermost_first(moved, strides) == moved:
        return ""
    return ":" + "".join(map(str, _outermost_first(range(len(shape)), strides)))


def _outermost_first(dimensions: Sequence[int], strides: Sequence[int]) -> list[int]:
    return sorted(dimensions, key=lambda at: (-strides[at], at))

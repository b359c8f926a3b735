"""The types that a kernel may compute in if its name shows none: those that its operator's operands leave possible."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.kernelname import CONVOLUTION_OFFSETS
from pytest_torchprof.kernels.names.kernelname import DTYPES as ALL_DTYPES
from pytest_torchprof.kernels.operands import (
    CONTRACTING,
    DTYPES,
    ELEMENTWISE,
    NO_TENSOR,
    OPERANDS,
    tensor_types,
)
from pytest_torchprof.kernels.promotion import TypedOperand, computed_in
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, Reply, known, same

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.operands import Launch

# Tensor cores multiply fp32 as TF32, which nothing else computes in.
_NEVER_ON: Final = {True: "fp32", False: "tf32"}
# An elementwise operator may turn these into floats.
_MAKES_OTHERS: Final = frozenset({"int8", "complex64"})
_LISTS: Final = frozenset({"TensorList", "GenericList"})
_BYTES: Final = re.compile(r"(?P<bytes>\d+)-byte")
# A kernel that joins the parts of a product, or changes a layout for a convolution, may do so in fp32, whatever the
# operands are.
_OF_HELPERS: Final = "fp32"


def operand_dtypes(name: str, decoded: KernelName, launch: Launch) -> frozenset[str]:
    """Return the possible dtypes of the kernel, by its operator's operands; empty if they do not show it.

    Torch's rules of promotion apply; a conversion has two types.
    """
    if joined := _BYTES.fullmatch(decoded.operands or ""):
        return frozenset(dtype for dtype in ALL_DTYPES if _size_of(dtype) == int(joined["bytes"]))
    if launch.dtypes is None or decode(name).dtype is not None or not _is_atens(decoded, launch):
        return frozenset()
    if decoded.family in CONTRACTING and decoded.helper is None:
        words = tensor_types(launch.dtypes, OPERANDS.get(launch.op or ""))
        dtypes = {DTYPES.get(word) for word in words}
        return (
            frozenset() if None in dtypes else frozenset({*map(str, dtypes), *(("tf32",) if "fp32" in dtypes else ())})
        )
    if not _LISTS.isdisjoint(map(str, launch.dtypes)):
        return frozenset()
    shapes = launch.shapes or [None] * len(launch.dtypes)
    operands = [
        TypedOperand(DTYPES.get(str(word)), shape in ([], ()))
        for word, shape in zip(launch.dtypes, shapes, strict=False)
        if str(word) not in NO_TENSOR
    ]
    promoted = computed_in(operands, launch.op or "", decoded.family)
    asked = [word.removeprefix("->") for word in (decoded.operands or "").split() if word.startswith("->")]
    return promoted.union(asked, [_OF_HELPERS] if decoded.helper else ()) if promoted else promoted


def _is_atens(decoded: KernelName, launch: Launch) -> bool:
    """Return whether torch's operator launched a kernel that is known to do its work, on the operands themselves."""
    if decoded.family in ELEMENTWISE and decoded.library == "aten":
        return True
    made_to_measure = decoded.family in (None, "communication") or decoded.library == "triton"
    return not made_to_measure and ((launch.op or "").startswith("aten::") or launch.op in OPERANDS)


def computes_in(name: str, decoded: KernelName, launch: Launch, dtype: str) -> Reply:
    """Return whether a kernel computes in a type, by its name or else by its operator's operands."""
    by_name = decode(name).dtype
    elementwise = decoded.family in ELEMENTWISE and decoded.library == "aten"
    if decoded.dtype is not None and (by_name is not None or not elementwise or decoded.dtype not in _MAKES_OTHERS):
        return same(decoded.dtype, dtype)
    if decoded.helper == CONVOLUTION_OFFSETS:
        return known(holds=dtype == "int32")
    if by_name is not None:
        return NOT_KNOWN  # Name and operands contradict each other.
    if decoded.tensor_core is not None and dtype == _NEVER_ON[decoded.tensor_core]:
        return NO
    possible = operand_dtypes(name, decoded, launch)
    return NOT_KNOWN if not possible or possible > {dtype} else known(holds=possible == {dtype})


def _size_of(dtype: str) -> int:
    """Return the bytes of an element; two of fp4 share one."""
    bits = re.search(r"\d+", dtype)
    return max(1, int("32" if dtype == "tf32" else bits[0]) // 8) if bits else 1

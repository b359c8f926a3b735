"""The types that an operator of ATen's may compute in, given the types of its tensors: torch's rules of promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.kernels.names.text import word_list
from pytest_torchprof.kernels.operands import FLOAT, kind_of_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_KNOWN: Final = frozenset[str]()
# The type to which two types are promoted, if it is neither of them.
_WIDER: Final = (
    (frozenset({"bf16", "fp16"}), "fp32"),
    (frozenset({"int8", "uint8"}), "int16"),
    (frozenset({"complex64", "fp64"}), "complex128"),
)
# Elementwise operators that turn integers and bools into integers and bools. The others turn them into torch's default
# type, which no recording holds.
_KEEPS_INTEGERS: Final = frozenset(
    word_list(
        """
        __and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ abs absolute add
        addcmul arange bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
        clamp_max clamp_min clip conj_physical eq eye fill floor floor_divide fmax fmin fmod full gcd ge greater
        greater_equal gt hardtanh heaviside isfinite isinf isnan isneginf isposinf lcm le less less_equal logical_and
        logical_not logical_or logical_xor lt masked_fill maximum minimum mul multiply nan_to_num ne neg negative
        not_equal ones positive relu remainder round rsub sgn sign signbit square sub subtract threshold tril triu trunc
        where zero zeros
        """
    )
)
# These may have one more tensor than they compute with: their result, whose type does not matter.
_OF_TWO: Final = frozenset(
    word_list(
        """
        add atan2 bitwise_and bitwise_or bitwise_xor div eq floor_divide fmax fmin fmod ge gt hypot le logical_and
        logical_or logical_xor lt maximum minimum mul ne pow remainder rsub sub true_divide
        """
    )
)
# These turn complex numbers into real ones, or the other way round.
_CROSSES: Final = frozenset(word_list("abs angle std std_mean var var_mean linalg_vector_norm norm _fft_r2c _fft_c2r"))
_PARTS: Final = (("complex64", "fp32"), ("complex128", "fp64"))


class TypedOperand(NamedTuple):
    """A tensor among an operator's inputs; its type is None if it is not known."""

    dtype: str | None
    is_number: bool
    """Whether it has no dimensions, like a Python number: it decides only if it is of a higher kind."""


def computed_in(operands: Sequence[TypedOperand], op: str, family: str | None) -> frozenset[str]:
    """Return the types that the operator may compute in; empty if its operands do not show them."""
    plain = op.rpartition("::")[2].rstrip("_")
    # With weights, bincount adds everything but fp32 in fp64.
    if not operands or any(operand.dtype is None for operand in operands) or plain == "bincount":
        return _NOT_KNOWN
    if family == "copy":
        # A conversion reads one type and writes the other.
        return frozenset(str(operand.dtype) for operand in operands)
    given = _given(operands, plain)
    types = _promoted(given, plain, family)
    return types.union(str(operand.dtype) for operand in operands[len(given) :]) if types else types


def _given(operands: Sequence[TypedOperand], plain: str) -> Sequence[TypedOperand]:
    """Return the operands without a last one that is or may be written to, if it alone is of the highest kind."""
    if plain in _OF_TWO:
        return operands[:2]
    *others, last = operands
    above = not last.is_number and all(kind_of_dtype(other.dtype) < kind_of_dtype(last.dtype) for other in others)
    return others if others and above else operands


def _promoted(operands: Sequence[TypedOperand], plain: str, family: str | None) -> frozenset[str]:
    tensors = [operand.dtype for operand in operands if not operand.is_number] or [
        operand.dtype for operand in operands
    ]
    kind, highest = max(map(kind_of_dtype, tensors)), max(kind_of_dtype(operand.dtype) for operand in operands)
    if highest < FLOAT and family not in ("index", "sort", "rng") and plain not in _KEEPS_INTEGERS:
        # Sums and products of integers are widened.
        whole = family == "reduction" and plain != "logsumexp"
        return frozenset({*map(str, tensors), "int64"}) if whole else _NOT_KNOWN
    if kind < highest:
        # With Python floats the result has torch's default type, which no recording holds.
        return _NOT_KNOWN if highest >= FLOAT else frozenset(("int64",))
    types = {str(dtype) for dtype in tensors if kind_of_dtype(dtype) == kind}
    types.update(wider for pair, wider in _WIDER if pair.issubset(tensors))
    if plain in _CROSSES:
        types.update(*(pair for pair in _PARTS if not types.isdisjoint(pair)))
    return frozenset(types)

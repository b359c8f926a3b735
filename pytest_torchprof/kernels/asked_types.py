"""The type that an operator was asked to compute in or to return: its argument ``dtype``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.text import word_list
from pytest_torchprof.kernels.operands import DTYPES, FLOAT, kind_of_dtype

if TYPE_CHECKING:
    from pytest_torchprof.kernels.operands import Launch

# The position of ``dtype``, by the number of arguments: overloads differ in it, and so do those with ``out``.
_PLACES: Final = (
    ("sum mean prod", {2: 1, 3: 1, 4: 3, 5: 3}),
    ("nansum _sparse_csr_sum _sparse_csr_prod", {4: 3, 5: 3}),
    ("cumsum cumsum_ cumprod cumprod_", {3: 2, 4: 2}),
    ("linalg_vector_norm native_norm", {5: 4, 6: 4}),
    ("_sparse_softmax _sparse_log_softmax", {3: 2}),
    ("tril_indices triu_indices", {7: 3}),
    ("randperm", {5: 1, 6: 2}),
    ("quantize_per_tensor", {4: 3, 5: 3}),
    ("quantize_per_channel", {5: 4, 6: 4}),
    ("quantize_per_tensor_dynamic", {3: 1, 4: 1}),
)
TYPE_ARGUMENTS: Final = {f"aten::{op}": places for ops, places in _PLACES for op in word_list(ops)}
"""The positions by operator; the recording keeps the arguments of these, as of all in ``WITH_SETTINGS``."""
ALWAYS_ASKED: Final = frozenset(op for op in TYPE_ARGUMENTS if op.startswith("aten::quantize_"))
"""Operators that cannot be called without a ``dtype``."""
# c10/core/ScalarType.h
_SCALAR_TYPES: Final = dict(
    enumerate(
        word_list(
            "uint8 int8 int16 int32 int64 fp16 fp32 fp64 complex32 complex64 complex128 bool qint8 quint8 qint32 bf16"
        )
    )
)
# These turn integers and bools into int64 without being asked.
_WIDENING: Final = frozenset(op for op in TYPE_ARGUMENTS if op.rpartition("::")[2].startswith(("sum", "prod", "cum")))


def asked_type(launch: Launch) -> str | None:
    """Return the type that an operator was asked for; None if there is none, or if it returns that type anyway."""
    settings, at = launch.settings or (), TYPE_ARGUMENTS.get(launch.op or "", {})
    index = at.get(len(settings))
    number = "" if index is None else str(settings[index])
    if not number.isdecimal():
        return None
    asked = _SCALAR_TYPES.get(int(number), f"type{number}")
    given = {DTYPES[word] for word in map(str, launch.dtypes or ()) if word in DTYPES}
    whole = bool(given) and all(kind_of_dtype(dtype) < FLOAT for dtype in given)
    return None if asked in given or (asked == "int64" and whole and launch.op in _WIDENING) else asked

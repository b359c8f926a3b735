"""Operators by the names under which the code of Inductor's C++ wrapper calls them: ``aoti_torch_cpu_mm_out``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from pytest_torchprof.trace.columns import Ranges

# Behind the operator's name stands that of its overload, which events of operators leave out.
_SHIM = re.compile(
    r"aoti_torch_(?:cpu|cuda|mps|xpu)_(\w+?)(?:(?<!wait)_(?:Scalar|Tensor|Tensor_Scalar|Tensor_Tensor|bin_ct|binary|binary_tensor"
    r"|dim|dtype|dtype_out|float|generator|low|low_dtype|low_out|out|source_Tensor|src_out|stable|tensor|two_out"
    r"|value_out))?"
)
_LIBRARIES = (
    (re.compile(r"_c10d_functional_(?=\w)"), "_c10d_functional::"),
    (re.compile(r"mkldnn_(?=_)|(?=_linear_pointwise)"), "mkldnn::"),
    (re.compile(r"(?=_mkl_linear)"), "mkl::"),
    (re.compile(r"_(?=q(?:conv|linear))"), "onednn::"),
)


def operator_of(name: str) -> str | None:
    """Return the operator that a call of the C shim is, ``aten::mm``; None for any other name."""
    if (found := _SHIM.fullmatch(name)) is None:
        return None
    for beginning, namespace in _LIBRARIES:
        if match := beginning.match(found[1]):
            return namespace + found[1][match.end() :]
    return f"aten::{found[1]}"


def name_operators(names: list[str], ops: Ranges) -> None:
    """Give calls of the C shim the names of their operators, in place, as if they came from the dispatcher."""
    found = {i: operator for i, name in enumerate(names) if (operator := operator_of(name)) is not None}
    if not found:
        return
    known = {name: i for i, name in enumerate(names)}
    for i, operator in found.items():
        if known.setdefault(operator, i) == i:
            names[i] = operator
    for place in where(ops.name, found.keys()):
        ops.name[place] = known[found[ops.name[place]]]

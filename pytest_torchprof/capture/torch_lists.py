"""The types of tensors in lists that operators are given: the profiler knows them, but does not export them.

Run with torch 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

from collections import defaultdict
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.trace.metadata import TensorLists

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch.profiler.profiler import _KinetoProfile

# The profiler's names, where it exports types, by their names in Python; others are "c10::" and the Python name.
_TYPE_NAMES: Final = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


def tensor_lists(profiler: _KinetoProfile, recording: Path) -> tuple[TensorLists, ...] | None:
    """Return the types of the lists that operators of an exported recording were given; None if they are not known.

    They are read from the profiler's own tree of events, which a profiler that was asked only for the file lacks.
    """
    with recording.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        if text.find(b'"TensorList"') < 0:
            return None
    results = profiler.profiler.kineto_results if profiler.profiler else None
    operators_of: defaultdict[tuple[tuple[str, ...], ...], list[int]] = defaultdict(list)
    takes_lists: dict[str, bool] = {}
    left: list[Any] = [] if results is None else list(results.experimental_event_tree())
    while left:
        event = left.pop()
        left += event.children
        name = event.name
        if name not in takes_lists:
            takes_lists[name] = _takes_lists(name)
        if takes_lists[name] and (types := _types_of(getattr(event.extra_fields, "inputs", []))):
            operators_of[types].append(event.correlation_id)
    return tuple(TensorLists(types=types, operators=tuple(sorted(ids))) for types, ids in operators_of.items()) or None


def _takes_lists(name: str) -> bool:
    """Return whether an overload of an operator takes a list of tensors; looking at all inputs would take longer."""
    import torch

    if "::" not in name:
        return False
    schemas = torch._C._jit_get_schemas_for_operator(name)
    return any(str(argument.type) == "List[Tensor]" for schema in schemas for argument in schema.arguments)


def _types_of(inputs: list[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the types of each list of tensors that is not empty; one type stands for a list whose tensors share it."""
    lists = [
        tuple(_type_name(tensor.dtype) for tensor in given)
        for given in inputs
        if isinstance(given, list) and given and hasattr(given[0], "dtype")
    ]
    return tuple(types[:1] if len(set(types)) == 1 else types for types in lists)


def _type_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return _TYPE_NAMES.get(name) or f"c10::{name.capitalize() if name.startswith('float') else name}"

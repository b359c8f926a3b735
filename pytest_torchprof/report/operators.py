"""The table of operators, with the columns and names of ``key_averages().table()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_torchprof.text import units
from pytest_torchprof.text.escape import printable
from pytest_torchprof.text.layout import WIDTH, cut, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.analysis.operator_table import OpRow

_Column = tuple[str, str, "Callable[[Any], str]"]
_CPU: tuple[_Column, ...] = (
    ("# of\nCalls", "calls", "{:,}".format),
    ("Self\nCPU", "self_cpu_us", units.show_us),
    ("CPU\ntotal", "cpu_us", units.show_us),
)
_CUDA: tuple[_Column, ...] = (
    ("Self\nCUDA", "self_gpu_us", units.show_us),
    ("CUDA\ntotal", "gpu_us", units.show_us),
)
_CPU_MEMORY: tuple[_Column, ...] = (
    ("CPU\nMem", "cpu_memory_bytes", units.show_bytes),
    ("Self\nCPU Mem", "self_cpu_memory_bytes", units.show_bytes),
)
_CUDA_MEMORY: tuple[_Column, ...] = (
    ("CUDA\nMem", "gpu_memory_bytes", units.show_bytes),
    ("Self\nCUDA Mem", "self_gpu_memory_bytes", units.show_bytes),
)


def operators(rows: Sequence[OpRow], title: str, more: int, *, gpu: bool) -> str:
    """Return the table of these rows; operands' shapes, where recorded, stand below each."""
    memory = any(row.cpu_memory_bytes is not None for row in rows)
    columns = (*_CPU, *(_CUDA if gpu else ()), *((_CUDA_MEMORY if gpu else _CPU_MEMORY) if memory else ()))
    values = [(printable(_name(row)), *(show(getattr(row, key)) for _, key, show in columns)) for row in rows]
    text = drawn(values, ("name", *(header for header, _, _ in columns)), title, more).split("\n")
    first = next(number for number, line in enumerate(text) if line.startswith("---")) + 1
    for number, row in reversed([*enumerate(rows, first)]):
        if below := _below(row):
            text.insert(number + 1, cut(printable(f"    {below}"), WIDTH))
    return "\n".join(text)


def _name(row: OpRow) -> str:
    """Return the name; of autograd's nodes what they evaluate is what tells one from the other."""
    return row.name.replace("autograd::engine::evaluate_function: ", "autograd:: .. ")


def _below(row: OpRow) -> str:
    """Return what the profiler has no room for in a row either: whose backward it is, and the operands' shapes."""
    shapes = [*(row.shapes or ())]
    while shapes and not shapes[-1]:
        shapes.pop()
    told = [f"backward of {row.forward_op}"] if row.forward_op else []
    return "; ".join([*told, *([", ".join(map(str, shapes))] if shapes else [])])

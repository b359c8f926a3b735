"""Tables of a recording's kernels, families, operators, ranges and modules, in at most 100 columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_torchprof.analysis import tables
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.text import WIDTH, counted, cut, drawn, printable, share, show_bytes, show_us, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis, StepProfile
    from pytest_torchprof.analysis.tables import FamilyRow, KernelRow, OpRow, RangeRow

Sorted = TypeVar("Sorted", "RangeRow", "OpRow")

_KERNEL_COLUMNS = ("kernel", "calls", "time", "share", "launched by")
_NUMBERED = 42
"""Leaves room for the number in a column of a table that fits."""
_FAMILY_COLUMNS = ("family", "library", "calls", "time", "share")
_RANGE_COLUMNS = ("calls", "self CPU", "CPU total", "kernels", "self GPU", "GPU total")
_Column = tuple[str, str, "Callable[[Any], str]"]
_CPU: tuple[_Column, ...] = (
    ("# of\nCalls", "calls", "{:,}".format),
    ("Self\nCPU", "self_cpu_us", show_us),
    ("CPU\ntotal", "cpu_us", show_us),
)
_CUDA: tuple[_Column, ...] = (
    ("Self\nCUDA", "self_gpu_us", show_us),
    ("CUDA\ntotal", "gpu_us", show_us),
)
_CPU_MEMORY: tuple[_Column, ...] = (
    ("CPU\nMem", "cpu_memory_bytes", show_bytes),
    ("Self\nCPU Mem", "self_cpu_memory_bytes", show_bytes),
)
_CUDA_MEMORY: tuple[_Column, ...] = (
    ("CUDA\nMem", "gpu_memory_bytes", show_bytes),
    ("Self\nCUDA Mem", "self_gpu_memory_bytes", show_bytes),
)
# As key_averages().table() calls them, in torch before and after 2.3.
_DEVICES = ("cuda", "device", "xpu")
_SORT_BY: dict[str, str] = {
    "count": "calls",
    "cpu_time_total": "cpu_us",
    "self_cpu_time_total": "self_cpu_us",
    "cpu_memory_usage": "cpu_memory_bytes",
    "self_cpu_memory_usage": "self_cpu_memory_bytes",
    **{f"{device}_time_total": "gpu_us" for device in _DEVICES},
    **{f"self_{device}_time_total": "self_gpu_us" for device in _DEVICES},
    **{f"{device}_memory_usage": "gpu_memory_bytes" for device in _DEVICES},
    **{f"self_{device}_memory_usage": "self_gpu_memory_bytes" for device in _DEVICES},
    **{name: name for name in ("calls", "cpu_us", "self_cpu_us", "gpu_us", "self_gpu_us", "time_us")},
}
_PER_CALL = {"cpu_time": "cpu_us", **{f"{device}_time": "gpu_us" for device in _DEVICES}}
_WAYS = ("kernel", "family", "op", "range", "module")


def table(analysis: Analysis, *, by: str = "kernel", sort_by: str | None = None, top: int = 20) -> str:
    """Return one table over all steps; UnknownLimit for an unknown way or column."""
    if by not in _WAYS:
        raise UnknownLimit(f"by= takes one of {', '.join(_WAYS)}; got {by!r}")
    if sort_by is not None and sort_by not in _SORT_BY and sort_by not in _PER_CALL:
        raise UnknownLimit(f"sort_by= takes one of {', '.join([*_SORT_BY, *_PER_CALL])}; got {sort_by!r}")
    return rows_of(analysis, analysis.steps, by=by, sort_by=sort_by, top=top)


def rows_of(analysis: Analysis, steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int) -> str:
    """Return one table over these steps."""
    trace, launching, parts = analysis.trace, analysis.launching, [step.part for step in steps]
    over = f"over {len(steps)} steps" if len(steps) > 1 else "in the step"
    if by in ("kernel", "family"):
        kernels = tables.by_kernel(trace, launching, parts)
        return _kernels(kernels, sort_by, top, over) if by == "kernel" else _families(kernels, top, over)
    if by == "op":
        rows = _sorted(tables.by_op(trace, launching, parts), sort_by)
        if rows:
            return _operators(rows[:top], f"operators {over}", len(rows) - top, gpu=len(trace.gpu) > 0)
        return f"no operators {over}"
    if by == "range":
        found, what = tables.by_annotation(trace, parts), "user annotations"
    else:
        found, what = tables.by_module(trace, parts), "modules"
    if not found:
        missing = "; they are not recorded: record them with profile(with_stack=True), here with record=['modules']"
        return "\n".join(wrapped(f"no {what} {over}{missing if by == 'module' else ''}", ""))
    return _ranges(_sorted(found, sort_by), top, f"{what} {over}")


def _sorted(rows: Sequence[Sorted], sort_by: str | None) -> Sequence[Sorted]:
    """Return the rows by a column, the largest first; UnknownLimit for a column that they do not have."""
    if sort_by is None:
        return rows
    column = _PER_CALL.get(sort_by) or {"time_us": "gpu_us"}.get(sort_by) or _SORT_BY[sort_by]
    if rows and not hasattr(rows[0], column):
        raise UnknownLimit(f"sort_by={sort_by!r} is a column of operators: by='op'")
    per_call = sort_by in _PER_CALL

    def value(row: Sorted) -> float:
        found: float = getattr(row, column) or 0
        return found / row.calls if per_call else found

    return sorted(rows, key=value, reverse=True)


def _kernels(rows: Sequence[KernelRow], sort_by: str | None, top: int, over: str) -> str:
    if not rows:
        return f"no kernels {over}"
    if _SORT_BY.get(sort_by or "") == "calls":
        rows = sorted(rows, key=lambda row: -row.count)
    total = sum(row.time_us for row in rows)
    # What a backward pass launches tells whose backward it is, and needs more room for it.
    launched = 30 if any(row.forward_op for row in rows[:top]) else 22
    labels = _told_apart([printable(_kernel_name(row)) for row in rows[:top]])
    lines = [
        (
            label,
            row.count,
            show_us(row.time_us),
            share(row.time_us / (total or 1.0)),
            _launched_by(row, launched),
        )
        for label, row in zip(labels, rows, strict=False)
    ]
    names = counted(len(rows), "kernel name")
    return drawn(lines, _KERNEL_COLUMNS, f"{names} {over}, {show_us(total)}", len(rows) - len(lines))


def _told_apart(labels: Sequence[str]) -> list[str]:
    """Return the labels; those of kernels that only their raw names tell apart are numbered: ``pointwise add [2]``."""
    several = {label for label, count in Counter(labels).items() if count > 1}
    seen: Counter[str] = Counter()
    numbered = []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{cut(label, _NUMBERED)} [{seen[label]}]" if label in several else label)
    return numbered


def _launched_by(row: KernelRow, width: int) -> str:
    """Return the operator and, of a backward pass, ``< conv2d``: the one whose backward it is."""
    op = printable(row.op or "-")
    if row.forward_op is None:
        return cut(op, width)
    forward = cut(printable(row.forward_op.removeprefix("aten::")), width - 12)
    return f"{cut(op.removeprefix('aten::'), width - len(forward) - 3)} < {forward}"


def _kernel_name(row: KernelRow) -> str:
    """Return what it computes, on what, and then how it is called."""
    decoded = row.decoded
    if decoded.family == "other":
        return decoded.short or row.name
    rest = decoded.short.removeprefix(decoded.family).strip()
    facts = [fact for fact in (decoded.dtype, decoded.layout) if fact and fact not in rest.split()]
    return " ".join([decoded.family, *facts, rest])


def _families(rows: Sequence[KernelRow], top: int, over: str) -> str:
    found: Sequence[FamilyRow] = tables.by_family(rows)
    if not found:
        return f"no kernels {over}"
    total = sum(row.time_us for row in found)
    lines = [
        (row.family, row.library, row.count, show_us(row.time_us), share(row.time_us / (total or 1.0)))
        for row in found[:top]
    ]
    return drawn(lines, _FAMILY_COLUMNS, f"families {over}, {show_us(total)}", len(found) - len(lines))


def _ranges(rows: Sequence[RangeRow], top: int, title: str) -> str:
    lines = [
        (
            printable(row.name.removeprefix(MODULE)),
            row.calls,
            *(show_us(time) for time in (row.self_cpu_us, row.cpu_us)),
            row.kernels,
            *(show_us(time) for time in (row.self_gpu_us, row.gpu_us)),
        )
        for row in rows[:top]
    ]
    return drawn(lines, ("name", *_RANGE_COLUMNS), title, len(rows) - len(lines))


def _operators(rows: Sequence[OpRow], title: str, more: int, *, gpu: bool) -> str:
    """Return the table of these rows; operands' shapes, where recorded, stand below each."""
    memory = any(row.cpu_memory_bytes is not None for row in rows)
    columns = (*_CPU, *(_CUDA if gpu else ()), *((_CUDA_MEMORY if gpu else _CPU_MEMORY) if memory else ()))
    values = [(printable(_operator_name(row)), *(show(getattr(row, key)) for _, key, show in columns)) for row in rows]
    text = drawn(values, ("name", *(header for header, _, _ in columns)), title, more).split("\n")
    first = next(number for number, line in enumerate(text) if line.startswith("---")) + 1
    for number, row in reversed([*enumerate(rows, first)]):
        if below := _below(row):
            text.insert(number + 1, cut(printable(f"    {below}"), WIDTH))
    return "\n".join(text)


def _operator_name(row: OpRow) -> str:
    """Return the name; of autograd's nodes what they evaluate is what tells one from the other."""
    return row.name.replace("autograd::engine::evaluate_function: ", "autograd:: .. ")


def _below(row: OpRow) -> str:
    """Return what the profiler has no room for in a row either: whose backward it is, and the operands' shapes."""
    shapes = [*(row.shapes or ())]
    while shapes and not shapes[-1]:
        shapes.pop()
    told = [f"backward of {row.forward_op}"] if row.forward_op else []
    return "; ".join([*told, *([", ".join(map(str, shapes))] if shapes else [])])

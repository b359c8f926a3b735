"""A recording's tables as text: as wide as the terminal at most, and what has no room is named below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pytest_torchprof.analysis import tables
from pytest_torchprof.analysis.source_lines import MODULE
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.kernels.names.kernelname import FAMILY_NOT_KNOWN
from pytest_torchprof.tables import Column, cells, headed, terminal_width
from pytest_torchprof.text import (
    counted,
    cut,
    number_alike,
    printable,
    show_bytes,
    show_rate,
    show_share,
    show_us,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.call_times import CallTimes
    from pytest_torchprof.analysis.collective_rows import CollectiveRow
    from pytest_torchprof.analysis.kernel_rows import FamilyRow, KernelRow
    from pytest_torchprof.analysis.operator_rows import OpRow
    from pytest_torchprof.analysis.range_rows import RangeRow
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.tables import Cells

Timed = TypeVar("Timed", "RangeRow", "OpRow")
Kernels = TypeVar("Kernels", "KernelRow", "FamilyRow", "CollectiveRow")

_EVALUATED = "autograd::engine::evaluate_function: "

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
_NOUNS = {"op": "operators", "range": "user annotations", "module": "modules", "collective": "collectives"}


def table(analysis: Analysis, *, by: str = "kernel", sort_by: str | None = None, top: int = 20) -> str:
    """Return one table over all steps, as wide as the terminal; UnknownLimit for an unknown way or column."""
    if by not in tables.WAYS:
        raise UnknownLimit(f"by= takes one of {', '.join(tables.WAYS)}; got {by!r}")
    if sort_by is not None and sort_by not in _SORT_BY and sort_by not in _PER_CALL:
        raise UnknownLimit(f"sort_by= takes one of {', '.join([*_SORT_BY, *_PER_CALL])}; got {sort_by!r}")
    return rows_of(analysis, analysis.steps, by=by, sort_by=sort_by, top=top, width=terminal_width())


def rows_of(  # noqa: PLR0913 - the options of the command
    analysis: Analysis, steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int, width: int
) -> str:
    """Return one table over these steps."""
    over = f"over {len(steps)} steps" if len(steps) > 1 else "in the step"
    rows = tables.rows_by(by, analysis, steps)
    below: Sequence[str] = ()
    if by in ("kernel", "family"):
        if not rows:
            return f"no kernels {over}"
        heading, shown, columns = _kernel_table(rows, steps, by=by, sort_by=sort_by, top=top)
    else:
        if not rows:
            missing = "; they are not recorded: record them with profile(with_stack=True), here with record=['modules']"
            return "\n".join(wrapped(f"no {_NOUNS[by]} {over}{missing if by == 'module' else ''}", "", width=width))
        heading = f"{_NOUNS[by]} {over}"
        shown = (_sort_kernels if by == "collective" else _sort_rows)(rows, sort_by)[:top]
        columns = (
            _operator_columns(analysis, shown, steps, sort_by)
            if by == "op"
            else _collective_columns(shown, steps)
            if by == "collective"
            else _range_columns(analysis, steps)
        )
        below = [printable(_details_below(row)) for row in shown] if by == "op" else ()
    return headed(shown, columns, heading, more=len(rows) - len(shown), width=width, below=below)


def kernel_cells(analysis: Analysis, top: int) -> tuple[str, Cells, int]:
    """Return the table of kernels over all steps: its heading, its cells by title, and how many rows it leaves out."""
    rows = tables.rows_by("kernel", analysis, analysis.steps)
    heading, shown, columns = _kernel_table(rows, analysis.steps, by="kernel", sort_by=None, top=top)
    return heading, cells(columns, shown), len(rows) - len(shown)


def _kernel_table(
    rows: Sequence[Any], steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int
) -> tuple[str, Sequence[Any], tuple[Column, ...]]:
    """Return heading, shown rows and columns of a table of kernels or of families."""
    over = f"over {len(steps)} steps" if len(steps) > 1 else "in the step"
    total_us = sum(row.time_us for row in rows)
    what = counted(len(rows), "kernel name") if by == "kernel" else "families"
    heading = f"{what} {over}, shares of {show_us(total_us)} of kernel time"
    shown = _sort_kernels(rows, sort_by)[:top]
    return heading, shown, (_kernel_columns if by == "kernel" else _family_columns)(shown, steps, total_us)


def _sort_kernels(rows: Sequence[Kernels], sort_by: str | None) -> Sequence[Kernels]:
    """Return the rows as they are, the longest time first, or by how many they are, or by what one of them takes."""
    if _SORT_BY.get(sort_by or "") == "calls":
        return sorted(rows, key=lambda row: -row.times.count)
    return sorted(rows, key=lambda row: -row.times.mean_us) if _PER_CALL.get(sort_by or "") == "gpu_us" else rows


def _sort_rows(rows: Sequence[Timed], sort_by: str | None) -> Sequence[Timed]:
    """Return the rows by a column, the largest first; UnknownLimit for a column that they do not have."""
    if sort_by is None:
        return rows
    column = _column_of(sort_by)
    if rows and not hasattr(rows[0], column):
        raise UnknownLimit(f"sort_by={sort_by!r} is a column of operators: by='op'")
    per_call = sort_by in _PER_CALL

    def value(row: Timed) -> float:
        found: float = getattr(row, column) or 0
        return found / row.calls if per_call else found

    return sorted(rows, key=value, reverse=True)


def _column_of(sort_by: str) -> str:
    return _PER_CALL.get(sort_by) or {"time_us": "gpu_us"}.get(sort_by) or _SORT_BY[sort_by]


def _column(title: str, attribute: str, show: Callable[[Any], str] = str, leaves: int = 0) -> Column:
    """Return the column of a row's attribute."""
    return Column(title, lambda row: show(getattr(row, attribute)), leaves=leaves)


def _times_columns(steps: Sequence[StepProfile], attribute: str = "times", device: str = "") -> Iterator[Column]:
    """Yield what is told of a row's calls beside their number and their time."""

    def times(row: Any) -> CallTimes:
        found: CallTimes = getattr(row, attribute)
        return found

    def worst(row: Any) -> str:
        step = steps[times(row).worst_step or 0].name or ""
        return f"{show_us(times(row).worst_step_us)} {step.removeprefix('ProfilerStep')}"

    yield Column(f"{device}mean", lambda row: show_us(times(row).mean_us), leaves=9)
    yield Column(f"{device}min", lambda row: show_us(times(row).min_us), leaves=6)
    yield Column(f"{device}max", lambda row: show_us(times(row).max_us), leaves=8)
    if len(steps) > 1:
        yield Column("worst\nstep" if device else "worst step", worst, leaves=7)


def _share_column(total_us: float) -> Column:
    return Column("share", lambda row: show_share(row.time_us / (total_us or 1.0)), leaves=11)


def _kernel_columns(shown: Sequence[KernelRow], steps: Sequence[StepProfile], total_us: float) -> tuple[Column, ...]:
    # What a backward pass launches tells whose backward it is, and needs more room for it.
    launched = 30 if any(row.forward_op for row in shown) else 22
    labels = number_alike([printable(_kernel_name(row)) for row in shown])
    names = {row.name: label for row, label in zip(shown, labels, strict=True)}
    return (
        Column("kernel", lambda row: names[row.name], "left"),
        _column("calls", "count", leaves=10),
        _column("time", "time_us", show_us),
        _share_column(total_us),
        *_times_columns(steps),
        *([_column("TFLOP/s", "tflops", show_rate, leaves=3)] if any(row.tflops for row in shown) else []),
        *([_column("GB/s", "gb_per_s", show_rate, leaves=2)] if any(row.gb_per_s for row in shown) else []),
        Column("launched by", lambda row: _launched_by(row, launched), "left", leaves=1),
    )


def _family_columns(_: Sequence[FamilyRow], steps: Sequence[StepProfile], total_us: float) -> tuple[Column, ...]:
    return (
        Column("family", lambda row: row.family or FAMILY_NOT_KNOWN, "left"),
        Column("library", lambda row: row.library, "left", leaves=5),
        _column("calls", "count", leaves=10),
        _column("time", "time_us", show_us),
        _share_column(total_us),
        *_times_columns(steps),
    )


def _collective_columns(shown: Sequence[CollectiveRow], steps: Sequence[StepProfile]) -> tuple[Column, ...]:
    return (
        Column("collective", lambda row: row.name, "left"),
        *(
            [Column("group", _group_name, "left", leaves=5)]
            if any(row.group or row.group_size for row in shown)
            else []
        ),
        Column("dtype", lambda row: row.dtype or "-", "left", leaves=1),
        _column("calls", "calls"),
        _column("bytes", "bytes", show_bytes, leaves=10),
        _column("time", "time_us", show_us),
        _column("exposed", "exposed_share", _share_or_dash, leaves=12),
        _column("bus GB/s", "bus_gb_per_s", show_rate, leaves=11),
        *_times_columns(steps),
    )


def _share_or_dash(share: float | None) -> str:
    return "-" if share is None else show_share(share)


def _group_name(row: CollectiveRow) -> str:
    size = "" if row.group_size is None else f"{row.group_size} ranks"
    return printable(": ".join(word for word in (row.group, size) if word) or "-")


def _range_columns(analysis: Analysis, steps: Sequence[StepProfile]) -> tuple[Column, ...]:
    # Where operators on the CPU are the kernels, theirs is the time.
    device = "GPU" if analysis.trace.device_kind.has_launches else "kernels'"
    return (
        Column("name", lambda row: printable(row.name.removeprefix(MODULE)), "left"),
        _column("calls", "calls"),
        _column("self\nCPU", "self_cpu_us", show_us, leaves=2),
        _column("CPU\ntotal", "cpu_us", show_us, leaves=3),
        _column("kernels", "kernels", leaves=4),
        _column(f"self\n{device}", "self_gpu_us", show_us, leaves=1),
        _column(f"{device}\ntotal", "gpu_us", show_us),
        *_times_columns(steps, "gpu", f"{device}\n"),
    )


def _operator_columns(
    analysis: Analysis, shown: Sequence[OpRow], steps: Sequence[StepProfile], sort_by: str | None
) -> tuple[Column, ...]:
    """Return the profiler's columns, and the times of a call: on the device by whose time the rows are sorted."""
    gpu, sorted_by = len(analysis.trace.gpu) > 0, _column_of(sort_by) if sort_by else None
    memory = any(row.cpu_memory_bytes is not None for row in shown)
    on_gpu = gpu and sorted_by not in ("cpu_us", "self_cpu_us")

    def column(title: str, attribute: str, show: Callable[[Any], str] = show_us, *, leaves: int) -> Column:
        return _column(title, attribute, show, 0 if attribute == sorted_by else leaves)

    device, side = ("CUDA", "gpu") if gpu else ("CPU", "cpu")
    return (
        # Of autograd's nodes what they evaluate is what tells one from the other.
        Column("name", lambda row: printable(row.name.replace(_EVALUATED, "autograd:: .. ")), "left"),
        _column("# of\nCalls", "calls", "{:,}".format),
        column("Self\nCPU", "self_cpu_us", leaves=4),
        column("CPU\ntotal", "cpu_us", leaves=5 if on_gpu else 0),
        *((column("Self\nCUDA", "self_gpu_us", leaves=3),) if gpu else ()),
        *((column("CUDA\ntotal", "gpu_us", leaves=0 if on_gpu else 5),) if gpu else ()),
        *((column(f"{device}\nMem", f"{side}_memory_bytes", show_bytes, leaves=2),) if memory else ()),
        *((column(f"Self\n{device} Mem", f"self_{side}_memory_bytes", show_bytes, leaves=1),) if memory else ()),
        *_times_columns(steps, *(("gpu", "CUDA\n") if on_gpu else ("cpu", "CPU\n"))),
    )


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
    if decoded.family in (None, "other"):
        return decoded.short or row.name
    rest = decoded.short.removeprefix(decoded.family).strip()
    facts = [fact for fact in (decoded.dtype, decoded.layout) if fact and fact not in rest.split()]
    return " ".join([decoded.family, *facts, rest])


def _details_below(row: OpRow) -> str:
    """Return what the profiler has no room for in a row either: whose backward it is, and the operands' shapes."""
    shapes = [*(row.shapes or ())]
    while shapes and not shapes[-1]:
        shapes.pop()
    told = [f"backward of {row.forward_op}"] if row.forward_op else []
    words = "; ".join([*told, *([", ".join(map(str, shapes))] if shapes else [])])
    return words and f"    {words}"

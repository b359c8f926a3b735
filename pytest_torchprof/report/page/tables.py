"""A recording's tables as plain data that the page sorts and draws; times in microseconds, over all steps."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from pytest_torchprof.analysis.kernel_rows import by_kernel
from pytest_torchprof.analysis.tables import rows_by
from pytest_torchprof.kernels.names import decode, without_index
from pytest_torchprof.kernels.names.kernelname import FAMILY_NOT_KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.kernel_rows import FamilyRow, KernelRow
    from pytest_torchprof.analysis.operator_rows import OpRow
    from pytest_torchprof.analysis.range_rows import RangeRow

Table = dict[str, Any]
"""``columns``: the names of a row's cells; ``rows``: the cells."""

_MOST_ROWS: Final = 2000
"""More of a table nobody scrolls through; what is left out is counted."""


WAYS: Final = ("kernel", "family", "op", "module")


def tables_of(analysis: Analysis, before: Analysis | None = None) -> dict[str, Table]:
    """Return the tables in each of the `WAYS`; with ``before`` each row has the cells that its name has there too."""
    sides = [_rows(analysis), _rows(before) if before is not None else {}]
    found = {}
    for way in WAYS:
        now, was = (side.get(way, []) for side in sides)
        if now or was:
            found[way] = _table(now, was if before is not None else None, _CELLS[way], _KEYS[way])
    return found


def kernel_names(kernels: Table) -> dict[str, set[str]]:
    """Return for each way in which findings speak of a kernel the raw names of those that are meant."""
    found: dict[str, set[str]] = defaultdict(set)
    name, short = (kernels["columns"].index(column) for column in ("name", "short"))
    for row in kernels["rows"]:
        decoded = decode(row[name])
        for word in (row[name], row[short], decoded.short, decoded.stem, decoded.collective):
            if word is not None:
                found[word].add(row[name])
    return found


def time_breakdown(analysis: Analysis) -> dict[str, Any] | None:
    """Return where a step's time goes and what "other" is made of; None where the CPU is the device."""
    if not analysis.trace.device_kind.has_launches or not len(analysis.trace.gpu):
        return None
    efficiency = analysis.efficiency
    return {
        "parts": asdict(efficiency.step_time),
        "total_us": efficiency.step_time.total,
        "other": [asdict(row) for row in efficiency.other[:8]],
        "more": max(len(efficiency.other) - 8, 0),
    }


def _rows(analysis: Analysis) -> dict[str, Sequence[Any]]:
    if analysis.kernels_unknown is not None:
        return {}
    kernels = by_kernel(analysis.trace, analysis.launching, analysis.launching.parts)
    return {way: rows_by(way, analysis, analysis.steps, kernels) for way in WAYS}


def _kernel(row: KernelRow) -> dict[str, Any]:
    decoded = row.decoded
    return {
        "name": row.name,
        "short": decoded.short or row.name,
        "family": decoded.family_shown,
        "dtype": decoded.dtype,
        "calls": row.count,
        "time_us": row.time_us,
        "mean_us": row.times.mean_us,
        "min_us": row.times.min_us,
        "max_us": row.times.max_us,
        "tflops": row.tflops,
        "gb_per_s": row.gb_per_s,
        "op": row.op,
        "forward_op": row.forward_op,
    }


def _family(row: FamilyRow) -> dict[str, Any]:
    times = row.times
    return {
        "name": row.family or FAMILY_NOT_KNOWN,
        "family": row.family or FAMILY_NOT_KNOWN,
        "library": row.library,
        "calls": row.count,
        "time_us": row.time_us,
        "mean_us": times.mean_us,
        "min_us": times.min_us,
        "max_us": times.max_us,
    }


def _op(row: OpRow) -> dict[str, Any]:
    shapes = ", ".join(map(str, filter(None, row.shapes or ())))
    return {
        "name": row.name,
        "calls": row.calls,
        "self_cpu_us": row.self_cpu_us,
        "cpu_us": row.cpu_us,
        "self_gpu_us": row.self_gpu_us,
        "gpu_us": row.gpu_us,
        "gpu_memory_bytes": row.self_gpu_memory_bytes,
        "shapes": shapes[:400] or None,
        "forward_op": row.forward_op,
    }


def _module(row: RangeRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "calls": row.calls,
        "kernels": row.kernels,
        "self_cpu_us": row.self_cpu_us,
        "cpu_us": row.cpu_us,
        "self_gpu_us": row.self_gpu_us,
        "gpu_us": row.gpu_us,
    }


_CELLS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "kernel": _kernel,
    "family": _family,
    "op": _op,
    "module": _module,
}
_KEYS: Final[Mapping[str, Callable[[Any], object]]] = {
    "kernel": lambda row: without_index(row.name),
    "family": lambda row: (row.family, row.library),
    "op": lambda row: row.name,
    "module": lambda row: row.name,
}
_COMPARED: Final = ("calls", "time_us", "gpu_us", "cpu_us")


def _table(
    now: Sequence[Any],
    was: Sequence[Any] | None,
    cells: Callable[[Any], dict[str, Any]],
    key: Callable[[Any], object],
) -> Table:
    rows = [cells(row) for row in now]
    if was is not None:
        rows = _with_before(rows, list(map(key, now)), [cells(row) for row in was], list(map(key, was)))
    columns = list(rows[0])
    # A column in which nothing stands says nothing.
    columns = [column for column in columns if any(row[column] is not None for row in rows)]
    shown = [[_rounded(row[column]) for column in columns] for row in rows[:_MOST_ROWS]]
    return {"columns": columns, "rows": shown, "more": max(len(rows) - _MOST_ROWS, 0)}


def _with_before(
    rows: list[dict[str, Any]], keys: list[object], former: list[dict[str, Any]], former_keys: list[object]
) -> list[dict[str, Any]]:
    """Return the rows with what the same name had before; what is no longer there has a row without calls.

    Several kernels may have one key: numbers of generated kernels change. The first has what all of them had.
    """
    compared = [column for column in _COMPARED if column in (rows or former)[0]]
    sums: dict[object, dict[str, float]] = {}
    example: dict[object, dict[str, Any]] = {}
    for key, row in zip(former_keys, former, strict=True):
        example.setdefault(key, row)
        spent = sums.setdefault(key, dict.fromkeys(compared, 0))
        for column in compared:
            spent[column] += row[column] or 0
    found = []
    for key, row in zip(keys, rows, strict=True):
        spent = sums.pop(key, dict.fromkeys(compared, 0))
        found.append({**row, **{f"before_{column}": spent[column] for column in compared}})
    told = ("name", "short", "family", "dtype", "library", "op", "forward_op", "shapes")
    for key, spent in sums.items():
        row = example[key]
        gone = {column: value if column in told else 0 if column in compared else None for column, value in row.items()}
        found.append({**gone, **{f"before_{column}": spent[column] for column in compared}})
    return found


def _rounded(value: Any) -> Any:
    # Sums of nanoseconds need no more digits; of what is smaller, rates, some stay.
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
    return value

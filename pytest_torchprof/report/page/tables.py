"""A recording's tables as plain data that the page sorts and draws; times in microseconds, over all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from pytest_torchprof.analysis.kernel_rows import by_kernel
from pytest_torchprof.analysis.tables import rows_by
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.report.columns import CALLS, COLUMNS
from pytest_torchprof.report.row_columns import Among, page_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.report.result import KernelCalls
    from pytest_torchprof.report.row_columns import RowColumn

Table = dict[str, Any]
"""``columns``: key, title and unit of a row's cells, without a title below its name; ``rows``: the cells.

``counts``, ``time`` and ``own`` are the keys of a row's calls, of its time, and of the time that shares are of.
"""

_MOST_ROWS: Final = 2000
"""The most rows of a table: nobody scrolls through more, and what is left out is counted."""


WAYS: Final = ("kernel", "family", "op", "module")


def tables_of(analysis: Analysis, before: Analysis | None = None) -> dict[str, Table]:
    """Return the tables in each of the `WAYS`; with ``before`` each row also has the cells of the same name there."""
    sides = [_rows(analysis), _rows(before) if before is not None else {}]
    tables = {}
    for way in WAYS:
        now, was = (side.get(way, []) for side in sides)
        if now or was:
            tables[way] = _table(way, now, was if before is not None else None)
    return tables


def time_breakdown(analysis: Analysis) -> dict[str, Any] | None:
    """Return where a step's time goes and what "other" consists of; None if the CPU is the device."""
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
    kernels = by_kernel(analysis.gpu_work, analysis.launching.parts)
    return {way: rows_by(way, analysis, analysis.steps, kernels) for way in WAYS}


_KEYS: Final[Mapping[str, Callable[[Any], object]]] = {
    "kernel": lambda row: without_index(row.name),
    "family": lambda row: (row.family, row.library),
    "op": lambda row: row.name,
    "module": lambda row: row.name,
}


def _table(way: str, now: Sequence[Any], was: Sequence[Any] | None) -> Table:
    has_gpu = way not in ("op", "module") or any(row.gpu_us for row in (*now, *(was or ())))
    beside = Among(has_gpu=has_gpu)
    columns = page_columns(COLUMNS[way], beside)
    rows = [_cells(columns, row, beside) for row in now]
    if was is not None:
        key, former = _KEYS[way], [_cells(columns, row, beside) for row in was]
        rows = _with_before(columns, rows, list(map(key, now)), former, list(map(key, was)))
    if way in ("kernel", "family"):
        return {**as_table(columns, rows), "counts": "count", "time": "time_us", "own": "time_us"}
    side = "gpu_us" if has_gpu else "cpu_us"
    return {**as_table(columns, rows), "counts": "calls", "time": side, "own": f"self_{side}"}


def table_of_calls(kernels: Sequence[KernelCalls]) -> Table:
    """Return the kernels of one step that a run keeps of a measurement without its recording."""
    columns = page_columns(CALLS, Among())
    table = as_table(columns, [_cells(columns, row, Among()) for row in kernels])
    return {**table, "counts": "count", "time": "time_us", "own": "time_us", "of_step": True}


def _cells(columns: Sequence[RowColumn], row: Any, beside: Among) -> dict[str, Any]:
    return {column.key: column.value(row, beside) for column in columns}


def as_table(columns: Sequence[RowColumn], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows, keyed by column, in the page's form."""
    known = {column.key: column for column in columns}
    # An empty column says nothing.
    keys = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    return {
        "columns": [
            {"key": key, "title": column.page or "", "unit": column.unit, "compared": column.compared}
            if (column := known.get(key)) is not None
            else {"key": key}
            for key in keys
        ],
        "rows": [[_rounded(row[key]) for key in keys] for row in rows[:_MOST_ROWS]],
        "more": max(len(rows) - _MOST_ROWS, 0),
    }


def _with_before(
    columns: Sequence[RowColumn],
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[object],
    former: Sequence[Mapping[str, Any]],
    former_keys: Sequence[object],
) -> list[dict[str, Any]]:
    """Return the rows with the earlier cells of the same name; a name that is gone has a row without calls.

    Several kernels may have one key: numbers of generated kernels change. The first row then has the sum of those
    before.
    """
    compared = [column.key for column in columns if column.compared]
    sums: dict[object, dict[str, float]] = {}
    example: dict[object, Mapping[str, Any]] = {}
    for key, row in zip(former_keys, former, strict=True):
        example.setdefault(key, row)
        spent = sums.setdefault(key, dict.fromkeys(compared, 0))
        for column in compared:
            spent[column] += row[column] or 0
    merged = []
    for key, row in zip(keys, rows, strict=True):
        spent = sums.pop(key, dict.fromkeys(compared, 0))
        merged.append({**row, **{f"before_{column}": spent[column] for column in compared}})
    texts = [column.key for column in columns if column.unit == "text"]
    for key, spent in sums.items():
        row = example[key]
        gone = {
            column: value if column in texts else 0 if column in compared else None for column, value in row.items()
        }
        merged.append({**gone, **{f"before_{column}": spent[column] for column in compared}})
    return merged


def _rounded(value: Any) -> Any:
    # Sums of nanoseconds need no more digits; of what is smaller, rates, some stay.
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
    return value

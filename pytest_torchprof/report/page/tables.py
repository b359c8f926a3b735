"""A recording's tables as the page sorts and draws them; times in microseconds, over all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.analysis.kernel_rows import by_kernel
from pytest_torchprof.analysis.tables import rows_by
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.report.columns import CALLS, COLUMNS
from pytest_torchprof.report.row_columns import Among, page_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.step_time import SilentTime, StepTime
    from pytest_torchprof.report.result import KernelCalls
    from pytest_torchprof.report.row_columns import RowColumn, Unit

    Cells = Sequence[Any]
    """The values of a row, one for each column."""


class ColumnOnPage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a table; one without a title belongs to the cells of another one."""

    key: str
    title: str | None = None
    """An empty one: it stands below a row's name."""
    unit: Unit | None = None
    compared: bool | None = None


class Table(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table, and which of its columns have the page's attention, by their keys."""

    columns: Sequence[ColumnOnPage]
    rows: Sequence[Cells]
    more: int
    """How many rows are left out."""
    counts: str = ""
    """The column of a row's calls."""
    time: str = ""
    """The column of a row's time."""
    own: str = ""
    """The column of the time that shares are of."""
    of_step: bool = False
    """Whether it is of one step."""


class TimeBreakdown(Struct, frozen=True, kw_only=True):
    """The use of a step's time, and what "other" consists of."""

    parts: StepTime
    total_us: float
    other: Sequence[SilentTime]
    more: int
    """How many parts of "other" are left out."""


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


def time_breakdown(analysis: Analysis) -> TimeBreakdown | None:
    """Return where a step's time goes and what "other" consists of; None if the CPU is the device."""
    if not analysis.trace.device_kind.has_launches or not len(analysis.trace.gpu):
        return None
    efficiency = analysis.efficiency
    return TimeBreakdown(
        parts=efficiency.step_time,
        total_us=efficiency.step_time.total,
        other=efficiency.other[:8],
        more=max(len(efficiency.other) - 8, 0),
    )


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
    shown, rows = columns_on_page(columns), [_cells(columns, row, beside) for row in now]
    if was is not None:
        key, former = _KEYS[way], [_cells(columns, row, beside) for row in was]
        shown += [ColumnOnPage(key=f"before_{column.key}") for column in columns if column.compared]
        rows = _with_before(columns, rows, list(map(key, now)), former, list(map(key, was)))
    if way in ("kernel", "family"):
        return as_table(shown, rows, counts="count", time="time_us", own="time_us")
    side = "gpu_us" if has_gpu else "cpu_us"
    return as_table(shown, rows, counts="calls", time=side, own=f"self_{side}")


def table_of_calls(kernels: Sequence[KernelCalls]) -> Table:
    """Return the kernels of one step that a run keeps of a measurement without its recording."""
    columns = page_columns(CALLS, Among())
    rows = [_cells(columns, row, Among()) for row in kernels]
    return as_table(columns_on_page(columns), rows, counts="count", time="time_us", own="time_us", of_step=True)


def _cells(columns: Sequence[RowColumn], row: Any, beside: Among) -> Cells:
    return [column.value(row, beside) for column in columns]


def columns_on_page(columns: Iterable[RowColumn]) -> list[ColumnOnPage]:
    """Return the columns as the page has them, in the same order."""
    return [
        ColumnOnPage(key=column.key, title=column.page or "", unit=column.unit, compared=column.compared)
        for column in columns
    ]


def as_table(  # noqa: PLR0913 - the fields of a table
    columns: Sequence[ColumnOnPage],
    rows: Sequence[Cells],
    *,
    counts: str = "",
    time: str = "",
    own: str = "",
    of_step: bool = False,
) -> Table:
    """Return rows in the page's form."""
    # An empty column says nothing.
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return Table(
        columns=[columns[at] for at in kept],
        rows=[[_rounded(row[at]) for at in kept] for row in rows[:_MOST_ROWS]],
        more=max(len(rows) - _MOST_ROWS, 0),
        counts=counts,
        time=time,
        own=own,
        of_step=of_step,
    )


def _with_before(
    columns: Sequence[RowColumn],
    rows: Sequence[Cells],
    keys: Sequence[object],
    former: Sequence[Cells],
    former_keys: Sequence[object],
) -> list[Cells]:
    """Return the rows with the earlier cells of the same name; a name that is gone has a row without calls.

    Several kernels may have one key: numbers of generated kernels change. The first row then has the sum of those
    before.
    """
    compared = [at for at, column in enumerate(columns) if column.compared]
    nothing: list[float] = [0] * len(compared)
    sums: dict[object, list[float]] = {}
    example: dict[object, Cells] = {}
    for key, row in zip(former_keys, former, strict=True):
        example.setdefault(key, row)
        spent = sums.get(key, nothing)
        sums[key] = [total + (row[at] or 0) for total, at in zip(spent, compared, strict=True)]
    merged = [[*row, *sums.pop(key, nothing)] for key, row in zip(keys, rows, strict=True)]
    return merged + [[*_gone(columns, example[key]), *spent] for key, spent in sums.items()]


def _gone(columns: Sequence[RowColumn], row: Cells) -> Cells:
    """Return the row of a name that is gone: its texts, and zeros."""
    return [
        value if column.unit == "text" else 0 if column.compared else None
        for column, value in zip(columns, row, strict=True)
    ]


def _rounded(value: Any) -> Any:
    # Sums of nanoseconds need no more digits; of what is smaller, rates, some stay.
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
    return value

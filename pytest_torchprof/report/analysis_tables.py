"""A recording's tables as text, at most as wide as the terminal, and its kernels in HTML for a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_torchprof.analysis import tables
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.report.columns import COLUMNS, among
from pytest_torchprof.report.row_columns import terminal_columns
from pytest_torchprof.text import counted, more_text, printable
from pytest_torchprof.text.tables import cells, headed, marked_up, terminal_width
from pytest_torchprof.text.units import show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collective_rows import CollectiveRow
    from pytest_torchprof.analysis.kernel_rows import FamilyRow, KernelRow
    from pytest_torchprof.analysis.operator_rows import OpRow
    from pytest_torchprof.analysis.range_rows import RangeRow
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.text.tables import Column

Timed = TypeVar("Timed", "RangeRow", "OpRow")
Kernels = TypeVar("Kernels", "KernelRow", "FamilyRow", "CollectiveRow")

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
_NOTEBOOK_ROWS = 20
# Wider than a notebook's cell, a table scrolls within it.
_BOX = "max-width:100%;overflow-x:auto"
_NOUNS = {
    "kernel": "kernels",
    "family": "kernels",
    "op": "operators",
    "range": "user annotations",
    "module": "modules",
    "collective": "collectives",
}


def table(analysis: Analysis, *, by: str = "kernel", sort_by: str | None = None, top: int = 20) -> str:
    """Return one table over all steps, as wide as the terminal; UnknownLimit for an unknown way or column."""
    if by not in tables.WAYS:
        raise _none_of(tables.WAYS, "by", by)
    if sort_by is not None and sort_by not in _SORT_BY and sort_by not in _PER_CALL:
        raise _none_of((*_SORT_BY, *_PER_CALL), "sort_by", sort_by)
    if not isinstance(top, int) or top < 0:
        from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(WrongValue(ValueForm.WHOLE_NUMBER, least=0)).of_keyword("top", repr(top))
    return rows_of(analysis, analysis.steps, by=by, sort_by=sort_by, top=top, width=terminal_width())


def _none_of(known: tuple[str, ...], keyword: str, given: object) -> UnknownLimit:
    from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

    return UnknownLimit.because(NoneOfThese(known)).of_keyword(keyword, repr(given))


def in_notebook(analysis: Analysis) -> str:
    """Return the kernels over all steps in HTML, and before them why they are not to be believed where that is so."""
    rows = tables.rows_by("kernel", analysis, analysis.steps)
    shown, columns = _shown(analysis, analysis.steps, rows, by="kernel", sort_by=None, top=_NOTEBOOK_ROWS)
    left_out = len(rows) - len(shown)
    doubt = "" if analysis.why_not is None else f"<p><b>not measured:</b> {escape(analysis.why_not)}</p>"
    more = f"<p>{more_text(left_out)}: profile.table(top=...)</p>" if left_out else ""
    heading = f"<p>{escape(_heading('kernel', rows, analysis.steps))}</p>"
    drawn = f'<div style="white-space:nowrap">{marked_up(cells(columns, shown), "html")}</div>'
    return f'<div style="{_BOX}">{doubt}{heading}{drawn}{more}</div>'


def reason_in_notebook(text: str) -> str:
    """Return why there is no table in HTML."""
    return f'<div style="{_BOX}"><pre style="white-space:pre-wrap">{escape(text)}</pre></div>'


def rows_of(  # noqa: PLR0913 - the options of the command
    analysis: Analysis, steps: Sequence[StepProfile], *, by: str, sort_by: str | None, top: int, width: int
) -> str:
    """Return one table over these steps."""
    rows = tables.rows_by(by, analysis, steps)
    if not rows:
        missing = "; they are not recorded: record them with profile(with_stack=True), here with record=['modules']"
        none = f"no {_NOUNS[by]} {_over(steps)}{missing if by == 'module' else ''}"
        return "\n".join(wrapped(none, "", width=width))
    shown, columns = _shown(analysis, steps, rows, by=by, sort_by=sort_by, top=top)
    below = [printable(_details_below(row)) for row in shown] if by == "op" else ()
    heading = _heading(by, rows, steps)
    return headed(shown, columns, heading, more=len(rows) - len(shown), width=width, below=below)


def _shown(  # noqa: PLR0913 - the options of the command
    analysis: Analysis, steps: Sequence[StepProfile], rows: Sequence[Any], *, by: str, sort_by: str | None, top: int
) -> tuple[Sequence[Any], tuple[Column, ...]]:
    """Return the rows that a table shows, and its columns."""
    shown = (_sort_rows if by in ("op", "range", "module") else _sort_kernels)(rows, sort_by)[:top]
    sorted_by = _column_of(sort_by) if sort_by else None
    beside = among(by, analysis, steps, rows, shown, sorted_by=sorted_by)
    return shown, terminal_columns(COLUMNS[by], shown, beside)


def _heading(by: str, rows: Sequence[Any], steps: Sequence[StepProfile]) -> str:
    if by not in ("kernel", "family"):
        return f"{_NOUNS[by]} {_over(steps)}"
    total = show_us(sum(row.time_us for row in rows))
    what = counted(len(rows), "kernel name") if by == "kernel" else "families"
    return f"{what} {_over(steps)}, shares of {total} of kernel time"


def _over(steps: Sequence[StepProfile]) -> str:
    if len(steps) > 1:
        return f"over {len(steps)} steps"
    return "in the recording" if steps[0].name is None else "in the step"


def _sort_kernels(rows: Sequence[Kernels], sort_by: str | None) -> Sequence[Kernels]:
    """Return the rows by their count or by the mean of a call, the largest first; else as they are, by their time."""
    if _SORT_BY.get(sort_by or "") == "calls":
        return sorted(rows, key=lambda row: -row.times.count)
    return sorted(rows, key=lambda row: -row.times.mean_us) if _PER_CALL.get(sort_by or "") == "gpu_us" else rows


def _sort_rows(rows: Sequence[Timed], sort_by: str | None) -> Sequence[Timed]:
    """Return the rows by a column, the largest first; UnknownLimit for a column that they do not have."""
    if sort_by is None:
        return rows
    column = _column_of(sort_by)
    if rows and not hasattr(rows[0], column):
        from pytest_torchprof.reasons.wrong_values import ColumnOfOperators  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(ColumnOfOperators(sort_by))
    per_call = sort_by in _PER_CALL

    def value(row: Timed) -> float:
        value: float = getattr(row, column) or 0
        return value / row.calls if per_call else value

    return sorted(rows, key=value, reverse=True)


def _column_of(sort_by: str) -> str:
    return _PER_CALL.get(sort_by) or {"time_us": "gpu_us"}.get(sort_by) or _SORT_BY[sort_by]


def _details_below(row: OpRow) -> str:
    """Return the details that a row has no room for: whose backward it is, and the operands' shapes."""
    shapes = [*(row.shapes or ())]
    while shapes and not shapes[-1]:
        shapes.pop()
    facts = [f"backward of {row.forward_op}"] if row.forward_op else []
    facts += [", ".join(map(str, shapes))] if shapes else []
    return f"    {'; '.join(facts)}" if facts else ""

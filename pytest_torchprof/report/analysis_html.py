"""A recording's kernels as a table of HTML, for the cells of a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pytest_torchprof.report.analysis_tables import kernel_cells
from pytest_torchprof.text import and_more

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.tables import Column

_ROWS = 20
# The notebook's own colours, light or dark; a table that is wider than its cell scrolls within it.
_BOX = "max-width:100%;overflow-x:auto"
_CELL = "padding:2px 8px;white-space:nowrap;vertical-align:top"


def table(analysis: Analysis) -> str:
    """Return the kernels over all steps, and in front of them why they are not to be believed where that is so."""
    heading, columns, left = kernel_cells(analysis, _ROWS)
    doubt = [] if analysis.why_not is None else [f"<p><b>not measured:</b> {escape(analysis.why_not)}</p>"]
    rows = zip(*(_column(column, texts) for column, texts in columns.items()), strict=True)
    more = [f"<p>{and_more(left)}: profile.table(top=...)</p>"] if left > 0 else []
    return "".join(
        [
            f'<div style="{_BOX}">',
            *doubt,
            f'<table><caption style="text-align:left">{escape(heading)}</caption>',
            *(f"<tr>{''.join(row)}</tr>" for row in rows),
            "</table>",
            *more,
            "</div>",
        ]
    )


def reason(text: str) -> str:
    """Return why there is no table."""
    return f'<div style="{_BOX}"><pre style="white-space:pre-wrap">{escape(text)}</pre></div>'


def _column(column: Column, texts: list[str]) -> list[str]:
    style = f"{_CELL};text-align:{column.align}"
    title = escape(column.title).replace("\n", "<br>")
    return [f'<th style="{style}">{title}</th>', *(f'<td style="{style}">{escape(text)}</td>' for text in texts)]

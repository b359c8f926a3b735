"""The run's results as Markdown, for a job summary or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.report.results import FAILED, NOT_MEASURED
from pytest_torchprof.report.table import HEADERS, KERNEL_HEADERS, kernel_rows, row, where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.report.results import RunResults


def render(run: RunResults) -> str:
    """Return what failed first, with its kernels, then one row per measurement."""
    lines = [f"## torchprof: {_escaped(where(run.environment))}", ""]
    for result in run.results:
        if result.outcome in (FAILED, NOT_MEASURED):
            lines += [f"### {_escaped(result.name)}: {result.outcome}", "", _fenced(result.message), ""]
            if result.kernels:
                lines += [*_table(KERNEL_HEADERS, kernel_rows(result)), ""]
    return "\n".join([*lines, *_table(HEADERS, [row(result) for result in run.results]), ""])


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = tuple(headers)
    cells = [head, ("---",) * len(head), *(tuple(_escaped(cell) for cell in line) for line in rows)]
    return ["| " + " | ".join(line) + " |" for line in cells]


def _escaped(text: str) -> str:
    """Names out of traces and test ids are data, never markup."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]()<>#+!|~&@" else " " if char.isspace() else char for char in text)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"

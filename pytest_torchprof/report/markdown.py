"""The run's results as Markdown, for a job summary or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.report.terminal import KERNEL_COLUMNS, result_columns, title
from pytest_torchprof.text import cells, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults
    from pytest_torchprof.text import Cells


def render(run: RunResults) -> str:
    """Return what failed first, with its kernels, then one row per measurement."""
    lines = [f"## {escaped(title(run))}", ""]
    for result in run.results:
        if result.outcome.is_failure:
            lines += [f"### {escaped(result.name)}: {result.outcome}", "", fenced(result.message), ""]
            if result.kernels:
                lines += [*_table_lines(cells(KERNEL_COLUMNS, result.kernels)), ""]
    return "\n".join([*lines, *_table_lines(cells(result_columns(run), run.results)), "", *unused_entries(run)])


def unused_entries(run: RunResults) -> Iterator[str]:
    """Yield a paragraph for each baseline file with entries that nothing measures any more, and for what is gone."""
    if run.gone_words:
        yield from (escaped(run.gone_words), "")
    for unused in run.unused:
        remedy = f" (`{unused.remedy}`)" if unused.remedy else ""
        yield from (f"{escaped(unused.file)}: {escaped(unused.words)}{remedy}", "")


def _table_lines(table: Cells) -> list[str]:
    head, *rows = ([escaped(cell) for cell in line] for line in zip(*table.values(), strict=True))
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows)]


def escaped(text: str) -> str:
    """Return text with nothing left of markup: names out of traces and test ids are data."""
    line = printable("".join(" " if char.isspace() else char for char in text))
    return "".join(f"\\{char}" if char in "\\`*_{}[]()<>#+!|~&@" else char for char in line)


def fenced(text: str) -> str:
    """Return text as it is, but for what is not printable, in a fence that it cannot end."""
    text = "\n".join(map(printable, text.split("\n")))
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


FORMATS = {".md": render}

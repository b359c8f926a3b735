"""The run's results as Markdown, for a job summary or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.report.terminal import kernel_columns, result_columns, title
from pytest_torchprof.text import printable
from pytest_torchprof.text.tables import cells, marked_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults


def render(run: RunResults) -> str:
    """Return the failures with their kernels, then one row per measurement."""
    lines = [f"## {escaped(title(run))}", ""]
    for result in run.results:
        if result.outcome.is_failure:
            lines += [f"### {escaped(result.name)}: {result.outcome}", "", fenced(result.message), ""]
            if result.kernels:
                lines += [marked_up(cells(kernel_columns(result), result.kernels), "pipe", escaped), ""]
    if run.results:
        lines += [marked_up(cells(result_columns(run), run.results), "pipe", escaped), ""]
    return "\n".join([*lines, *unused_entries(run)])


def unused_entries(run: RunResults) -> Iterator[str]:
    """Yield a paragraph for each baseline file with entries that nothing measures, and for lost measurements."""
    if run.gone_words:
        yield from (escaped(run.gone_words), "")
    for unused in run.unused:
        remedy = f" (`{unused.remedy}`)" if unused.remedy else ""
        yield from (f"{escaped(unused.file)}: {escaped(unused.words)}{remedy}", "")


def escaped(text: str) -> str:
    """Return text without any markup: names from traces and test ids are data."""
    line = printable("".join(" " if char.isspace() else char for char in text))
    return "".join(f"\\{char}" if char in "\\`*_{}[]()<>#+!|~&@" else char for char in line)


def fenced(text: str) -> str:
    """Return text, unchanged but for unprintable characters, in a fence that it cannot end."""
    text = "\n".join(map(printable, text.split("\n")))
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


FORMATS = {".md": render}

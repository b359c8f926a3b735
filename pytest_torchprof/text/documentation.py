"""The documentation that the package contains, as articles for ``torchprof explain`` and pytest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PAGES = ("limits", "findings")
"""The pages in the order in which they are searched. A wheel contains them (pyproject.toml)."""
_HEADING = re.compile(r"#+ ([a-z][a-z0-9-]*)( [†‡])?")
_ROW = re.compile(r"\| `(\w+)` (\|.*)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Article(NamedTuple):
    """The part of a page about one word."""

    word: str
    page: str
    lines: tuple[str, ...]
    """The text, in Markdown."""


def marker_help() -> str:
    """Return a line for each keyword of the marker: an example, and its meaning."""
    meanings = {}
    for article in articles():
        if article.page == "limits":
            titles, _, row = ([cell.strip() for cell in plain(line)[1:-1].split(" | ")] for line in article.lines[:3])
            cells = dict(zip(titles, row, strict=True))
            meanings[cells["example"].strip("`")] = cells.get("it limits") or cells["it says"]
    width = max(map(len, meanings))
    return "\n".join(f"    {example:{width}}  {meaning}" for example, meaning in meanings.items())


def folder() -> Path:
    """Return the folder of the pages: inside an installed package, and beside the package in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def articles() -> Iterator[Article]:
    """Yield the article of each word."""
    for page in PAGES:
        text = (folder() / f"{page}.md").read_text(encoding="utf-8")
        _, *sections = re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
        for section in sections:
            title, *lines = section.rstrip().split("\n")
            if heading := _HEADING.fullmatch(title):
                yield Article(heading[1], page, tuple(lines))
            elif page == "limits":
                yield from _rows(page, lines)


def _rows(page: str, lines: list[str]) -> Iterator[Article]:
    """Yield an article for each row of a section's table, with the rest of the section."""
    table = [line for line in lines if line.startswith("|")]
    prose = [line for line in lines if not line.startswith("|")]
    for row in table:
        if match := _ROW.fullmatch(row):
            yield Article(match[1], page, (*table[:2], f"| {match[2]}", *prose))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the lines of a table in Markdown; each row has a cell for each title."""
    heading, *lines = (f"| {' | '.join(cells)} |" for cells in (titles, *rows))
    return (heading, f"|{'---|' * len(titles)}", *lines)


def plain(text: str) -> str:
    """Return a text with its links reduced to their words."""
    return _LINK.sub(r"\1", text)

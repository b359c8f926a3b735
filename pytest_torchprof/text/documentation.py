"""The pages of the documentation that the package brings, as articles: what ``torchprof explain`` and pytest print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ("limits", "findings", "messages")
"""In the order in which they are looked through. A wheel brings them (pyproject.toml)."""
_HEADING = re.compile(r"#+ ([a-z][a-z0-9-]*)( [†‡])?")
_CHAPTER = re.compile(r"^## ([a-z][a-z0-9-]*)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"\| `(\w+)` (\|.*)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Article(NamedTuple):
    """What a page says of one word."""

    word: str
    page: str
    lines: tuple[str, ...]
    """In Markdown."""


def marker_help() -> str:
    """Return a line for each keyword of the marker: an example of it, and what it says."""
    meanings = {}
    for article in articles():
        if article.page == "limits":
            titles, _, row = ([cell.strip() for cell in plain(line)[1:-1].split(" | ")] for line in article.lines[:3])
            cells = dict(zip(titles, row, strict=True))
            meanings[cells["example"].strip("`")] = cells.get("it limits") or cells["it says"]
    width = max(map(len, meanings))
    return "\n".join(f"    {example:{width}}  {meaning}" for example, meaning in meanings.items())


def folder() -> Path:
    """Return where the pages are: an installed package holds them, in a checkout they lie beside it."""
    package = Path(__file__).parents[1]
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def articles() -> Iterator[Article]:
    """Yield what the pages say of each word."""
    for page in PAGES:
        text = (folder() / f"{page}.md").read_text(encoding="utf-8")
        _, *sections = re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
        parts = {heading[1]: _parts(heading[2]) for heading in _CHAPTER.finditer(text)}
        for section in sections:
            title, *lines = section.rstrip().split("\n")
            if heading := _HEADING.fullmatch(title):
                yield Article(heading[1], page, (*lines, *parts.get(heading[1], ())))
            elif page == "limits":
                yield from _rows(page, lines)


def _parts(chapter: str) -> tuple[str, ...]:
    """Return a paragraph with the words that the sections of a chapter explain; nothing where it has none."""
    words = [heading[1] for heading in map(_HEADING.fullmatch, chapter.splitlines()) if heading]
    return ("", f"torchprof explain: {', '.join(words)}") if words else ()


def _rows(page: str, lines: list[str]) -> Iterator[Article]:
    """Yield an article for each row of a section's table, with what else the section says."""
    table = [line for line in lines if line.startswith("|")]
    prose = [line for line in lines if not line.startswith("|")]
    for row in table:
        if match := _ROW.fullmatch(row):
            yield Article(match[1], page, (*table[:2], f"| {match[2]}", *prose))


def plain(text: str) -> str:
    """Return a text without the addresses of its links."""
    return _LINK.sub(r"\1", text)

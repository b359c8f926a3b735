"""``torchprof explain WORD``: what the documentation says of a limit, a finding or a message."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.text import WIDTH, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

USAGE = """usage: torchprof explain [WORD]

Prints what the documentation says of a limit (max_kernels) or another keyword of the marker, of a finding
(launch-gaps) or of a message (not-measured). Without a word it lists all that it knows.

exit status: 0, or 2 if the word is not known
"""
PAGES = ("limits", "findings", "messages")
"""In the order in which they are looked through. A wheel brings them (pyproject.toml)."""
_HEADING = re.compile(r"#+ ([a-z][a-z0-9-]*)( [†‡])?")
_ROW = re.compile(r"\| `(\w+)` (\|.*)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Article(NamedTuple):
    """What a page says of one word."""

    word: str
    page: str
    lines: tuple[str, ...]
    """In Markdown."""


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    asked = "-".join(parse(words).files)
    known = {article.word: article for article in _articles()}
    if not asked:
        for page, articles in groupby(known.values(), key=lambda article: article.page):
            names = ", ".join(article.word for article in articles)
            sys.stdout.write("\n".join([f"{page}:", *_wrapped(names, "  "), ""]))
        return 0
    if asked not in known:
        raise UsageError(f"nothing is known of {asked!r}; {nearest(asked, known)}")
    sys.stdout.write("\n".join([asked, *_shown(known[asked].lines), ""]))
    return 0


def marker_help() -> str:
    """Return a line for each keyword of the marker: an example of it, and what it says."""
    told = {}
    for article in _articles():
        if article.page == "limits":
            titles, _, row = ([cell.strip() for cell in _plain(line)[1:-1].split(" | ")] for line in article.lines[:3])
            cells = dict(zip(titles, row, strict=True))
            told[cells["example"].strip("`")] = cells.get("it limits") or cells["it says"]
    width = max(map(len, told))
    return "\n".join(f"    {example:{width}}  {meaning}" for example, meaning in told.items())


def folder() -> Path:
    """Return where the pages are: an installed package holds them, in a checkout they lie beside it."""
    package = Path(__file__).parents[1]
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def _articles() -> Iterator[Article]:
    for page in PAGES:
        text = (folder() / f"{page}.md").read_text(encoding="utf-8")
        _, *sections = re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
        for section in sections:
            title, *lines = section.rstrip().split("\n")
            if found := _HEADING.fullmatch(title):
                yield Article(found[1], page, tuple(lines))
            elif page == "limits":
                yield from _rows(page, lines)


def _rows(page: str, lines: list[str]) -> Iterator[Article]:
    """Yield an article for each row of a section's table, with what else the section says."""
    table = [line for line in lines if line.startswith("|")]
    prose = [line for line in lines if not line.startswith("|")]
    for row in table:
        if found := _ROW.fullmatch(row):
            yield Article(found[1], page, (*table[:2], f"| {found[2]}", *prose))


def _shown(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield what a terminal shows of a page's lines: paragraphs that fit it, and a table row by row."""
    for is_table, found in groupby(lines, key=lambda line: line.startswith("|")):
        part = list(found)
        yield from _rows_below_one_another(part) if is_table else _paragraphs(part)


def _paragraphs(lines: list[str]) -> Iterator[str]:
    for is_blank, paragraph in groupby(lines, key=lambda line: not line):
        if not is_blank:
            yield ""
            yield from _wrapped(" ".join(paragraph), "  ")


def _rows_below_one_another(table: list[str]) -> Iterator[str]:
    titles, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table)
    for first, *others in rows:
        yield ""
        yield from _wrapped(first, "  ")
        for title, cell in zip(titles[1:], others, strict=True):
            yield from _wrapped(f"{title}: {cell}", "      ")


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, WIDTH)
    fill = textwrap.TextWrapper(
        width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return fill.wrap(_plain(text))


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text)

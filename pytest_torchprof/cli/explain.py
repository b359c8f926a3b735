"""``torchprof explain WORD``: what the documentation says of a limit, a finding or a message."""

from __future__ import annotations

import shutil
import sys
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UsageError
from pytest_torchprof.text import WIDTH, nearest
from pytest_torchprof.text.documentation import articles, plain

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pytest_torchprof.cli import Parser

_DESCRIPTION: Final = """\
Prints what the documentation says of a limit (max_kernels) or another keyword of the marker, of a finding
(launch-gaps), of a message (not-measured) or of an error by its code (recording-cut-off)."""
_EPILOG: Final = """\
example:
  torchprof explain max_kernels

exit status: 0, or 2 if the word is not known"""


def add_arguments(parser: Parser) -> None:
    """Declare what the command takes."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("word", nargs="*", metavar="WORD", help="without one, all that the command knows is listed")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    asked = "-".join(arguments.word).strip("[]")  # A code stands in brackets where it is printed.
    known = {article.word: article for article in articles()}
    if not asked:
        for page, on_page in groupby(known.values(), key=lambda article: article.page):
            names = ", ".join(article.word for article in on_page)
            sys.stdout.write("\n".join([f"{page}:", *_wrapped(names, "  "), ""]))
        return 0
    if asked not in known:
        raise UsageError(f"nothing is known of {asked!r}; {nearest(asked, known)}")
    sys.stdout.write("\n".join([asked, *_shown(known[asked].lines), ""]))
    return 0


def _shown(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield what a terminal shows of a page's lines: paragraphs that fit it, and a table row by row."""
    for is_table, same in groupby(lines, key=lambda line: line.startswith("|")):
        part = list(same)
        yield from _stacked_rows(part) if is_table else _paragraphs(part)


def _paragraphs(lines: list[str]) -> Iterator[str]:
    for is_blank, paragraph in groupby(lines, key=lambda line: not line):
        if not is_blank:
            yield ""
            yield from _wrapped(" ".join(paragraph), "  ")


def _stacked_rows(table: list[str]) -> Iterator[str]:
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
    return fill.wrap(plain(text))

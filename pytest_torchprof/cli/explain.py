"""``torchprof explain WORD``: what the documentation says about a limit, a finding, a message or a change."""

from __future__ import annotations

import shutil
import sys
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import unknown
from pytest_torchprof.compare.articles import articles as of_changes
from pytest_torchprof.reasons.articles import articles as of_messages
from pytest_torchprof.reasons.command_line import WordOf
from pytest_torchprof.text.documentation import articles, plain
from pytest_torchprof.text.lines import in_lines
from pytest_torchprof.text.wrapping import WIDTH

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pytest_torchprof.cli import Parser

_DESCRIPTION: Final = """\
Prints what the documentation says of a limit (max_kernels) or another keyword of the marker, of a finding
(launch-gaps), of a message (not-measured), of an error by its code (recording-cut-off), or of a change by its
kind (renamed)."""
_EPILOG: Final = """\
example:
  torchprof explain max_kernels

exit status: 0, or 2 if the word is not known"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("word", nargs="*", metavar="WORD", help="without one, all that the command knows is listed")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    known = {article.word: article for article in chain(articles(), of_messages(), of_changes())}
    if not arguments.word:
        on_page: dict[str, list[str]] = {}
        for article in known.values():
            on_page.setdefault(article.page, []).append(article.word)
        for page, words in on_page.items():
            sys.stdout.write("\n".join([f"{page}:", *_wrapped(", ".join(words), "  "), ""]))
        return 0
    asked = [word.strip("[]") for word in arguments.word]  # A code is printed in brackets.
    # A code is often read as words, "lost kernels"; what is known word by word is several.
    asked = ["-".join(asked)] if "-".join(asked) in known or not known.keys() & asked else asked
    for word in asked:
        if word not in known:
            raise unknown(WordOf.EXPLANATION, word, known)
    sys.stdout.write("\n".join("\n".join([word, *_shown(known[word].lines), ""]) for word in asked))
    return 0


def _shown(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield a page's lines for a terminal: paragraphs wrapped to its width, and tables row by row."""
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
        yield from (line for text in first.split("<br>") for line in _wrapped(text, "  "))
        for title, cell in zip(titles[1:], others, strict=True):
            yield from _wrapped(f"{title}: {cell}", "      ") if cell else ()


def _wrapped(text: str, indent: str) -> list[str]:
    return in_lines(plain(text), min(shutil.get_terminal_size().columns, WIDTH), indent, indent, breaks_words=False)

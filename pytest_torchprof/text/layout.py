"""Lines and tables of at most 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 100
_LEFT = {"step", "kernel", "family", "library", "name", "launched by"}


def drawn(rows: Sequence[tuple[Any, ...]], headers: tuple[str, ...], title: str, more: int) -> str:
    """Return a table under its title, the first column cut to the room that the others leave; ``more`` are left out."""
    taken = sum(_width(column) + 2 for column in list(zip(headers, *rows, strict=True))[1:])
    rows = [(cut(row[0], WIDTH - taken), *row[1:]) for row in rows]
    align = tuple("left" if header in _LEFT else "right" for header in headers)
    table = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, colalign=align)
    return f"{title}\n{table}" + (f"\n... and {more} more (--top {more + len(rows)})" if more > 0 else "")


def _width(column: tuple[Any, ...]) -> int:
    """Return a column's width; tabulate leaves two spaces beside a header."""
    header, *cells = column
    return max(max(map(len, header.split("\n"))) + 2, *(len(str(cell)) for cell in cells), 0)


def wrapped(words: str, indent: str, *, first: str = "") -> list[str]:
    """Return the words as lines."""
    return textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=indent)


def cut(words: str, width: int) -> str:
    """Return the words, cut where they are longer."""
    return words if len(words) <= width else words[: width - 3] + "..."


def share(value: float) -> str:
    """Return a share as percent."""
    return f"{100 * value:.1f}%"

"""Tables as text: the choice of columns that fit a width, and their drawing by tabulate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_torchprof.text import and_more
from pytest_torchprof.text.cutting import cut, cut_inside, width_of
from pytest_torchprof.text.wrapping import WIDTH, broken, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_WIDEST, _NARROWEST = 132, 40
_FIRST, _NARROW = 24, 12
"""The width to which a table's first column shrinks before other columns leave, and the width if they cannot leave."""
_BETWEEN = 2
"""Blanks between two columns."""


def terminal_width() -> int:
    """Return the screen's columns: COLUMNS, or the terminal's; if neither is known, as many as tables take."""
    import shutil  # noqa: PLC0415 - slow to import, and JSON has no width

    return max(shutil.get_terminal_size(fallback=(_WIDEST, 24)).columns, _NARROWEST)


def screen_columns() -> int | None:
    """Return the screen's columns: COLUMNS, or the terminal's; None if neither is known, as in a file."""
    import shutil  # noqa: PLC0415 - as above

    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


def on_screen(text: str) -> str:
    """Return prose as the screen shows it: its lines are broken where it ends, and stay whole in a file."""
    return broken(text, screen_columns())


class Column(NamedTuple):
    """A column of a table."""

    title: str
    """The title, of one line or more."""
    show: Callable[[Any], str]
    """Returns the text of a row's cell, in one line."""
    align: Literal["left", "right"] = "right"
    leaves: int = 0
    """The order in which columns leave a narrow terminal, 1 first; 0: never."""


Cells = dict[Column, list[str]]
"""The texts of a table by column, one for each row."""


def cells(columns: Iterable[Column], rows: Sequence[Any]) -> Cells:
    """Return the texts of a table."""
    return {column: [column.show(row) for row in rows] for column in columns}


def fitted(table: Cells, width: int, least: int) -> tuple[Cells, int]:
    """Return the columns that fit into ``width``, and the width that they leave for the first one.

    The first column shrinks to ``least`` before another one leaves. Empty columns leave first, the others in the order
    of `Column.leaves`; if a wide column has left, narrow columns may come back.
    """
    first, *others = table
    wanted = min(least, _width_of(first, table[first]))
    needed = {column: _BETWEEN + _width_of(column, table[column]) for column in others}
    room = width - sum(needed.values())
    may_leave = [column for column in others if column.leaves]
    gone: list[Column] = []
    for column in sorted(may_leave, key=lambda column: (set(table[column]) != {"-"}, column.leaves)):
        if room >= wanted:
            break
        gone.append(column)
        room += needed[column]
    for column in reversed(gone):
        if room - needed[column] >= wanted:
            gone.remove(column)
            room -= needed[column]
    return {column: shown for column, shown in table.items() if column not in gone}, room


def _width_of(column: Column, texts: Sequence[str]) -> int:
    return max(map(width_of, [*column.title.split("\n"), *texts]))


def ruled(table: Cells) -> list[str]:
    """Return the lines of a table, its titles above a rule."""
    from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat  # noqa: PLC0415 - only where a table is drawn

    # tabulate makes a column wider than its heading.
    titles = [column.title.split("\n") for column in table]
    high = max(map(len, titles))
    headings = zip(*([""] * (high - len(title)) + title for title in titles), strict=True)
    row, rule = DataRow("", " " * _BETWEEN, ""), Line("", "-", " " * _BETWEEN, "")
    layout = TableFormat(
        lineabove=None,
        linebelowheader=rule,
        linebetweenrows=None,
        linebelow=None,
        headerrow=row,
        datarow=row,
        padding=0,
        with_header_hide=None,
    )
    rows = [*headings, SEPARATING_LINE, *zip(*table.values(), strict=True)]
    return _drawn(rows, [column.align for column in table], layout)


def lined_up(rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> list[str]:
    """Return a line for each row, without titles; ``aligns`` has ``"left"`` or ``"right"`` for each column."""
    return _drawn(rows, aligns, "plain") if rows else []


def marked_up(table: Cells, layout: Literal["pipe", "html"], escaped: Callable[[str], str] = str) -> str:
    """Return a table in Markdown, whose texts ``escaped`` makes harmless, or in HTML, for which tabulate does so."""
    from tabulate import tabulate  # noqa: PLC0415 - only where a table is drawn

    rows = [[escaped(cell) for cell in row] for row in zip(*table.values(), strict=True)]
    # Names are not padded to the longest: one of 5,000 characters would make all rows as long.
    aligns = [None if column.align == "left" else "right" for column in table]
    return tabulate(
        rows,
        headers=[escaped(column.title) for column in table],
        tablefmt=layout,
        disable_numparse=True,
        colalign=aligns if rows else (),
    )


def _drawn(rows: Sequence[Sequence[str]], aligns: Sequence[str], layout: Any) -> list[str]:
    from tabulate import tabulate  # noqa: PLC0415 - only where a table is drawn

    # A name that looks like a number stays text.
    return tabulate(rows, tablefmt=layout, disable_numparse=True, colalign=aligns).split("\n")


def headed(  # noqa: PLR0913 - all of it is about the table
    rows: Sequence[Any],
    columns: Sequence[Column],
    heading: str,
    *,
    more: int = 0,
    width: int = WIDTH,
    below: Sequence[str] = (),
) -> str:
    """Return a table under its heading.

    ``more`` is the number of rows left out; columns that the width has no room for are left out too. ``below`` has a
    further line for each row, or "".
    """
    table = _narrowed(cells(columns, rows), width)
    lines = ruled(table)
    head = len(lines) - len(rows)
    for number in range(len(below), 0, -1):
        lines[head + number : head + number] = [cut(below[number - 1], width)] if below[number - 1] else []
    gone = [" ".join(column.title.split()) for column in columns if column not in table]
    lines += [f"...{and_more(more)} (--top {more + len(rows)})"] if more > 0 else []
    lines += wrapped(f"no room in {width} columns for: {', '.join(gone)}", "  ", width=width) if gone else []
    return "\n".join([*wrapped(heading, "  ", width=width), *lines])


def table_lines(rows: Sequence[Any], columns: Sequence[Column], width: int) -> list[str]:
    """Return the lines of a table without a heading, without the columns that the width has no room for."""
    return ruled(_narrowed(cells(columns, rows), width))


def _narrowed(table: Cells, width: int) -> Cells:
    """Return a table that fits: some columns leave, and the cells of the first one lose their middle."""
    table, room = fitted(table, width, _FIRST)
    first = next(iter(table))
    return table | {first: [cut_inside(cell, max(room, _NARROW)) for cell in table[first]]}

"""Rows of work as a failure shows them: columns side by side, with places behind or below."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.screen import INDENT
from pytest_torchprof.text import and_more, first_of, more_text, path_from_here, reason_line
from pytest_torchprof.text.cutting import cut, cut_apart, width_of, with_ends_of_words
from pytest_torchprof.text.tables import lined_up
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.limits.screen import Caps, Screen

MOST_WITH_PLACES = 18
"""Up to this many lines of work have their places below each; with more, all kernels are named before any place."""
MOST_PLACES = 3
"""The most places of one row on a screen of limited size."""
LONGEST_OPS = 28
_LEAST_OPS = 20
_LEAST_NAME, _LEAST_BESIDE_OPS = 16, 24
_MOST_OPS = 3
_BELOW = " " * (INDENT + 7)
"""In front of what stands below a row, after its count."""


class Row(Struct, frozen=True, kw_only=True):
    """A row of work as it is shown on a screen."""

    name: str
    """Its name as far as the line has room for it."""
    line: str
    whole: tuple[str, ...] = ()
    """The lines below it with its whole names, where all is asked for."""
    has_places_below: bool = False
    """Whether where its work comes from has no room on the same line."""


class BelowLimit(Struct, frozen=True, kw_only=True):
    """What stands below a limit."""

    blocks: list[tuple[bool, list[str]]]
    """The lines of each row and note, and whether they belong to a row."""
    places: list[list[str]] = []
    """Where the first listed rows come from that have no room for it beside them or below each."""
    with_places: int = 0
    """How many listed rows have no room for where they come from."""


def _drawn(rows: Sequence[WorkRow], screen: Screen) -> dict[WorkRow, Row]:
    """Return the rows in aligned columns, each with its place on the same line if all of them fit."""
    columns = [
        [show_us(row.time_us) if row.time_us is not None else "" for row in rows],
        [row.note for row in rows],
        [_ops(row) for row in rows],
    ]
    used = [texts for texts in columns if any(texts)]

    def room_beside() -> int:
        # The indent, "9999 x " and the blanks before each column take room too.
        return screen.width - INDENT - len("9999 x ") - sum(2 + max(map(width_of, texts)) for texts in used)

    # What a name says matters more than who launched it.
    longest = max((width_of(row.name) for row in rows if row.name != row.full), default=0)
    room_for_ops = min(max(map(width_of, columns[-1]), default=0) + room_beside() - longest, LONGEST_OPS)
    columns[-1][:] = [cut(ops, max(room_for_ops, _LEAST_OPS)) for ops in columns[-1]]
    # Where all is asked for there is room for the operators below.
    least = max(longest if screen.everything else min(longest, _LEAST_BESIDE_OPS), _LEAST_NAME)
    if room_beside() < least and columns[-1] in used and len(used) > 1:
        used.remove(columns[-1])
    # What is said of it leaves before the time, and both before a name that nobody can read.
    for texts in (columns[1], columns[0]):
        if room_beside() < _LEAST_NAME and any(texts) and texts in used:
            used.remove(texts)
    room = room_beside()
    names = cut_apart([row.name for row in rows], max(room, _LEAST_NAME))
    aligns = ["left", *("left" if texts is columns[-1] else "right" for texts in used)]
    counts = [f"{' ' * INDENT}{row.count:>4} x " for row in rows]
    lines = map(add, counts, lined_up(list(zip(names, *used, strict=True)), aligns))
    operators = columns[-1] if columns[-1] in used else [""] * len(rows)
    left_out = [
        "  ".join(filter(None, row))
        for row in zip(*(columns[at] for at in (0, 1) if columns[at] not in used), strict=True)
    ]
    facts = left_out or [""] * len(rows)
    wholes = [
        _whole(row, name, ops, fact, screen) for row, name, ops, fact in zip(rows, names, operators, facts, strict=True)
    ]
    beside = [row.places[0][1] if row.places else "" for row in rows]
    if all(len(row.places) <= 1 for row in rows):
        longer = [*map(add, counts, lined_up(list(zip(names, *used, beside, strict=True)), [*aligns, "left"]))]
        if max(map(width_of, longer), default=0) <= screen.width:
            return {
                row: Row(name=name, line=line, whole=whole)
                for row, name, line, whole in zip(rows, names, longer, wholes, strict=True)
            }
    return {
        row: Row(name=name, line=line, whole=whole, has_places_below=bool(row.places))
        for row, name, line, whole in zip(rows, names, lines, wholes, strict=True)
    }


def _whole(row: WorkRow, name: str, ops: str, facts: str, screen: Screen) -> tuple[str, ...]:
    """Return lines with what the columns have no room for, if all is asked for; ``facts``: of its time and note."""
    if not screen.everything:
        return ()
    all_ops = ", ".join(row.launched_by(row.name))
    parts = [
        *((row.name,) if name != row.name != row.full else ()),
        *((row.full,) if row.full not in (name, ops) else ()),
        *((all_ops,) if ops != all_ops else ()),
        *((facts,) if facts else ()),
    ]
    return tuple(line for part in parts for line in screen.broken(f"{_BELOW}{part}"))


def _places_below(row: WorkRow, caps: Caps, screen: Screen) -> list[str]:
    everything = screen.everything or len(row.places) == MOST_PLACES + 1
    most = len(row.places) if everything else MOST_PLACES
    several = len(row.places) > 1
    places = [_fitting(f"{count} x {place}" if several else place, screen) for count, place in row.places]
    left = [more_text(len(places) - most, "place")]
    lines = [part for line in [*places[:most], *filter(None, left)] for part in screen.broken(f"{_BELOW}{line}")]
    if caps.rows is None or len(lines) < caps.rows:
        return lines
    return screen.broken_places(f"{_BELOW}{first_of(places, 1, 'place')}", max(caps.rows - 1, 1))


def _fitting(place: str, screen: Screen) -> str:
    """Return a place whose modules fit the screen."""
    if screen.columns is None or screen.everything:
        return place
    return with_ends_of_words(place, screen.width - len(_BELOW) - len("  ,"))


def _ops(row: WorkRow) -> str:
    return ", ".join(row.launched_by(row.name)[:_MOST_OPS])


def detail_blocks(evidence: Sequence[AnyEvidence], caps: Caps, screen: Screen, shown: int | None = None) -> BelowLimit:
    """Return the lines below a limit; columns are as wide as the first ``shown`` rows need, by default all."""
    rows = [fact for fact in evidence if isinstance(fact, WorkRow)]
    # Names lose no room to rows that nobody sees.
    drawn = _drawn(rows[:shown], screen) | (_drawn(rows[shown:], screen) if shown is not None else {})
    below = {row for row in rows if drawn[row].has_places_below}
    apart = bool(below) and not screen.everything
    # Of so many rows no place has room below its own.
    if not apart or len(rows) <= MOST_WITH_PLACES:
        blocks = _blocks(evidence, drawn, below, caps, screen)
        if not apart or sum(len(lines) for _, lines in blocks) <= MOST_WITH_PLACES:
            return BelowLimit(blocks=blocks)
    blocks = [(is_row, lines[:1] if is_row else lines) for is_row, lines in _blocks(evidence, drawn, (), caps, screen)]
    # Places of rows that are not shown would mean nothing.
    with_places = [row for row in rows[:shown] if row in below]
    places = [
        screen.broken_places(_places_of(row, _name_of(row, drawn[row], screen), caps, screen), caps.places)
        for row in with_places[: caps.places]
    ]
    return BelowLimit(blocks=blocks, places=places, with_places=len(with_places))


def _blocks(
    evidence: Sequence[AnyEvidence],
    drawn: Mapping[WorkRow, Row],
    with_places: Container[WorkRow],
    caps: Caps,
    screen: Screen,
) -> list[tuple[bool, list[str]]]:
    """Return the lines of each row and note; those of ``with_places`` have their places below."""
    blocks: list[tuple[bool, list[str]]] = []
    for fact in evidence:
        if isinstance(fact, WorkRow):
            places = _places_below(fact, caps, screen) if fact in with_places else ()
            blocks.append((True, [drawn[fact].line, *drawn[fact].whole, *places]))
        else:
            blocks += [(False, screen.broken(f"{' ' * INDENT}{reason_line(line)}")) for line in fact.lines]
    return blocks


def _name_of(row: WorkRow, drawn: Row, screen: Screen) -> str:
    """Return the name of a row in front of its places; a compiler's own name only as far as its line has it."""
    is_short = row.name != row.full or width_of(row.name) < screen.width - INDENT
    return row.name if is_short or screen.columns is None else drawn.name


def _places_of(row: WorkRow, name: str, caps: Caps, screen: Screen) -> str:
    """Return one line on where the work of a row comes from; on a terminal there is room for one place."""
    places = [_fitting(f"{count} x {place}" if len(row.places) > 1 else place, screen) for count, place in row.places]
    most = MOST_PLACES if screen.columns is None else 1
    line = f"{' ' * INDENT}{name}: {first_of(places, most, between='; ')}"
    if row.line is None or not caps.places or len(screen.broken(line)) <= caps.places:
        return line
    # In so few lines there is room for the file, but not for the module.
    return f"{' ' * INDENT}{name}: {path_from_here(row.line[0])}:{row.line[1]}{and_more(len(places) - 1, 'place')}"

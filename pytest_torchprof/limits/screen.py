"""What fits on a screen: rows in columns, long lines wrapped, and how much is to be said at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.text import units
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.limits.verdict import Row

INDENT = 6
MOST_PLACES = 3
"""Of one row, where a screen is all there is."""
LONGEST_OPS = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How much there is to be said: columns, lines, and pytest's verbosity."""

    width: int = 100
    lines: int = 36
    """With pytest's own lines around the text, and the recordings' below, a screen of 40."""
    verbosity: int = 0

    @property
    def everything(self) -> bool:
        """Whether nothing is to be left out (``-vv``)."""
        return self.verbosity >= 2

    @property
    def one_line(self) -> bool:
        """Whether one line is enough (``-q``)."""
        return self.verbosity < 0


DEFAULT = Screen()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a block of rows; places stand behind where all of them fit there, else below."""

    screen: Screen
    name: int
    ops: int
    note: int
    beside: bool

    @classmethod
    def of(cls, rows: Sequence[Row], screen: Screen) -> Layout:
        """Return the layout in which these rows stand below one another."""
        ops = max([len(_ops(row, screen)) for row in rows], default=0)
        note = max([len(row.note) + 2 for row in rows if row.note], default=0)
        fixed = INDENT + len("   9 x ") + len("   99.9 us  ") + note + ops
        longest = max([len(_name(row, screen)) for row in rows], default=0)
        name = longest if screen.everything else min(longest, max(screen.width - fixed, 16))
        place = max([len(place) for row in rows for _, place in row.places], default=0)
        alone = all(len(row.places) <= 1 for row in rows)
        return cls(
            screen=screen, name=name, ops=ops, note=note, beside=alone and fixed + name + 2 + place <= screen.width
        )

    def lines(self, row: Row) -> list[str]:
        """Return a row: one line, and one more for each place that has no room beside it."""
        name = _name(row, self.screen)
        name = name if len(name) <= self.name else f"{name[: self.name - 3]}..."
        spent = units.show_us(row.time_us) if row.time_us is not None else ""
        note = f"{row.note:>{self.note}}" if self.note else ""
        said = (
            f"{' ' * INDENT}{row.count:>4} x {name:<{self.name}} {spent:>9}{note}  {_ops(row, self.screen):<{self.ops}}"
        )
        if self.beside:
            return [f"{said}  {row.places[0][1]}".rstrip() if row.places else said.rstrip()]
        return [said.rstrip(), *self._places(row)]

    def _places(self, row: Row) -> list[str]:
        everything = self.screen.everything or len(row.places) == MOST_PLACES + 1
        most = len(row.places) if everything else MOST_PLACES
        several = len(row.places) > 1
        indent = " " * (INDENT + 7)
        found = [f"{indent}{f'{count} x ' if several else ''}{place}" for count, place in row.places[:most]]
        left = len(row.places) - most
        return [*found, *([f"{indent}and from {counted(left, 'more place')}"] if left > 0 else [])]


def _name(row: Row, screen: Screen) -> str:
    return row.full if screen.everything else row.name


def _ops(row: Row, screen: Screen) -> str:
    found = row.launched_by(_name(row, screen))
    ops = ", ".join(found if screen.everything else found[:3])
    return ops if screen.everything or len(ops) <= LONGEST_OPS else f"{ops[: LONGEST_OPS - 3]}..."


def height(lines: Sequence[str], screen: Screen) -> int:
    """Return how many lines of the screen these take: it wraps what is too long, so that texts stay whole."""
    return sum(max(1, -(-len(line) // screen.width)) for line in lines)

"""The room for the text of a failure: its columns, and how many lines each of its sections has."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.text import more_text
from pytest_torchprof.text.cutting import with_middles_of_words, without_middle
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Sequence

INDENT: Final = 6
"""The column at which lines below a limit start."""
_NARROWEST, _WIDEST = 40, 100
"""The columns that rows of work are drawn for, at least and at most."""
_FOR_FILES: Final = 2
"""How many lines more places may take so that something is left beside their files."""


class Screen(Struct, frozen=True, kw_only=True):
    """The room for a text: columns, lines, or no bound."""

    width: int = 100
    columns: int | None = None
    """The column at which prose is wrapped; None if the width is not known, as in a file: lines stay whole."""
    lines: int = 36
    """Lines for failures other than limits; with pytest's own lines and the recordings', they fill a screen of 40."""
    everything: bool = False
    """Whether nothing may be left out (``-vv``)."""
    rest: str = "pytest -vv"
    """The command that shows what is left out; empty where none does."""
    top: int | None = None
    """How many rows each limit has; None: as many as there is room for."""
    scrolls: bool = False
    """Whether it has as much room below as a file, though lines end where the columns do."""

    @classmethod
    def of_columns(cls, columns: int | None, **more: Any) -> Self:
        """Return the room of a terminal of so many columns; None where they are not known."""
        return cls(width=min(max(columns or 80, _NARROWEST), _WIDEST), columns=columns or None, **more)

    def beside(self, taken: int) -> Self:
        """Return the room that is left where so many columns are taken."""
        if self.columns is None:
            return self
        width = min(max(self.width, _NARROWEST) - taken, _WIDEST)
        return replace(self, width=width, columns=max(self.columns - taken, taken))

    def of_width(self, columns: int) -> Screen:
        """Return the room where there are so many columns."""
        # Who judges outside of a measured test does not know of any terminal.
        return Screen.of_columns(columns) if self.columns is None else self.beside(self.columns - columns)

    def broken_places(self, line: str, most: int | None) -> list[str]:
        """Return places, broken where the columns end; without words in the middle where they take more than ``most``.

        A file with its line stays whole: many of them have as many lines as they need. A sentence without words in its
        middle may say the opposite, and is always whole.
        """
        lines = self.broken(line)
        if not most or self.columns is None or len(lines) <= most:
            return lines
        shown = line
        for room in range(most, most + _FOR_FILES + 1):
            # With less its beginning would not say what it is about.
            for width in range(room * self.columns, self.columns * 2 // 3, -8):
                # Whole words go, so that the next width often leaves the same ones.
                if (shorter := without_middle(line, width)) != shown:
                    shown, lines = shorter, self.broken(shorter)
                if len(lines) <= room:
                    return lines
        return lines

    def broken(self, line: str, *, hanging: int = 0) -> list[str]:
        """Return a sentence, broken where the columns end; a name that is wider than a line loses its middle."""
        if self.columns is not None and not self.everything:
            line = with_middles_of_words(line, self.columns - (hanging or INDENT + 2))
        return broken(line, self.columns, hanging=hanging).split("\n")

    def left_out(self, count: int, noun: str = "", *, indent: int, which: str = "") -> list[str]:
        """Return the line that says how many more there are and how to see them; no line if there are no more.

        ``which`` says what is among them.
        """
        command = f": {self.rest}" if self.rest else ""
        more = f"{more_text(count, noun)}{f' ({which})' if which else ''}"
        return self.broken(f"{' ' * indent}{more}{command}") if count > 0 else []

    def caps(self, limits: int, *, others: bool) -> Caps:
        """Return how many lines each section has where so many limits fail, and ``others`` beside them or without."""
        if self.everything:
            return _UNBOUNDED
        if self.columns is None or self.scrolls:
            caps = _IN_A_FILE[min(limits, len(_IN_A_FILE) - 1)]
        else:
            caps = _ON_A_TERMINAL[min(limits + others, len(_ON_A_TERMINAL)) - 1]
        if self.top is not None:
            caps = caps._replace(rows=None, notes=self.top, places=self.top, sums_up=False)
        return caps._replace(lines=min(caps.lines or 0, self.lines))


class Caps(NamedTuple):
    """The most lines of each section of a failure; None: all of them."""

    rows: int | None = None
    """Below it: rows of kernels and other work, with their places."""
    notes: int | None = None
    """Below it: further lines about it."""
    places: int | None = None
    """Below it: where the work comes from, if that is not shown with the rows."""
    reasons: int | None = None
    """Below it: findings that may be the cause."""
    lines: int | None = None
    """About all failures other than limits."""
    remedies: int | None = None
    """How many remedies there are, for all limits together."""
    sums_up: bool = False
    """Whether rows and notes that are left out are counted once for all limits, and not below each."""


DEFAULT: Final = Screen()
_UNBOUNDED: Final = Caps()
_IN_A_FILE: Final[Sequence[Caps]] = (
    Caps(lines=36),
    Caps(rows=20, notes=12, places=4, reasons=2, lines=18, remedies=3),
    Caps(rows=8, notes=6, places=2, reasons=1, lines=18, remedies=3),
    Caps(rows=5, notes=3, places=1, reasons=1, lines=18, remedies=3),
    Caps(rows=5, notes=2, places=1, reasons=1, lines=18, remedies=2),
)
"""By the number of limits, from none on; nothing has to be seen at once."""
_ON_A_TERMINAL: Final[Sequence[Caps]] = (
    Caps(rows=10, notes=6, places=2, reasons=3, lines=16, remedies=3),
    Caps(rows=5, notes=3, places=1, reasons=2, lines=6, remedies=3),
    Caps(rows=2, notes=2, places=1, reasons=1, lines=3, remedies=3),
    *[Caps(rows=2, notes=2, places=0, reasons=0, lines=3, remedies=2, sums_up=True)] * 2,
    Caps(rows=1, notes=1, places=0, reasons=0, lines=2, remedies=2, sums_up=True),
    Caps(rows=0, notes=0, places=0, reasons=0, lines=1, remedies=2, sums_up=True),
)
"""For one limit that fails, for two, and so on; all other failures together count as one more. At 80 columns the first
remedy is on the first screen of 24 lines."""


def fitting(
    blocks: Sequence[list[str]], most: int | None, *, counts_one: bool = False, whole: bool = False
) -> list[list[str]]:
    """Return as many of the blocks of lines as fit in so many lines.

    A single line that is left is shown too, since its number would take as much room; with ``counts_one`` it is not.
    ``whole``: where there is room for a line, the first block is shown with all of its lines.
    """
    if most is None:
        return [*blocks]
    least = 1 if whole and most else 0
    shown = list(blocks[: max(bisect_right([*accumulate(map(len, blocks))], most), least)])
    left = blocks[len(shown) :]
    return [*shown, *left] if len(left) == 1 and len(left[0]) == 1 and not counts_one else shown

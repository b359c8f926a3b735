"""Lines about failures other than limits: which kind each is, and how it is shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_torchprof.text import and_more, counted, numbered, printable, printable_line
from pytest_torchprof.text.cutting import cut, width_of
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.limits.screen import Screen

REMEDY = "  do: "
"""The beginning of a line that says what to do."""
_MOVED = {"broke": "graph break", "came": "new", "changed": "changed", "went": "gone"}
"""The subjects of lines about a graph break or a kernel, and a word for each; the likeliest cause comes first."""


class FailureLine(NamedTuple):
    """A line about a failure other than a missed limit, and its subject."""

    text: str
    about: Literal["headline", "broke", "came", "changed", "went", "place", "gated", "other", "remedy", "varies"] = (
        "other"
    )
    """The headline comes first; unless only remedies follow it, the lines below it say what it means."""
    command: str = ""
    """The command at the end of the text, to be copied as a whole."""
    subject: str = ""
    """The kernel that came, changed or went; for a headline, its gist; for what varies, what stands in front of it."""
    file_line: str = ""
    """Where it was launched, as far as that is known for sure."""
    full: str = ""
    """The whole name of the kernel that came or went."""
    numbers: str = ""
    """For a headline, the numbers that decide it."""
    figures: tuple[str, ...] = ()
    """For what varies anyway, each of its numbers in short, the most important ones first."""


def with_colon(lines: Sequence[FailureLine]) -> list[FailureLine]:
    """Return the lines, with a colon after the headline if the others are its details, or with its numbers.

    Where something came or went, the numbers have a line below that.
    """
    if lines and lines[0].numbers and all(line.about != "gated" for line in lines):
        return [lines[0]._replace(text=f"{lines[0].text}: {lines[0].numbers}"), *lines[1:]]
    has_details = len(lines) > 1 and lines[0].about == "headline" and lines[1].about != "remedy"
    return [lines[0]._replace(text=f"{lines[0].text}:"), *lines[1:]] if has_details else list(lines)


def _prose(line: FailureLine) -> str:
    return printable(f"{REMEDY}{line.text}" if line.about == "remedy" else line.text)


def shown_lines(lines: Iterable[FailureLine], screen: Screen) -> list[str]:
    """Return the lines as they are shown on a screen."""
    return [
        part
        for line in lines
        for part in broken(_prose(line), screen.columns, command=printable(line.command)).split("\n")
    ]


def varied_lines(lines: Iterable[FailureLine], screen: Screen) -> list[str]:
    """Return the lines on what varies anyway, one line of the screen each; figures that find no room are counted."""
    if screen.everything or screen.columns is None:
        return shown_lines(lines, screen)
    return [_with_fitting_figures(line, screen.columns) for line in lines]


def _with_fitting_figures(line: FailureLine, columns: int) -> str:
    whole, number = printable(line.text), len(line.figures)
    several = ["; ".join(line.figures[:most]) + and_more(number - most) for most in range(number, 0, -1)]
    # A narrow screen has more use for a number than for all of the words before it.
    abouts = (f"  {line.subject}", "  not gated: ")
    shorter = (f"{begin}{printable(text)}" for begin in abouts for text in several)
    fitting = (text for text in (whole, *shorter) if width_of(text) <= columns)
    return next(fitting, cut(f"  {line.subject}{counted(number, 'number')}", columns))


def gist(headline: FailureLine) -> str:
    return printable_line(headline.subject or headline.text)


def moved_lines(others: Sequence[FailureLine]) -> list[FailureLine]:
    return [line for line in others if line.about in _MOVED]


def causes_first(moved: Iterable[FailureLine]) -> list[FailureLine]:
    return sorted(moved, key=lambda line: list(_MOVED).index(line.about))


def weightiest_first(lines: Sequence[FailureLine]) -> list[int]:
    """Return the positions of lines in the order in which they are given room: the others follow as they stand.

    First come the likeliest cause with its places, the first kernel that went with its own, and the gated numbers.
    """
    moved = causes_first(moved_lines(lines))
    went = [line for line in moved if line.about == "went"]
    weighty: list[int] = []
    for line in dict.fromkeys([*moved[:1], *went[:1]]):
        at = lines.index(line)
        weighty.append(at)
        for below in range(at + 1, len(lines)):
            if lines[below].about != "place":
                break
            weighty.append(below)
    weighty += [at for at, line in enumerate(lines) if line.about == "gated"]
    return [*weighty, *(at for at in range(len(lines)) if at not in weighty)]


def with_room(lines: Sequence[FailureLine], shown: Sequence[list[str]], most: int | None) -> list[int]:
    """Return the positions of the lines that are shown where there is room for so many lines of a screen.

    ``shown`` are the lines of the screen that each takes. Where there is room for any, the likeliest cause is there,
    and so is the first kernel that went: what has come alone says half of it.
    """
    kept: list[int] = []
    taken = 0
    moved = causes_first(moved_lines(lines))
    halves = [*moved[:1], *[line for line in moved if line.about == "went"][:1]] if most else []
    is_full = False
    for at in weightiest_first(lines):
        is_full = is_full or (most is not None and taken + len(shown[at]) > most)
        if is_full and lines[at] not in halves:
            continue
        taken += len(shown[at])
        kept.append(at)
    return sorted(kept)


def moved_kinds(left_out: Iterable[FailureLine]) -> str:
    """Return of which kinds lines are that are left out, "3 new, 1 gone"; empty if nothing in them has moved."""
    numbers = Counter(_MOVED[line.about] for line in left_out if line.about in _MOVED)
    # Only a graph break is a thing with a plural: kernels are new, changed and gone.
    nouns = {kind: numbered(numbers[kind], kind) if kind == _MOVED["broke"] else kind for kind in numbers}
    return ", ".join(f"{numbers[kind]:,} {nouns[kind]}" for kind in _MOVED.values() if kind in numbers)


def first_moved(moved: Sequence[FailureLine]) -> str:
    """Return a text with the first graph break, or kernel that came, changed or went, its line, and how many more."""
    if not moved:
        return ""
    first = causes_first(moved)[0]
    alike = [line for line in moved if line.about == first.about]
    others = [line for line in moved if line.about != first.about]
    also = f"; {counted(len(others), 'other change')}" if others else ""
    if len(others) == 1:
        also = f"; {_MOVED[others[0].about]}: {printable_line(others[0].subject or others[0].text)}"
    # A kind may be launched several times.
    return f"{_MOVED[first.about]}: {_first_two(alike, ', ', '' if first.about == 'broke' else 'kind')}{also}"


def named_first(moved: Sequence[FailureLine]) -> int:
    """Return how many of them, the likeliest causes first, ``first_moved`` names."""
    alike = [line for line in moved if line.about == causes_first(moved)[0].about] if moved else []
    return len(alike) if len(alike) <= 2 else 1


def _first_two(alike: Sequence[FailureLine], at: str, noun: str) -> str:
    """Return the first of the lines by its subject and place; the second too if it is the last one."""
    named = [(printable_line(line.subject or line.text), line.file_line) for line in alike]
    (first, place), *more = named
    if len(more) == 1 and more[0][1] == place:
        return at.join(filter(None, [f"{first} and {more[0][0]}", place]))
    if len(more) == 1:
        return " and ".join(at.join(filter(None, each)) for each in named)
    return f"{at.join(filter(None, named[0]))}{and_more(len(more), noun)}"


def first_come(came: Sequence[FailureLine]) -> str:
    """Return the first kernel that came as the object of a sentence; empty if none did."""
    if not came:
        return ""
    return _first_two(came, " at ", "new kind")

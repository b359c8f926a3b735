"""Lines about failures other than limits: which kind each is, and how it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_torchprof.text import and_more, broken, counted, printable, printable_line

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
    about: Literal["headline", "broke", "came", "changed", "went", "gated", "other", "remedy", "varies"] = "other"
    """The headline comes first; unless only remedies follow it, the lines below it say what it means."""
    command: str = ""
    """The command at the end of the text, to be copied as a whole."""
    subject: str = ""
    """The kernel that came, changed or went; for a headline, its gist."""
    file_line: str = ""
    """Where it was launched, as far as that is known for sure."""
    numbers: str = ""
    """For a headline, the numbers that decide it."""


def with_colon(lines: Sequence[FailureLine]) -> list[FailureLine]:
    """Return the lines, with the numbers after the headline, or a colon if the others are its details."""
    if lines and lines[0].numbers:
        return [lines[0]._replace(text=with_numbers_after(lines[0])), *lines[1:]]
    return [lines[0]._replace(text=f"{lines[0].text}:"), *lines[1:]] if has_details(lines) else list(lines)


def with_numbers_after(headline: FailureLine) -> str:
    return ": ".join(filter(None, [headline.text, headline.numbers]))


def has_details(lines: Sequence[FailureLine]) -> bool:
    """Return whether the headline is followed by its details."""
    return len(lines) > 1 and lines[0].about == "headline" and lines[1].about != "remedy"


def _prose(line: FailureLine) -> str:
    return printable(f"{REMEDY}{line.text}" if line.about == "remedy" else line.text)


def unbroken(line: FailureLine) -> str:
    return _prose(line) + printable(line.command)


def shown_lines(lines: Iterable[FailureLine], screen: Screen) -> list[str]:
    """Return the lines as they are shown on a screen."""
    return [
        part
        for line in lines
        for part in broken(_prose(line), screen.columns, command=printable(line.command)).split("\n")
    ]


def gist(headline: FailureLine) -> str:
    return printable_line(headline.subject or headline.text)


def moved_lines(others: Sequence[FailureLine]) -> list[FailureLine]:
    return [line for line in others[1:] if line.about in _MOVED]


def causes_first(moved: Iterable[FailureLine]) -> list[FailureLine]:
    return sorted(moved, key=lambda line: list(_MOVED).index(line.about))


def first_moved(moved: Sequence[FailureLine]) -> str:
    """Return a text with the first graph break, or kernel that came, changed or went, its line, and how many more."""
    if not moved:
        return ""
    first = causes_first(moved)[0]
    alike = [line for line in moved if line.about == first.about]
    others = len(moved) - len(alike)
    also = f"; {counted(others, 'other change')}" if others else ""
    return f"{_MOVED[first.about]}: {_first_two(alike, ', ', '')}{also}"


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
    return _first_two(came, " at ", "new kernel")

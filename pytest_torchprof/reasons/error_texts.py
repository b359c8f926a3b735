"""The texts of an error: whole, in a few lines and in one; and how it reads that something is not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.text import reason_line
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.reasons.reason import Reason


class ErrorTexts(NamedTuple):
    """The texts of an error, at the lengths at which it is shown; no Struct, which `torchprof --help` does without."""

    whole: str = ""
    brief: str | None = None
    """The text where a few lines are enough (``pytest -q``)."""
    in_one_line: str | None = None
    """The text in one line; None stands for the first line of the whole text."""
    in_columns: Callable[[int], str] | None = None
    """Returns the whole text for a terminal of so many columns; None where it is the same for all."""


def unmeasured_text(why: object) -> str:
    """Return why something is not measured, behind the words that say so."""
    return f"not measured: {why}"


def with_doctor(text: str, *, ask_the_doctor: bool) -> str:
    """Return a text that ends with the command that tells more, where the profiler or the device is the cause."""
    ask = "run `torchprof doctor` to see what is wrong with the profiler or the device"
    return f"{text}\n  do: {ask}" if ask_the_doctor else text


def unmeasured_texts(why: Reason, columns: int | None, *, ask_the_doctor: bool) -> ErrorTexts:
    """Return the texts where a whole measurement is missing, for a terminal of so many columns."""
    line = unmeasured_text(reason_line(str(why)))
    brief = broken(line, columns)
    return ErrorTexts(with_doctor(brief, ask_the_doctor=ask_the_doctor), brief, line)

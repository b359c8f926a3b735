"""The error with which a test ends whose measurements do not hold, at the length that a screen allows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_torchprof.reasons.error_texts import ErrorTexts
from pytest_torchprof.reasons.errors import NotMeasured, error_of_texts
from pytest_torchprof.text import counted, first_of, printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.limits import Screen
    from pytest_torchprof.reasons.errors import LimitsMissed
    from pytest_torchprof.testing.conclusion import Conclusion

LEAST_LINES: Final = 12
"""Lines for each failure of a test that has several: together they may then be longer than a screen."""
MOST_NAMED: Final = 3
"""The most labels that the line on a test with several failures names."""


def error_of(conclusions: Sequence[Conclusion], screen: Screen) -> LimitsMissed | NotMeasured | None:
    """Return the error with which a test ends; None where nothing fails it."""
    failures = [own for own in conclusions if own.problem is not None and own.result.outcome.is_failure]
    if not failures:
        return None
    texts = ErrorTexts(
        "\n\n".join(_failure_texts(failures, screen)),
        "\n".join(failure.brief for failure in failures),
        f"{failures[0].in_one_line}{_also_failing(failures[1:])}",
        partial(_in_columns, failures, screen),
    )
    unmeasured = [failure.problem.reason for failure in failures if isinstance(failure.problem, NotMeasured)]
    return error_of_texts(texts, unmeasured)


def _in_columns(failures: Sequence[Conclusion], screen: Screen, most: int) -> str:
    return "\n\n".join(_failure_texts(failures, screen.of_width(most)))


def _also_failing(others: Sequence[Conclusion]) -> str:
    """Return how many other measurements fail, and which, for the end of the line on the first; empty without any."""
    if not others:
        return ""
    # Only the first measurement of a test may have no label.
    named = first_of([printable_line(other.label or "") for other in others], MOST_NAMED)
    return f"; {counted(len(others), 'other measurement')} {'fails' if len(others) == 1 else 'fail'}: {named}"


def _failure_texts(failures: Sequence[Conclusion], screen: Screen) -> list[str]:
    """Return the texts for the screen, whose lines several share."""
    if len(failures) == 1:
        return [failures[0].text(screen)]
    shared = replace(screen, lines=max(screen.lines // len(failures), LEAST_LINES))
    return [failure.text(shared) for failure in failures]

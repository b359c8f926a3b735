"""Reasons why a threshold of findings cannot be set as the ini file says."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class NoThresholdForm(Reason, frozen=True):
    """A line is not of the form in which thresholds are set."""

    CODE = Code.BAD_VALUE
    SENTENCE = "{written}: expected NAME = VALUE, e.g. hotspot.share = 0.6"

    written: str


class UnknownThreshold(Reason, frozen=True):
    """There is no threshold of this name."""

    CODE = Code.UNKNOWN_KEYWORD
    ADVICE = "write one of those"

    name: str
    known: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"there is no threshold {self.name!r}; known are: {', '.join(self.known)}"


class ThresholdTwice(Reason, frozen=True):
    """A threshold is set twice."""

    CODE = Code.BAD_VALUE
    SENTENCE = "{name} is given twice"

    name: str


class WrongThreshold(Reason, frozen=True):
    """A threshold's value is no number that it takes."""

    CODE = Code.BAD_VALUE

    name: str
    got: str
    is_whole: bool
    """Whether it takes whole numbers."""
    default: float

    @property
    def sentence(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        return f"{self.name} = {self.got}: expected {kind} of at least 0 (its default is {self.default:g})"

"""Reasons that lie in how ``torchprof fleet`` is called: its folder has another run, or a bound is none."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.text import enumerated
from pytest_torchprof.text.suggestions import choice_advice


class RunPart(Phrase):
    """The parts that make one run out of several commands."""

    VERSION = "version", "code: it is of another version of pytest-torchprof"
    SOURCES = "sources", "sources"
    LIMITS = "limits", "limits"
    RULES = "rules", "rules"


class OtherRunThere(Reason, frozen=True):
    """The folder has a run in which something else was asked."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder} holds a run with other {differing}"
    ADVICE = "name another folder"

    folder: str
    differing: RunPart
    is_retry: bool = False
    """Whether that run is to be gone on with, and not begun."""

    @property
    def remedy(self) -> str:
        return "run it into another folder" if self.is_retry else "name another folder for this one"


class RulesIdle(Reason, frozen=True):
    """Rules are for files of which there is none."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    path: str
    rules: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{self.path}: {enumerated(self.rules)}: no file fits"

    @property
    def remedy(self) -> str:
        return f"mend the patterns or remove {'it' if len(self.rules) == 1 else 'them'}"


class Quantity(Phrase):
    """The kind of quantity that bounds a process."""

    SIZE = "size", 'a size such as "{example}"'
    DURATION = "duration", 'a duration such as "{example}", or seconds as a number'


class NoQuantity(Reason, frozen=True):
    """A bound on the processes is no quantity."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    option: str
    quantity: Quantity
    example: str
    got: str

    @property
    def sentence(self) -> str:
        return self.words(f"{{option}}: expected {self.quantity}, got {{got!r}}")


class TooLittleMemory(Reason, frozen=True):
    """A process could not even begin with the memory that it may take."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "--memory {value}: expected at least {least_bytes:bytes}"

    value: str
    least_bytes: int


class UnknownGrouping(Reason, frozen=True):
    """Files are to be grouped by what none of them has."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    name: str
    near: str | None
    """The key that is meant."""
    known: tuple[str, ...]
    """All that there are, where none is near."""

    @property
    def sentence(self) -> str:
        return f"--by {self.name}: {choice_advice(self.near, self.known)}"

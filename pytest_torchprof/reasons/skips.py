"""Why a test is skipped, or the rest of it, whose body has passed so far: this run lacks what it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.statement import Statement

_IS_OFF: Final = "measuring is off (--torchprof=off)"


def unjudged_without_gpu(numbers: tuple[str, ...]) -> str:
    """Return in words that these are not judged where the CPU stands in for a missing GPU."""
    return f"not judged without a GPU: {', '.join(numbers)}"


class Skip(Statement, frozen=True, tag_field="skip"):
    """Why a test is skipped, or the rest of it."""


class MeasuringIsOff(Skip, frozen=True):
    """The test looks at a number, and the run measures nothing."""

    SENTENCE = _IS_OFF


class ReplayHasNoResult(Skip, frozen=True):
    """The test looks at what the measured code returned, and the run judges recordings."""

    SENTENCE = "a replay does not run the measured code, so there is no result"


class LacksGpu(Skip, frozen=True):
    """The CPU has stood in for a GPU that is missing, and cannot answer all that was asked."""

    numbers: tuple[str, ...]
    """The limits that are not judged; empty where there are none, and the test looks at numbers."""
    lack: AnyWhyNoGpu | None = None
    """Why there is no GPU, if that may surprise."""
    ended: bool = True
    """Whether the body has come to its end."""

    @property
    def sentence(self) -> str:
        passed = "body passed" if self.ended else "body passed so far"
        why = "" if self.lack is None else f"; torch sees none: {self.lack.text}"
        return f"{passed}; {unjudged_without_gpu(self.numbers or ('GPU numbers',))}{why}"


class LookedAtNumber(Skip, frozen=True):
    """The test has looked at a number that this run does not have."""

    SENTENCE = "{why}, profile.{number}"

    why: AnySkip
    number: str
    """The name of the profile's attribute."""


class LimitsNotJudged(Skip, frozen=True):
    """The run measures nothing, so that the test's limits are not judged."""

    SENTENCE = f"body passed; {_IS_OFF}, not judged: {{limits:list}}"

    limits: tuple[str, ...]


KINDS: Final[tuple[type[Skip], ...]] = tuple(Skip.__subclasses__())

if TYPE_CHECKING:
    AnySkip = Skip
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnySkip = Union[KINDS]  # noqa: UP007 - of as many as there are

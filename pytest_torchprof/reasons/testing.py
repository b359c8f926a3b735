"""Reasons of tests: how they are marked or written keeps them from being measured."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class NotRunToEnd(Reason, frozen=True):
    """The measured code did not come to its end."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "the measured code was not run to its end"


class EndedByError(Reason, frozen=True):
    """The measured code raised."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "the measured code was not run to its end: it raised {error}"

    error: str


class NeverEntered(Reason, frozen=True):
    """A block was made and never entered."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "torchprof.measure({label!r}) was never entered"
    REMEDY = "use it in a with statement"

    label: str


class LimitsUnused(Reason, frozen=True):
    """Limits were set, and nothing was measured after it."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "torchprof.limits() sets {limits:list}, and no measurement comes after it"
    REMEDY = "set limits first"

    limits: tuple[str, ...]


class FixtureUnused(Reason, frozen=True):
    """A marked test requests the fixture, and does not use it."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "the test is marked torchprof and requests the fixture, but measured nothing"
    REMEDY = "call torchprof(...) in it"


class BodyUnrepeatable(Reason, frozen=True):
    """The body of a test cannot be the measured step."""

    CODE = Code.UNREPEATABLE_BODY
    SENTENCE = "{test} {trait} as the measured step"
    REMEDY = "measure a part of it: with torchprof.measure(...) as m, or torchprof(fn, ...)"

    test: str
    trait: str
    """Why it cannot be, "is a coroutine, which cannot be called again"."""


class MarkedTooLate(Reason, frozen=True):
    """A test got its marker when it was too late to measure it."""

    CODE = Code.LATE_MARKER
    SENTENCE = "{test}: {because}"
    REMEDY = "add it before: at the function, in a fixture or in a hook"

    test: str
    because: str


class NoProcessOfItsOwn(Reason, frozen=True):
    """Cold or warm caches take a process for the test alone."""

    CODE = Code.COMPILE_CACHE
    SENTENCE = "compile_cache={asked!r} takes a process that pytest starts for the test alone, and {because}"

    asked: str
    because: str


class CalledDifferentlyOften(Reason, frozen=True):
    """The ranks of a job call the measured code a different number of times."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False

    ranks: tuple[str, ...]
    """What each of them is to do."""

    @property
    def sentence(self) -> str:
        return f"the ranks are to call the code differently often: {'; '.join(self.ranks)}"


class RankUntold(Reason, frozen=True):
    """A recording of a job does not say which rank it is of."""

    CODE = Code.NO_RANK
    SENTENCE = "a rank's recording does not say which rank it is of"

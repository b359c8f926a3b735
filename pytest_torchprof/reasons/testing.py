"""Reasons of tests: how they are marked or written keeps them from being measured."""

from __future__ import annotations

from msgspec import Struct

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase


class NotRunToEnd(Reason, frozen=True):
    """The measured code did not come to its end."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "the measured code was not run to its end"
    MEANING = (
        "the code itself failed in one of its calls; if the test fails for that reason, its own failure says where"
    )
    ADVICE = "mend the code; measure code that works only once with `warmup=0, steps=1`"


class EndedByError(Reason, frozen=True):
    """The measured code raised."""

    CODE = Code.NOT_RUN_TO_END
    SENTENCE = "the measured code was not run to its end: it raised {error}"
    MEANING = (
        "the code itself failed in one of its calls; if the test fails for that reason, its own failure says where"
    )
    ADVICE = "mend the code; measure code that works only once with `warmup=0, steps=1`"

    error: str


class NeverEntered(Reason, frozen=True):
    """A block was made and never entered."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "torchprof.measure({label!r}) was never entered"
    REMEDY = "use it in a with statement"
    MEANING = "the block was created and not used"

    label: str


class LimitsUnused(Reason, frozen=True):
    """Limits were set, and nothing was measured afterwards."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "torchprof.limits() sets {limits:list}, and no measurement comes after it"
    REMEDY = "set limits first"
    MEANING = "limits hold for what is measured after them"

    limits: tuple[str, ...]


class FixtureUnused(Reason, frozen=True):
    """A marked test requests the fixture, and does not use it."""

    CODE = Code.NOTHING_MEASURED
    SENTENCE = "the test is to be measured and requests the fixture, but measured nothing"
    REMEDY = "call torchprof(...) in it"


class Trait(Phrase):
    """Why the body of a test cannot be called several times."""

    ASYNC = "async", "is async, and its body cannot be called again and again"
    HYPOTHESIS = (
        "hypothesis",
        "is a test of hypothesis (@given), which runs other and more examples at each call: it cannot be called",
    )


class BodyUnrepeatable(Reason, frozen=True):
    """The body of a test cannot be the measured step."""

    CODE = Code.UNREPEATABLE_BODY
    SENTENCE = "{test} {trait} as the measured step"
    REMEDY = "measure a part of it: with torchprof.measure(...) as m, or torchprof(fn, ...)"
    MEANING = (
        "the test is async, or one of hypothesis (`@given`): the body of a marked test is the step that is called "
        "several times; here a second call would do other work, or none"
    )

    test: str
    trait: Trait


class MarkedTooLate(Reason, frozen=True):
    """A test got its marker when it was too late to measure it."""

    CODE = Code.LATE_MARKER
    REMEDY = "add it before: at the function, in a fixture or in a hook"
    MEANING = "what a test is judged by must be known before it is measured"

    test: str
    fixture_measured: bool = False
    """Whether a fixture had measured by then; else the test itself was running."""

    @property
    def cause(self) -> str:
        """When it got the marker."""
        when = "after a fixture had measured" if self.fixture_measured else "while it ran"
        return f"it got a torchprof marker {when}, too late to be judged by it"

    @property
    def sentence(self) -> str:
        return f"{self.test}: {self.cause}"


class RanksMarkedTooLate(Reason, frozen=True):
    """A test got a marker with ranks when it was too late to start that many processes for it."""

    CODE = Code.LATE_MARKER
    SENTENCE = "{test}: it got ranks={ranks} after it was collected, too late to be run by so many processes"
    REMEDY = "add the marker at the function, or in the hook pytest_collection_modifyitems"
    MEANING = "which tests are run by several processes is decided when tests are collected"

    test: str
    ranks: int


class NoProcessOfItsOwn(Reason, frozen=True):
    """Cold or warm caches take a process for the test alone."""

    CODE = Code.COMPILE_CACHE
    REMEDY = "put the marker at the function, and call pytest without a launcher for this test"
    MEANING = "pytest runs as a rank of a job, or the marker came after collection"
    FOR_THE_DOCTOR = False

    asked: str
    rank: int | None = None
    """Which rank of a job this process is; None where the marker came too late."""
    world_size: int = 1

    @property
    def sentence(self) -> str:
        rank = self.words("this one is rank {rank} of {world_size}")
        here = rank if self.rank is not None else "this test has none (it got its marker after collection)"
        return self.words("compile_cache={asked!r} takes a process that pytest starts for the test alone, and ") + here


class CallsOfRank(Struct, frozen=True):
    """How often a rank is to call the measured code."""

    warmup: int
    steps: int
    times: bool
    """Whether it calls it untraced too, as often as its times need."""

    def __str__(self) -> str:
        """Return it as the marker's keywords."""
        return f"warmup={self.warmup}, steps={self.steps}{', and times' if self.times else ''}"


class CalledDifferentlyOften(Reason, frozen=True):
    """The ranks of a job call the measured code a different number of times."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    MEANING = (
        "`steps`, `warmup` or a time tolerance differ, and a rank that calls the code once more would wait in its "
        "collectives"
    )
    ADVICE = "ask for the same on all ranks"

    ranks: tuple[CallsOfRank, ...]
    """The calls of each of them, in the order of the ranks."""

    @property
    def sentence(self) -> str:
        each = "; ".join(f"rank {rank} {calls}" for rank, calls in enumerate(self.ranks))
        return f"the ranks are to call the code different numbers of times: {each}"


class RankUntold(Reason, frozen=True):
    """A recording of a job does not say which rank it is of."""

    CODE = Code.NO_RANK
    SENTENCE = "a rank's recording does not say which rank it is of"
    MEANING = (
        "torch writes the rank into a recording once torch.distributed is initialized, and this plugin writes what "
        "a launcher says"
    )
    ADVICE = "record it again with the process group, or look at the file by itself"

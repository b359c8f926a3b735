"""Reasons of times that are compared with another commit's: why there are none, and why they do not decide it."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.commit_gaps import AnyCommitGap  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.comparing import SideName  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason


class StandInTimed(Reason, frozen=True):
    """The CPU is measured because there is no GPU, and a GPU's times were to be compared."""

    CODE = Code.NEEDS_GPU
    SENTENCE = "the CPU stands in for a missing GPU"
    REMEDY = 'device="cpu" times the CPU'


class NotTimedAtCommit(Reason, frozen=True):
    """The commit ran before the processes that take times, and no test of it asked for these."""

    CODE = Code.NO_TIMES
    SENTENCE = "no test there asks for it"
    REMEDY = "--torchprof-against-time=10% asks for that of all"


class ProcessWithoutTest(Reason, frozen=True):
    """A process that was to time a test has ended without a measurement of it."""

    CODE = Code.NO_TIMES
    ADVICE = "look at that reason: a test must pass when it runs only with the other timed ones"

    side: SideName
    """Where it ran."""
    status: int
    error: AnyCommitGap | str | None
    """The error of the test there, or of the process; in reports of earlier versions a text."""

    @property
    def sentence(self) -> str:
        because = "it was not measured there" if self.error is None else str(self.error)
        return f"a process {self.side} that ended with status {self.status}: {because}"


class NoTimesTaken(Reason, frozen=True):
    """A process has measured a test, and took no times of it."""

    CODE = Code.NO_TIMES
    SENTENCE = "no times were taken"
    ADVICE = "give the test a time tolerance on both sides"


class EndedBeforeTimes(Reason, frozen=True):
    """A process came to a result of a test without times of it."""

    CODE = Code.NO_TIMES
    SENTENCE = "{message}"
    ADVICE = "look at that reason: a test must pass when it runs only with the other timed ones"

    message: str
    """The remark on it in the result."""


class OtherConditions(Reason, frozen=True):
    """The two processes of a pair took their samples in different ways."""

    CODE = Code.NO_TIMES
    MEANING = "the two processes of a pair took their samples in different ways"
    ADVICE = "look for what sets threads, clock or cache by the commit or the machine"

    at_commit: tuple[tuple[str, str | int], ...]
    """The name of each condition, and its value."""
    here: tuple[tuple[str, str | int], ...]

    @property
    def sentence(self) -> str:
        there, here = (", ".join(f"{name} {value}" for name, value in side) for side in (self.at_commit, self.here))
        return f"samples were taken with {there} at the commit, and with {here} in the working tree"


class StepTooShort(Reason, frozen=True):
    """The clock does not resolve the time of a step."""

    CODE = Code.NO_TIMES
    SENTENCE = "a step takes less time than the clock resolves"
    ADVICE = "measure more work in a step"


class BudgetForTooFewPairs(Reason, frozen=True):
    """The time for all pairs was over before there were enough of them."""

    CODE = Code.NO_TIMES
    SENTENCE = "{pairs:pair} of processes {pairs:fits|fit} into the budget of {budget_s:.6g} s, and {needed} are needed"
    REMEDY = "give it more with --torchprof-against-budget, or fewer tests"
    MEANING = "too few for a verdict on times against another commit"

    pairs: int
    needed: int
    budget_s: float


class BudgetSpent(Reason, frozen=True):
    """The time for all pairs was over before they decided."""

    CODE = Code.NO_TIMES
    SENTENCE = "the budget of {budget_s:.6g} s is spent"
    ADVICE = "give a larger `--torchprof-against-budget`"

    budget_s: float


class SlowdownNotConfirmed(Reason, frozen=True):
    """The first pairs showed a slowdown, and fresh ones do not."""

    CODE = Code.NO_TIMES
    SENTENCE = "it looked slower in {pairs:pair}, and as many fresh ones did not confirm it"
    ADVICE = "run it again on a machine with less other work"

    pairs: int


class PairsUndecided(Reason, frozen=True):
    """As many pairs as are taken at most do not decide."""

    CODE = Code.NO_TIMES
    SENTENCE = "so many pairs do not tell whether it is more than the {allowed:share} allowed"
    MEANING = "as many pairs as are taken at most leave it open"
    ADVICE = "run it again on a machine with less other work"

    allowed: float

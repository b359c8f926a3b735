"""Reasons of a job's ranks that did not come to the end of a test."""

from __future__ import annotations

from msgspec import Struct

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.goal import Goal  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.signals import signal_name
from pytest_torchprof.reasons.statement import Phrase


class StoppedAt(Struct, frozen=True):
    """Where a rank was, as far as that is known."""

    line: str = ""
    """The line of the code that ran, with the innermost call; empty where its process could not say."""
    collective: str = ""
    """The collective that it had not finished; empty where no flight recorder says."""

    def __str__(self) -> str:
        """Return both in words."""
        line = self.line or "where it was is not known"
        return f"{line}, {self.collective}" if self.collective else line


class CacheProcess(Phrase):
    """The purpose of a process that measures a test of ``compile_cache``."""

    FILLS = "fills", "the process that fills the caches"
    COLD = "cold", "the process with cold caches"
    WARM = "warm", "the process with warm caches"


class RankDied(Reason, frozen=True):
    """The process of a rank ended before its test did."""

    CODE = Code.RANK_LOST
    MEANING = (
        "a rank of a test with `ranks=2` ended before its test did, and what it had measured is lost. The last lines "
        "that it wrote follow; the other ranks may have ended because of it"
    )
    ADVICE = (
        "run that rank's code by itself; SIGKILL without another reason usually means that the system ran out of memory"
    )
    FOR_THE_DOCTOR = False

    status: int
    """As Python has it: minus the signal that ended it."""

    @property
    def sentence(self) -> str:
        return how_it_ended(self.status)


class RankEndedByLauncher(Reason, frozen=True):
    """The launcher ended a rank because another one had died."""

    CODE = Code.RANK_LOST
    MEANING = "the launcher ends all ranks once one of them has ended"
    ADVICE = "see what that rank says"
    FOR_THE_DOCTOR = False

    first: int
    """The rank that died."""
    status: int
    """Its status."""

    @property
    def sentence(self) -> str:
        return f"was ended by the launcher after rank {self.first} {how_it_ended(self.status)}"


class RankLostWithLauncher(Reason, frozen=True):
    """The launcher itself ended, and the rank with it."""

    CODE = Code.RANK_LOST
    MEANING = "`torch.distributed.run`, which starts and watches the ranks, has ended before them"
    ADVICE = "see the last lines that it wrote"
    FOR_THE_DOCTOR = False

    status: int
    """The launcher's."""

    @property
    def sentence(self) -> str:
        return f"was lost with the launcher, which {how_it_ended(self.status)}"


class RankOutlasted(Reason, frozen=True):
    """A rank went on for too long after another one had failed."""

    CODE = Code.RANK_LOST
    MEANING = "it waited for the rank that failed, in a collective or elsewhere, and was ended at that line"
    ADVICE = "fix the rank that failed; `torchprof_rank_timeout` in the ini file says how long the others may take"
    FOR_THE_DOCTOR = False
    SENTENCE = "had not ended {waited_s:.0f} s after another rank had failed: {at}"

    waited_s: float
    at: StoppedAt | str
    """In reports of earlier versions a text."""


class RankStoodStill(Reason, frozen=True):
    """A rank had made no progress when its job was given up."""

    CODE = Code.SILENT_RANK
    MEANING = "no rank made progress, and this is the line at which this one hung"
    ADVICE = "look for what the ranks wait for there: a collective that not all of them call, a lock, the network"
    FOR_THE_DOCTOR = False

    goal: Goal | str | None
    """The goal that it had not reached, None if it had not begun its tests; in reports of earlier versions a text."""
    waited: bool
    """Whether it waited for the other ranks there."""
    at: StoppedAt | str
    """In reports of earlier versions a text."""

    @property
    def sentence(self) -> str:
        if self.goal is None:
            return f"did not begin its tests: {self.at}"
        doing = "waited for the others at" if self.waited else "did not reach"
        return f"{doing} {self.goal}: {self.at}"


class TestDidNotRunOnRank(Reason, frozen=True):
    """The pytest of a rank ended without a report of the test."""

    __test__ = False
    CODE = Code.RANK_LOST
    MEANING = "pytest ended on that rank before the test"
    ADVICE = "see what that rank says"
    FOR_THE_DOCTOR = False
    SENTENCE = "the test did not run there: pytest ended with status {status}"

    status: int | None


def how_it_ended(status: int) -> str:
    """Return how a process ended before its test did, in words; ``status`` is as Python has it."""
    if status >= 0:
        return f"ended with exit status {status} before its test did"
    return f"was killed by {signal_name(-status)}"

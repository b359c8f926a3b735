"""Reasons that lie in the other processes of a job that is measured."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.goal import Goal  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason

_NO_TEST: Final = "no test"


class RankProcess(Struct, frozen=True):
    """The process of a rank."""

    pid: int
    host: str

    def __str__(self) -> str:
        """Return the process's id and host, by which a person finds it."""
        return f"pid {self.pid} on {self.host}"


class SubtestFailed(Reason, frozen=True):
    """A test has failed by one of its subtests, of which pytest has reports of their own."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "a subtest failed"
    ADVICE = "look at the report of the subtest on that rank"


def explained(why: Reason | str) -> str:
    """Return in words why a test has ended as it has on a rank: it was not measured, or as pytest reports it."""
    if isinstance(why, SubtestFailed):
        return why.sentence
    return unmeasured_text(why) if isinstance(why, Reason) else why


class EndedWithoutMeasuring(Reason, frozen=True):
    """A rank ended the test without the measurement."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    MEANING = "the ranks do not measure the same things"
    ADVICE = "measure equally often on each rank; skip on all of them or on none"

    rank: int
    outcome: str
    """How the test ended there: "passed", "failed", "skipped", "xfailed"."""
    explanation: decoding.AnyReason | str
    """Why it was not measured there, or pytest's words on that, if it has any."""

    @property
    def sentence(self) -> str:
        how = f"it {self.outcome}" + (f" ({explained(self.explanation)})" if self.explanation else "")
        return f"rank {self.rank} has ended the test without this measurement: {how}"


class EndedItsRun(Reason, frozen=True):
    """A rank ended its run before it came to the measurement."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    MEANING = "`-x`, `pytest.exit()` or an interrupt, on that rank alone"
    ADVICE = "look at what it says"

    rank: int
    goal: Goal | str
    """In reports of earlier versions a text."""
    explanation: decoding.AnyReason | str = ""
    """Why: an error of ours, or another one in one line; empty where nothing is known of it."""
    not_collected: str | None = None
    """The test, where the rank has not collected it."""

    @property
    def sentence(self) -> str:
        missing = "" if self.not_collected is None else f"it has not collected {self.not_collected}"
        why = self.explanation.text if isinstance(self.explanation, Reason) else self.explanation or missing
        return f"rank {self.rank} has ended its run before {self.goal}{f': {why}' if why else ''}"


class RankTooLate(Reason, frozen=True):
    """A rank did not come as far as the others in time."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    MEANING = "it hangs, takes far longer than the others, or was killed: the text names the process to look at"
    ADVICE = (
        "see what it is doing (`py-spy dump`); if it only takes long, set a larger `torchprof_rank_timeout` in the "
        "ini file"
    )

    rank: int
    goal: Goal | str
    """In reports of earlier versions a text."""
    timeout_s: float
    process: RankProcess | None
    """None where the rank has measured nothing so far."""

    @property
    def sentence(self) -> str:
        who = self.process or "it has measured nothing so far"
        return f"rank {self.rank} did not reach {self.goal} within {self.timeout_s:.6g} s ({who})"


class NothingHeardOfRank(Reason, frozen=True):
    """A rank has given no sign."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "nothing was heard of rank {rank} within {timeout_s:.6g} s: it has measured nothing so far"
    MEANING = "it has not come to its first measurement"
    ADVICE = "run the same tests in one order on all ranks"

    rank: int
    timeout_s: float


class RankStillSilent(Reason, frozen=True):
    """A rank that was waited for once has given no sign since."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    MEANING = "an earlier test waited for it, and it did not come"
    ADVICE = "the first test that says so tells more"

    rank: int
    test: str
    """The test that it was in; empty where it was in none."""
    process: RankProcess

    @property
    def sentence(self) -> str:
        return f"rank {self.rank} is still silent, and was last heard of in {self.test or _NO_TEST} ({self.process})"


class RankElsewhere(Reason, frozen=True):
    """A rank measures something else, or runs another test."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    MEANING = "it is in another test, or in a part of this one that takes long"
    ADVICE = (
        "run the same tests in one order on all ranks; let them meet (`distributed.barrier()`) before the measured code"
    )

    rank: int
    timeout_s: float
    process: RankProcess
    test: str | None
    """The test that it is in, empty where it is in none; None where it is in this one, in another measurement."""
    label: str | None = None
    """The name of that measurement."""
    not_collected: str | None = None
    """This test, where the rank has not collected it."""

    @property
    def sentence(self) -> str:
        if self.test is None:
            where = f"the one called {self.label}" if self.label else "one without a label"
            rules = ["each rank has to measure the same in a test"]
        else:
            where = self.test or _NO_TEST
            missing = [] if self.not_collected is None else [f"it has not collected {self.not_collected}"]
            rules = [*missing, "each rank has to run the same tests in one order"]
        late = f"rank {self.rank} did not begin this measurement within {self.timeout_s:.6g} s"
        return f"{late}, and was last heard of in {where} ({self.process}): {'; '.join(rules)}"


class RanksUnreachable(Reason, frozen=True):
    """The ranks of a job cannot reach each other."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "the ranks of the job cannot reach each other: {error}"
    MEANING = (
        "the store at which they meet is gone: a process group's store lives in rank 0's process, and that has ended"
    )
    ADVICE = "look at what rank 0 says"

    error: str


class NoJobOfRanks(Reason, frozen=True):
    """Ranks are asked for in a process that runs alone."""

    CODE = Code.NO_JOB
    FOR_THE_DOCTOR = False
    ADVICE = "give the test `ranks=2`, or start pytest by torchrun"
    SENTENCE = (
        "torchprof.ranks: this test runs in one process alone: give it ranks=2 in its marker, or start pytest with "
        "torchrun"
    )


class NowhereToMeet(Reason, frozen=True):
    """The launcher of a job does not say where its ranks meet."""

    CODE = Code.NO_JOB
    FOR_THE_DOCTOR = False
    ADVICE = "let the launcher set them"
    SENTENCE = (
        "torchprof.ranks: the launcher of {rank} sets no MASTER_ADDR and MASTER_PORT, where ranks meet: set them, "
        "start pytest by torchrun, or initialize torch.distributed yourself"
    )

    rank: str

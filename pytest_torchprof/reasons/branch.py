"""Reasons of comparing with a branch in a history: nothing there can be compared with."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of


class HistoryUnread(Reason, frozen=True):
    """The history that holds the baseline cannot be read."""

    CODE = Code.UNUSABLE_STORE
    MEANING = "the store of the history does not answer, or is damaged, so that no test can be judged by it"
    ADVICE = "`torchprof history verify STORE` asks the store in the same way"

    history: str
    problem: decoding.AnyReason | str
    """In reports of earlier versions a text."""

    @property
    def sentence(self) -> str:
        problem = self.problem.text if isinstance(self.problem, Reason) else self.problem
        return f"the baseline {self.history} {problem}"


class NoRunOfBranch(Reason, frozen=True):
    """The history has no run of the branch that may be a baseline."""

    CODE = Code.NO_HISTORY
    MEANING = "a baseline is a run of the branch that was not stopped and measured a commit as it is"
    ADVICE = "run pytest with `--torchprof-history` on that branch, as a job that runs after each merge does"

    history: str
    branch: str
    dirty: int = 0
    stopped: int = 0
    of_pull_requests: int = 0
    others: tuple[str, ...] = ()
    """The branches that it has runs of, those with the most first."""

    @property
    def sentence(self) -> str:
        runs = [
            f"{number} {what}"
            for number, what in (
                (self.dirty, "with uncommitted changes"),
                (self.stopped, "that did not come to an end"),
                (self.of_pull_requests, "of a pull request"),
            )
            if number
        ]
        only = f", only {', '.join(runs)}" if runs else ""
        there = f"; it has runs of {first_of(self.others)}" if self.others else ""
        return f"{self.history} has no run of the branch {self.branch} to be compared with{only}{there}"


class OtherDevices(Reason, frozen=True):
    """The runs of the branch are of other devices."""

    CODE = Code.NO_HISTORY
    SENTENCE = "{history} has runs of the branch {branch} on {devices:list}, and none on {device}"
    MEANING = "what is launched depends on the GPU's model, and the branch was not measured on this one"
    ADVICE = "measure the branch on it too, with `--torchprof-history`"

    history: str
    branch: str
    devices: tuple[str, ...]
    device: str


class LaunchOrderUnknown(Reason, frozen=True):
    """The record of the newest run does not hold what it launched."""

    CODE = Code.NO_HISTORY
    SENTENCE = "the run of {commit} in {history} was recorded by pytest-torchprof {version}, which kept no launch order"
    REMEDY = "measure the branch again with this version"

    history: str
    commit: str
    version: str


class RecordDamaged(Reason, frozen=True):
    """A record of the branch, which may have the test, cannot be believed."""

    CODE = Code.BAD_RECORD
    REMEDY = "remove the record, or put back what it was"

    branch: str
    problem: decoding.AnyReason | str
    """In reports of earlier versions a text."""

    @property
    def sentence(self) -> str:
        problem = self.problem.text if isinstance(self.problem, Reason) else self.problem
        return f"a record of the branch {self.branch} cannot be believed, and no other one has this test: {problem}"


class UnmeasuredOnBranch(Reason, frozen=True):
    """The branch has the test, and did not measure it."""

    CODE = Code.NO_HISTORY
    MEANING = "on the branch the test failed before it was measured, was skipped, or could not be measured"
    ADVICE = "look at that run; from the next one on that measures the test, it is judged by it"

    history: str
    commit: str
    outcome: str
    known_as: str | None = None
    """The code of the reason."""

    @property
    def sentence(self) -> str:
        why = f" ({self.known_as})" if self.known_as else ""
        return f"the run of {self.commit} in {self.history} has no measurement of this test: {self.outcome}{why}"

"""Reasons why a history has no answer to what it is asked: no such branch, or no condition."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import enumerated, first_of
from pytest_torchprof.text.suggestions import choice_advice


class BranchNotNamed(Reason, frozen=True):
    """A history has runs of several branches, none of them a usual main branch, and none is named."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "name the branch"

    branches: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"runs of {enumerated(self.branches)} are there: name the --branch"


class NoRunOfAnyBranch(Reason, frozen=True):
    """A history has no run that is a point of a branch."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "run pytest with `--torchprof-history` on a clean commit of a branch"
    SENTENCE = "no run of a branch is there: of a clean commit, and of no pull request"


class BranchWithoutRun(Reason, frozen=True):
    """A history has no run of a branch."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "name a branch that has runs"

    branch: str
    others: tuple[str, ...]
    """The branches that it has runs of, those with the most first."""

    @property
    def sentence(self) -> str:
        there = f"; there are runs of {first_of(self.others)}" if self.others else ""
        return f"no run of the branch {self.branch} is there{there}"


class NoSuchBranch(Reason, frozen=True):
    """A repository has no branch of the name."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name a branch that `git branch --all` lists"
    SENTENCE = "{repository} has no branch {branch}"

    repository: str
    """Its folder."""
    branch: str


class NoCondition(Reason, frozen=True):
    """A text is no condition on a number."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "write it so"
    SENTENCE = "{written!r} is no condition: expected a number, a sign and a bound, such as 'kernels >= 6'"

    written: str


class NumberOfCondition(Reason, frozen=True):
    """A condition is on a number that there is not."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "write the nearest name, which the text has"

    written: str
    """The condition."""
    name: str
    near: str | None
    """The name that is meant."""
    known: tuple[str, ...]
    """All that there are, where none is near."""

    @property
    def sentence(self) -> str:
        return f"{self.written!r}: unknown number {self.name!r}; {choice_advice(self.near, self.known)}"

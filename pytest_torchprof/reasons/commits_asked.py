"""Reasons why an option names no commit of the repository."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.git_refusals import words_of_git
from pytest_torchprof.reasons.reason import Reason


class NoCommitNamed(Reason, frozen=True):
    """An option has nothing behind it where a commit is expected."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name a commit"
    SENTENCE = "{option}={reference}: a commit is expected, such as main; is a variable empty?"

    option: str
    reference: str


class NoSuchCommit(Reason, frozen=True):
    """Git knows no commit of the name."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name one that `git log` shows"

    option: str
    reference: str
    repository: str
    """Its folder."""
    error: str
    """Git's words."""
    status: int | None

    @property
    def sentence(self) -> str:
        absent = f"there is no such commit in {self.repository}. {words_of_git(self.error, self.status)}".rstrip(". ")
        return f"{self.option}={self.reference}: {absent}; git log shows those that there are"


class NoCommitWithText(Reason, frozen=True):
    """No commit has the text in its message by which one is named."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name one that `git log` shows"
    SENTENCE = "{option}={reference}: no commit of {repository} has this text in its message; git log shows them"

    option: str
    reference: str
    repository: str


class CommitOfRemote(Reason, frozen=True):
    """There is no branch of the name here, and there is one of the remote repository."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name it so"
    SENTENCE = "{option}={reference}: there is no such commit; there is {branch}: {option}={branch}"

    option: str
    reference: str
    branch: str
    """The one that there is."""


class NotInShallowClone(Reason, frozen=True):
    """The clone holds the last commits only, and not the one that is named."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "run that command"

    option: str
    reference: str
    command: str
    """The one that fetches it."""
    branch: str | None
    """The new name; None where it keeps its name."""

    @property
    def sentence(self) -> str:
        then = "" if self.branch is None else f", then name it {self.branch}"
        return (
            f"{self.option}={self.reference}: there is no such commit in this clone, which is shallow: it holds the "
            f"last commits only. Fetch it: {self.command}{then}"
        )


class BranchAndTag(Reason, frozen=True):
    """A branch and a tag of the name are at two commits."""

    CODE = Code.UNKNOWN_REF
    FOR_THE_DOCTOR = False
    ADVICE = "name it in one of these ways"
    SENTENCE = (
        "{option}={reference}: {name} is a branch, and a tag of another commit: say {option}=refs/heads/{name} or "
        "{option}=refs/tags/{name}"
    )

    option: str
    reference: str
    name: str

"""Reasons why git cannot be asked, or does not answer, about the repository of the tests."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


def words_of_git(error: str, status: int | None) -> str:
    """Return the text that git wrote, or else how it ended; ``status`` is None where others ended it."""
    return error or ("it was ended" if status is None else f"git ended with status {status}")


class NoGit(Reason, frozen=True):
    """There is no command git."""

    CODE = Code.NO_REPOSITORY
    FOR_THE_DOCTOR = False
    ADVICE = "install git"
    SENTENCE = "commits are measured, and there is no git on the PATH: install it"


class NoWorkingTree(Reason, frozen=True):
    """Pytest was started outside of any repository, or in one without files."""

    CODE = Code.NO_REPOSITORY
    FOR_THE_DOCTOR = False
    ADVICE = "start pytest in the repository of the tests"

    folder: str
    error: str
    """Git's words."""
    status: int | None

    @property
    def sentence(self) -> str:
        words = words_of_git(self.error, self.status)
        return f"commits are measured, and {self.folder} is in no working tree of git: {words}"


class TestsOutside(Reason, frozen=True):
    """Tests, or their settings, lie outside of the repository in which pytest was started."""

    __test__ = False
    CODE = Code.NO_REPOSITORY
    FOR_THE_DOCTOR = False
    ADVICE = "start pytest in that repository"
    SENTENCE = (
        "states of the repository {repository} are compared, and {folder} lies outside of it: start pytest in the "
        "repository that the tests are in"
    )

    repository: str
    folder: str


class ChangesUntold(Reason, frozen=True):
    """Git cannot say whether the working tree differs from its commit."""

    CODE = Code.NO_REPOSITORY
    FOR_THE_DOCTOR = False
    ADVICE = "correct what git names, such as a broken submodule"

    repository: str
    error: str
    """Git's words."""
    status: int | None

    @property
    def sentence(self) -> str:
        return f"git cannot say what has changed in {self.repository}: {words_of_git(self.error, self.status)}"


class BisectStopped(Reason, frozen=True):
    """Git has ended a search before its end."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "let git bring what its message names"

    error: str
    """Git's words."""
    status: int | None

    @property
    def sentence(self) -> str:
        return f"git bisect cannot go on: {words_of_git(self.error, self.status)}"

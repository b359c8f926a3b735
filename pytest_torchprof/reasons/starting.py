"""Reasons why the tests of a commit could not be started: its files are not to be had, or it cannot be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Union

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason, Verbatim


class _OfCommand:
    """About a command of the user, or of a Python that the user names."""

    __slots__ = ()
    installs: bool

    @property
    def code(self) -> Code:
        """The code that users know it by: what installs, or what is to run, is named by another option."""
        return Code.INSTALL_FAILED if self.installs else Code.BAD_OPTION


class CommandFailed(_OfCommand, Reason, frozen=True):
    """A command failed that installs a commit, or asks its Python what it has."""

    CODE = Code.INSTALL_FAILED
    ADVICE = "look at the end of its output, below the text"
    FOR_THE_DOCTOR = False

    command: str
    folder: str
    status: int
    last_lines: tuple[str, ...]
    """The end of its output."""
    installs: bool = True

    @property
    def sentence(self) -> str:
        first = f"{self.command} failed in {self.folder} with status {self.status}"
        return "\n  ".join([first, *self.last_lines])


class CommandNotRun(_OfCommand, Reason, frozen=True):
    """Such a command is not there, or cannot be run."""

    CODE = Code.INSTALL_FAILED
    ADVICE = "name a command that runs in that folder"
    FOR_THE_DOCTOR = False
    SENTENCE = "{command} cannot be run in {folder}: {error}"

    command: str
    folder: str
    error: str
    installs: bool = True


class FilesRefused(Reason, frozen=True):
    """Git does not give the files of the commit."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "the files of {commit} cannot be had from {repository}: {error}"
    ADVICE = "let git bring what its message names"

    commit: str
    repository: str
    error: str


class SubmoduleNotHere(Reason, frozen=True):
    """The commit has a submodule whose repository is not in the working tree."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "the commit has a submodule {name}, and its repository is not here"
    REMEDY = "bring it: git submodule update --init {name}"

    name: str


class SubmoduleLacksCommit(Reason, frozen=True):
    """The repository of a submodule does not have the commit that belongs to it."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "the submodule {name} does not have {commit}"
    REMEDY = "bring it: git -C {name} fetch origin {commit}"

    name: str
    commit: str


class LfsObjectMissing(Reason, frozen=True):
    """The content of a file is not in the store of git-lfs."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "{file}: its content in the commit is not in the store of git-lfs"
    REMEDY = "bring it: git lfs fetch origin {commit}"

    file: str
    commit: str


class LeftOver(Reason, frozen=True):
    """Something of another run cannot be removed."""

    CODE = Code.OBJECT_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "{path} is left over from another run and cannot be removed"
    REMEDY = "remove it"

    path: str


KINDS: Final[tuple[type[Reason], ...]] = (
    CommandFailed,
    CommandNotRun,
    FilesRefused,
    LeftOver,
    LfsObjectMissing,
    SubmoduleLacksCommit,
    SubmoduleNotHere,
    Verbatim,
)

if TYPE_CHECKING:
    AnyWhyNotStarted = Reason
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyWhyNotStarted = Union[KINDS]  # noqa: UP007 - of as many as there are


def as_why_not_started(reason: Reason) -> Reason:
    """Return a reason as one of those above, otherwise in its words."""
    return reason if isinstance(reason, KINDS) else Verbatim.of(reason.text, reason.code)

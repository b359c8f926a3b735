"""Reasons of comparing the working tree with a commit: one side has run, or read, what is not its own."""

from __future__ import annotations

from pytest_torchprof.codes import Code
from pytest_torchprof.reasons.reason import Reason

_INSTALL = "--torchprof-against-install=COMMAND"


class OtherSidesFile(Reason, frozen=True):
    """A file that differs was read from the other side."""

    CODE = Code.OTHER_CODE
    SENTENCE = "{where} the file {name} was read from {file}, which is the other side's and differs"
    REMEDY = f"let no absolute path, link or variable of the environment lead there, or use {_INSTALL}"

    where: str
    name: str
    file: str


class SharedModule(Reason, frozen=True):
    """Both sides have run the same code, which differs, as it counts as a test."""

    CODE = Code.OTHER_CODE
    SENTENCE = (
        "{where} {name} was run, which differs from the commit's: both sides run the working tree's, as testpaths "
        "takes its folder for tests alone"
    )
    REMEDY = "name a folder of tests alone, or use --torchprof-against-tests=own"

    where: str
    name: str


class IgnoredFileRead(Reason, frozen=True):
    """The commit cannot have a file that was read, since git ignores it."""

    CODE = Code.IGNORED_FILE
    SENTENCE = "in the working tree {name} was read, which git ignores, so that {commit} is without it"
    REMEDY = f"let {_INSTALL} make it on both sides, or let git track it"

    name: str
    commit: str


class OtherSidesCode(Reason, frozen=True):
    """A module or library was loaded from where it is not this side's."""

    CODE = Code.OTHER_CODE
    REMEDY = "{advice}"

    where: str
    module: str
    """Empty for a library that no module names."""
    file: str
    whose: str
    advice: str

    @property
    def sentence(self) -> str:
        what = f"the module {self.module} was imported" if self.module else "a library was loaded"
        return f"{self.where} {what} from {self.file}, {self.whose}"

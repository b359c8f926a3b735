"""Reasons that lie in what is to be said of a history: what a note, an alias or an acceptance is about."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import first_of

_ALL: Final = "::*"
"""Behind the name of a file or a class, it stands for all of its tests."""


class NothingOfId(Reason, frozen=True):
    """A branch has no event, or neither an event nor a commit, whose id begins so."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    REMEDY = "torchprof history changes STORE lists them"
    ADVICE = "`torchprof history changes STORE` lists them"

    beginning: str
    or_commit: bool

    @property
    def sentence(self) -> str:
        what = "event or commit" if self.or_commit else "event"
        return f"no {what} of this branch begins with {self.beginning!r}"


class SeveralOfId(Reason, frozen=True):
    """Several events or commits have an id that begins so."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{beginning!r} begins {ids:grouped} ids: give more digits"
    REMEDY = "torchprof history changes STORE --json has them whole"
    ADVICE = "give more digits; `torchprof history changes STORE --json` has them whole"

    beginning: str
    ids: int


class NameTakenBack(Reason, frozen=True):
    """A new name is itself an earlier name of the old one."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{new} is an earlier name of {old} already"
    ADVICE = "take that alias back first: give its old name twice"

    old: str
    new: str


class NoRemote(Reason, frozen=True):
    """A project is not named by the address of a repository's remote."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{argument} {address!r} is no address of a remote; expected one such as github.com/owner/name"

    argument: str
    address: str


class NoRecordOfProject(Reason, frozen=True):
    """No record of a history is of this project."""

    CODE = Code.NO_HISTORY
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those in the text"

    project: str
    projects: tuple[str, ...]
    """The projects of which it has records."""

    @property
    def sentence(self) -> str:
        known = first_of(self.projects) or "none that has a name"
        return f"the history has no record of the project {self.project}; it has {known}"


class OneForMany(Reason, frozen=True):
    """All tests of a file or a class are to become one, or the other way round."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = f"{{old}} and {{new}}: both end in {_ALL}, or none of them"

    old: str
    new: str


class NameOfNoTest(Reason, frozen=True):
    """A file or a folder is named where a test is expected."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    name: str
    is_file: bool
    """Whether it has the form of a test file, not that of a folder."""

    @property
    def sentence(self) -> str:
        if self.is_file:
            return self.words(f"{{name}} names no test: {{name}}{_ALL} stands for all tests of the file")
        example = f"'tests/test_old.py{_ALL}' 'tests/test_new.py{_ALL}'"
        expected = f"expected a test, or a file, such as {example}; of a folder each file has an alias of its own"
        return f"{self.name} names no test: {expected}"


class TwoTests(Reason, frozen=True):
    """A run has measured a test under the old name and one under the new name."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "the run {run} measured {old} and {new} alike: they are two tests, and no alias joins them"
    ADVICE = "leave them apart"

    run: str
    old: str
    new: str


class TextLength(Reason, frozen=True):
    """A text is empty, or too long to be kept."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False

    argument: str
    characters: int
    """Zero where there are blanks alone."""
    most: int

    @property
    def sentence(self) -> str:
        given = "has {characters:character}" if self.characters else "is blank"
        return self.words(f"{{argument}} {given}; expected 1 to {{most:character}}")

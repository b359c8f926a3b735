"""Reasons why a baseline file is not read; it is left as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.step_flaws import StepFlaw  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.unreadable import InsteadOfFile

_CANNOT: Final = "{path}: cannot read this baseline: "
_ANEW: Final = "restore it from version control, or delete it and record it again with --torchprof-baseline=update"


class _OfBaseline:
    """The base of reasons why a file is no baseline."""

    __slots__ = ()
    REMEDY = _ANEW
    if TYPE_CHECKING:
        remedy: str

        @property
        def sentence(self) -> str:
            """The facts in words."""

    @property
    def text(self) -> str:
        """The sentence, what to do, and what becomes of the file."""
        return f"{self.sentence}; {self.remedy}. The file is left as it is."


class BaselineTooLarge(_OfBaseline, Reason, frozen=True):
    """A baseline file is larger than any."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it is larger than any baseline ({{most_mib}} MiB)"

    path: str
    most_mib: int


class NoBaselineSchema(_OfBaseline, Reason, frozen=True):
    """A file is JSON without the number of a baseline's schema."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f'{_CANNOT}it is JSON, but no baseline (there is no top-level integer "schema")'

    path: str


class OldBaselineSchema(_OfBaseline, Reason, frozen=True):
    """A baseline has a schema that is not read any more."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it has schema {{schema}}, and this pytest-torchprof reads schema {{known}} alone"

    path: str
    schema: int
    known: int


class NoBaselineForm(_OfBaseline, Reason, frozen=True):
    """A file does not have the form of a baseline."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f'{_CANNOT}it does not have a baseline\'s form: an object with "schema" and "entries"'

    path: str


class TooManyEntries(_OfBaseline, Reason, frozen=True):
    """A baseline has more entries than any."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it has more than {{most:grouped}} entries"

    path: str
    most: int


class NoEntryForm(_OfBaseline, Reason, frozen=True):
    """An entry of a baseline does not have the form of one."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it does not have a baseline's form: {{name}}: {{error}}"

    path: str
    name: str
    error: str


class StepsFlawed(_OfBaseline, Reason, frozen=True):
    """The steps of an entry of a baseline are no steps."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False

    path: str
    name: str
    flaw: StepFlaw
    most: int | None = None
    """So many there may be at most."""
    written: str | None = None

    @property
    def sentence(self) -> str:
        cannot = self.words(f"{_CANNOT}it does not have a baseline's form: {{name}}: ")
        return f"{cannot}{self.flaw.words(self.most, self.written)}"


class TooManyLaunches(_OfBaseline, Reason, frozen=True):
    """A baseline has more launches than any."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it has more than {{most:grouped}} launches"

    path: str
    most: int


class BaselineNotUtf8(_OfBaseline, Reason, frozen=True):
    """A baseline file is no text."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it is not text in UTF-8"

    path: str


class BaselineEmpty(_OfBaseline, Reason, frozen=True):
    """A baseline file is empty."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it is empty"

    path: str


class BaselineCutOff(_OfBaseline, Reason, frozen=True):
    """A baseline file ends in the middle."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}its end is missing (cut off)"

    path: str


class BaselineNotJson(_OfBaseline, Reason, frozen=True):
    """A baseline file is not JSON."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it is not JSON (line {{line}}, column {{column}}: {{error}})"

    path: str
    line: int
    column: int
    error: str


class KeyTwice(_OfBaseline, Reason, frozen=True):
    """A baseline file has a key twice."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it has {{name}} twice (a merge kept both sides)"

    path: str
    name: str


class NoNumberThere(_OfBaseline, Reason, frozen=True):
    """A baseline file has something else where a number belongs."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it has {{value}} where a number belongs"

    path: str
    value: str


class JsonTooOdd(_OfBaseline, Reason, frozen=True):
    """A file is JSON that no baseline has, such as numbers of thousands of digits."""

    CODE = Code.BASELINE_DAMAGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}it is not the JSON of a baseline"

    path: str


class MergeMarkersLeft(_OfBaseline, Reason, frozen=True):
    """A merge has left its markers in a baseline file."""

    CODE = Code.BASELINE_MERGED
    FOR_THE_DOCTOR = False
    SENTENCE = f"{_CANNOT}a merge left its markers (<<<<<<<, >>>>>>>) in it"
    REMEDY = f"resolve it with `torchprof baseline resolve {{path}}`, or {_ANEW}"

    path: str


class NewerBaseline(Reason, frozen=True):
    """A newer version has written a baseline file."""

    CODE = Code.BASELINE_NEWER
    FOR_THE_DOCTOR = False
    ADVICE = "upgrade pytest-torchprof"
    SENTENCE = (
        "{path}: this baseline has schema {schema}, and this pytest-torchprof reads schema {known}: install a newer "
        "pytest-torchprof; the file is left as it is"
    )

    path: str
    schema: int
    known: int


class BaselineNotOpened(Reason, frozen=True):
    """The system does not allow a baseline file to be read."""

    CODE = Code.BASELINE_UNREADABLE
    FOR_THE_DOCTOR = False
    ADVICE = "let the file be read, as the system's reason says"
    SENTENCE = f"{_CANNOT}{{error}}"

    path: str
    error: str


class BaselineSpecial(Reason, frozen=True):
    """A pipe, a socket or a device lies where a baseline belongs."""

    CODE = Code.BASELINE_UNREADABLE
    FOR_THE_DOCTOR = False
    ADVICE = "put the baseline's file there"
    SENTENCE = f"{_CANNOT}{InsteadOfFile.SPECIAL}"

    path: str


class MergeSideUnreadable(Reason, frozen=True):
    """One side of a merge is no baseline."""

    CODE = Code.BASELINE_MERGED
    FOR_THE_DOCTOR = False
    ADVICE = "take one side as a whole, or write the file anew with `--torchprof-baseline=update`"
    SENTENCE = (
        "{path}: this merge cannot be resolved: what the markers tell of {side} is no baseline, as where only one side "
        "was written by an older version of the plugin. Take one side as a whole (git checkout --ours or --theirs "
        "FILE), or write it anew with --torchprof-baseline=update. The file is left as it is."
    )

    path: str
    side: str
    """Its name in git: "ours" or "theirs"."""

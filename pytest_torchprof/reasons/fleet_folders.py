"""Reasons that lie in the folder of a fleet: it cannot be written, or what it holds cannot be read or handed on."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason

_STAYS: Final = "What was judged so far stays; the same command goes on from there."


class FleetNotWritten(Reason, frozen=True):
    """The folder of a run, or a file in it, cannot be written."""

    CODE = Code.REPORT_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    ADVICE = "mend what the error says, or name another folder with `--into`"

    folder: str
    error: str
    has_begun: bool = True
    """Whether files may have been judged already."""

    @property
    def sentence(self) -> str:
        after = _STAYS if self.has_begun else "Nothing was judged. Mend that, or name another folder with --into."
        return f"{self.folder}: cannot be written: {self.error}. {after}"


class FleetNotRead(Reason, frozen=True):
    """The store in which a run has its folder does not give what is there."""

    CODE = Code.REPORT_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = f"{{folder}}: cannot be read: {{error}}. {_STAYS}"
    ADVICE = "repeat the command when the store can be read"

    folder: str
    error: str


class NoFolderOfFleet(Reason, frozen=True):
    """A folder has no list, with which each run begins."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder}: is no folder of a fleet: it has no {file}"
    REMEDY = "torchprof fleet run --into makes one"
    ADVICE = "name a folder that `torchprof fleet run --into` has made"

    folder: str
    file: str
    """The list's name."""


class OtherListSchema(Reason, frozen=True):
    """The list of a run has a schema that this version does not read."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: expected schema {known}, got {schema}: another version has written it. Name another folder."
    ADVICE = "name another folder, or read it with the version that wrote it"

    path: str
    schema: int
    known: int


class ListNotRead(Reason, frozen=True):
    """The list of a run is damaged, or no list."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: is no list of a fleet that this version reads: {error}. Name another folder."
    ADVICE = "name another folder"

    path: str
    error: str


class FleetRecordDamaged(Reason, frozen=True):
    """A record in a part is JSON, and no record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{path}: a record in it cannot be read: {error}. Remove this part, and torchprof fleet run judges its files "
        "again."
    )
    ADVICE = "remove this part, and `torchprof fleet run` judges its files again"

    path: str
    """The part's."""
    error: str


class ListWithoutOrigin(Reason, frozen=True):
    """A run is to go into a history, and its list does not say when it was made."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{folder}: the list is one of an earlier version, which does not say when and of which commit it was made"
    )
    REMEDY = "run it into another folder"

    folder: str


class TooManyForHistory(Reason, frozen=True):
    """A run is to go into a history, and has more files than a record holds."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder}: {files:file}, and a run in a history has at most {most:grouped}"
    REMEDY = "run them into several folders"

    folder: str
    files: int
    most: int


class FilesWithoutRecord(Reason, frozen=True):
    """Files of a run are neither judged nor refused, and all are asked for."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder}: {missing:file} of {files:grouped} {missing:has|have} no record"
    REMEDY = "torchprof fleet run judges them"
    MEANING = "the run was stopped, or records were removed from its folder or cannot be read any more"
    ADVICE = "judge them with `torchprof fleet run`"

    folder: str
    missing: int
    files: int

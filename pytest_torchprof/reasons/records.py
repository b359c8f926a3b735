"""Reasons why a file is no record of a run, or why a history does not take the record in it."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import KnownAsItsCause, Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import InsteadOfFile


class OfRecord(KnownAsItsCause, Reason, frozen=True):
    """The fault of one record."""

    FOR_THE_DOCTOR = False

    record: str
    """Its file, its place in an archive or a store, or its id."""
    why: decoding.AnyReason

    @property
    def text(self) -> str:
        return f"{self.record}: {self.why.text}"


class InTheWay(KnownAsItsCause, Reason, frozen=True):
    """A record is not taken, since a damaged one lies in its place."""

    FOR_THE_DOCTOR = False

    why: decoding.AnyReason
    """The fault of the damaged one."""
    file: str

    @property
    def text(self) -> str:
        return f"{self.why.text}; it is in the way of its good copy: remove {self.file}, and import that again"


class NoRecordOfRun(Reason, frozen=True):
    """The content of a file does not have the form of a record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "no record of a run: {error}"

    error: str


class ContentInstead(Phrase):
    """The content of a file that does not begin as records do."""

    NOTHING = "nothing", "the file is empty"
    ZIP = "zip", "it is a ZIP archive, and is not called .zip"
    BINARY = "binary", "it is binary data"
    TEXT = "text", "it is a text"


class OtherContent(Reason, frozen=True):
    """A file does not begin as records do."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "no record of a run: {content}"

    content: ContentInstead


class RecordCutOff(Reason, frozen=True):
    """The compressed data of a record end too early."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "cut off: it ends in the middle of its gzip data"


class RecordGzipDamaged(Reason, frozen=True):
    """The compressed data of a record cannot be unpacked."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "damaged: its gzip data cannot be unpacked"


class MoreBehindEnd(Reason, frozen=True):
    """The file of a record has more than its record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "something stands behind its end"


class LargerThanRecords(Reason, frozen=True):
    """A file is larger than any record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False

    most_mib: int
    unpacked: bool = False
    """Whether it is so large when unpacked."""

    @property
    def sentence(self) -> str:
        unpacked = " when unpacked" if self.unpacked else ""
        return f"larger than {self.most_mib} MiB{unpacked}, which no run's record is"


class RecordUnreadable(Reason, frozen=True):
    """The system, a store or an archive does not give a record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "cannot be read: {error}"

    error: str


class NoFileOfRecord(Reason, frozen=True):
    """A pipe, a socket or a device has the name of a record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = InsteadOfFile.SPECIAL.text


class LinkOut(Reason, frozen=True):
    """The name of a record is a link to somewhere else."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "is a link that leads out of {folder}"

    folder: str


class ArchiveInArchive(Reason, frozen=True):
    """An archive holds another one."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "unpack the inner archive first"
    SENTENCE = "is an archive within an archive: unpack it first"


class NoNote(Reason, frozen=True):
    """The entry of a history that should be a note is none."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "no note: {error}"

    error: str


class LaterRecord(Reason, frozen=True):
    """A later version has written the record."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "upgrade pytest-torchprof"
    SENTENCE = "of schema {schema}, written by a newer pytest-torchprof than this: update it"

    schema: int


class FiguresAlone(Reason, frozen=True):
    """An earlier version has recorded nothing of what reports tell."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "make the report of a later run"
    SENTENCE = "pytest-torchprof {version} recorded figures alone"

    version: str


class ResultsUnreadable(Reason, frozen=True):
    """The results in a record have a form that this version does not know."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "upgrade pytest-torchprof"
    SENTENCE = "what pytest-torchprof {version} recorded there for reports cannot be read: {error}"

    version: str
    error: str


class BeyondDatabases(Reason, frozen=True):
    """A record has numbers or dates that no database holds."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    SENTENCE = "has what no database can hold: {error}"

    error: str


class SameId(Reason, frozen=True):
    """A store has another record under the id of one that it is to take."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "keep one of the two records"
    SENTENCE = "{record} is another record of the same id, and stays as it is"

    record: str


class OfOtherProject(Reason, frozen=True):
    """A record is of another project than the history."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    ADVICE = "keep it in the history of its own project"
    SENTENCE = "of the project {project}, and this is the history of {history}"

    project: str
    history: str
    """The project of the history."""


class ProjectUnknown(Reason, frozen=True):
    """Whether a record is of the history's project is not known."""

    CODE = Code.BAD_RECORD
    FOR_THE_DOCTOR = False
    REMEDY = "{option} takes it"

    option: str
    project: str | None
    """The project of the record; None where it names none."""
    history: str | None
    """The project of the history; None where its records name none."""
    in_repository: bool
    """Whether the run was in a repository."""

    @property
    def sentence(self) -> str:
        history = "of runs that name no project" if self.history is None else f"of {self.history}"
        if not self.in_repository:
            return f"the run was in no repository, and this is the history {history}"
        run = "its repository has no remote origin" if self.project is None else f"of the project {self.project}"
        return f"{run}, and this is the history {history}, of which it knows no commit"

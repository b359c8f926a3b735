"""Reasons why a file that a command makes is not written, or a report that it made is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason

if TYPE_CHECKING:
    from pathlib import Path


class FileNotWritten(Reason, frozen=True):
    """The system does not let a command write its file."""

    CODE = Code.REPORT_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    ADVICE = "name a file that can be written, or make room on the disk"
    SENTENCE = "{path} cannot be written: {error}"

    path: str
    error: str

    @classmethod
    def of(cls, path: Path | str, problem: OSError) -> FileNotWritten:
        """Return the reason that the system gives."""
        return cls(str(path), problem.strerror or str(problem))


class OutputNotWritten(Reason, frozen=True):
    """The system does not let a command write to its standard output."""

    CODE = Code.REPORT_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    ADVICE = "make room where the output goes"
    SENTENCE = "the output cannot be written: {error}."

    error: str


class NoReport(Reason, frozen=True):
    """A file that is to be a report is no JSON."""

    CODE = Code.RECORDING_DAMAGED
    FOR_THE_DOCTOR = False
    ADVICE = "write it again with `pytest --torchprof-report=FILE.json`"
    SENTENCE = "{path}: is no JSON report: {error}"

    path: str
    error: str


class NewerReport(Reason, frozen=True):
    """A newer version has written a report."""

    CODE = Code.RECORDING_NEWER
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: was written by a newer pytest-torchprof (schema {schema}, this version reads {known})"
    REMEDY = "upgrade it"
    ADVICE = "upgrade pytest-torchprof"

    path: str
    schema: int
    known: int


class OtherReportForm(Reason, frozen=True):
    """A report is JSON, and holds something else than this version writes."""

    CODE = Code.RECORDING_DAMAGED
    FOR_THE_DOCTOR = False
    ADVICE = NoReport.ADVICE
    SENTENCE = "{path}: is no JSON report as this version writes it: {error}"
    REMEDY = "write it again"

    path: str
    error: str


class EarlierReport(Reason, frozen=True):
    """An earlier version has written a report that this one cannot tell of."""

    CODE = Code.RECORDING_DAMAGED
    FOR_THE_DOCTOR = False
    ADVICE = NoReport.ADVICE
    SENTENCE = "{path}: was written by an earlier version of pytest-torchprof, which kept other facts of limits"
    REMEDY = "write it again"

    path: str

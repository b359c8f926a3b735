"""Reasons why a baseline or a recording cannot be written where it should be."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class BaselineBehindLink(Reason, frozen=True):
    """The folder of a baseline is a link."""

    CODE = Code.BASELINE_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: not written: {folder} is a link, and nothing is written through it"
    REMEDY = "remove it, or choose another folder with --torchprof-baseline-dir"

    path: str
    folder: str


class BaselineLocked(Reason, frozen=True):
    """Another process writes baselines into the same folder, and does not end."""

    CODE = Code.BASELINE_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: not written: another process has held {lock} for {waited_s} s"
    REMEDY = "end it, then update again"

    path: str
    lock: str
    waited_s: int


class BaselineNotWritten(Reason, frozen=True):
    """The system does not let a baseline be written."""

    CODE = Code.BASELINE_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    ADVICE = "do what it says behind the error"
    _ROOM = "make room on the disk"
    _WRITABLE = "make the folder writable"

    path: str
    error: str
    is_full: bool = False
    """Whether the disk has no room left."""

    @property
    def sentence(self) -> str:
        do = self._ROOM if self.is_full else self._WRITABLE
        return (
            f"{self.path}: the baseline was not written ({self.error}); what was there is unchanged: {do}, or choose "
            "another with --torchprof-baseline-dir"
        )


class BaselineTooLargeToWrite(Reason, frozen=True):
    """A file of baselines would be larger than one may be."""

    CODE = Code.BASELINE_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: not written: it would be larger than {most_mib} MiB"
    REMEDY = "divide the test file"

    path: str
    most_mib: int


class RecordingBehindLink(Reason, frozen=True):
    """The folder of failures' recordings is a link."""

    CODE = Code.RECORDING_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "the recording of {test} cannot be kept: {folder} is a link, and nothing is written through it"
    REMEDY = "remove it"

    test: str
    folder: str


class RecordingNotKept(Reason, frozen=True):
    """The system does not let a recording be written."""

    CODE = Code.RECORDING_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "the recording {path} cannot be kept: {error}"
    ADVICE = "make the folder writable, or make room on the disk"

    path: str
    error: str


class RecordingNotCopied(Reason, frozen=True):
    """A recording cannot be copied to another file."""

    CODE = Code.RECORDING_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = "{source} cannot be saved as {path}: {error}."
    ADVICE = "name a file that can be written"

    source: str
    """The recording's path."""
    path: str
    error: str


class HalfCharacter(Reason, frozen=True):
    """A name holds a lone surrogate, which no file can."""

    CODE = Code.RECORDING_NOT_WRITTEN
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{written} cannot be written into a recording: it holds half of a character (a lone surrogate). Name the test "
        "or the label otherwise."
    )
    ADVICE = "name the test or the label otherwise"

    written: str

"""Reasons of files among many recordings: they were not judged, and are kept apart."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.signals import signal_name


class ChangedSinceListed(Reason, frozen=True):
    """The file is another one than was listed."""

    CODE = Code.RECORDING_CHANGED
    FOR_THE_DOCTOR = False
    SENTENCE = "the file was replaced or written to after it was listed"
    REMEDY = "judge it in a run of its own, into another folder"
    MEANING = "its size, the time of its last change or its ETag is not what it was when the run began"


class WorkerDied(Reason, frozen=True):
    """The process that judged the file ended, alone too."""

    CODE = Code.WORKER_DIED
    FOR_THE_DOCTOR = False
    ADVICE = "run `torchprof analyze` on the file, which shows what happens; please report a crash with the file"

    status: int
    """As Python has it: minus the signal that ended it."""

    @property
    def sentence(self) -> str:
        how = signal_name(-self.status) if self.status < 0 else f"exit status {self.status}"
        return f"the process that had this file alone ended with {how}, at each try"


class TookTooLong(Reason, frozen=True):
    """The file took longer than files may, alone too."""

    CODE = Code.TOOK_TOO_LONG
    FOR_THE_DOCTOR = False
    SENTENCE = "it took more than {limit_us:us}, even when tried alone"
    REMEDY = "give files more time with --timeout, or record fewer steps"

    limit_us: float


class TookTooMuchMemory(Reason, frozen=True):
    """The file took more memory than files may, alone too."""

    CODE = Code.OUT_OF_MEMORY
    FOR_THE_DOCTOR = False
    SENTENCE = "it takes more than {limit:bytes} of memory, even when tried alone"
    REMEDY = "give files more with --memory, or record fewer steps"

    limit: int


class JudgingFailed(Reason, frozen=True):
    """Our own code, or a plugin's, raised an error."""

    CODE = Code.JUDGING_FAILED
    FOR_THE_DOCTOR = False
    SENTENCE = "judging it raised {error:line}"
    ADVICE = "please report it, with the file if you can"

    error: str

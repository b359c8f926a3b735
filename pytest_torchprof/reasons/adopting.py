"""Reasons of recordings that other processes leave, and of those that are replayed: they are not what was asked for."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import InsteadOfFile  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import first_of, printable_line


class NoFileThere(Reason, frozen=True):
    """Something other than a file lies where a recording is expected."""

    CODE = Code.NO_RECORDING
    SENTENCE = "{file} is not a recording: {instead}"
    ADVICE = "give the path of a file that torch.profiler wrote"

    file: str
    instead: InsteadOfFile


class PerfettoFile(Reason, frozen=True):
    """A recording was left in Perfetto's own format."""

    CODE = Code.NO_RECORDING
    SENTENCE = "{file} is in Perfetto's own format (.pftrace), not JSON"
    REMEDY = 'let the recording be written under a name that ends in ".json" or ".json.gz"'

    file: str


class TooManyRecordings(Reason, frozen=True):
    """More recordings were left than the test expects."""

    CODE = Code.OTHER_FILE_COUNT
    REMEDY = 'say how many there are (files={found}, or "any")'
    MEANING = "more processes recorded, or one recorded twice"

    found: int
    wanted: int
    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return self.words("there are {found} recordings, and {wanted} {wanted:was|were} expected: ") + first_of(
            self.files
        )


class TooFewRecordings(Reason, frozen=True):
    """Fewer recordings were left than the test expects."""

    CODE = Code.OTHER_FILE_COUNT
    MEANING = "a process has not recorded, or not yet"
    ADVICE = "as for [no-recording-left](#no-recording-left)"

    wanted: str
    after_s: float | None
    """For how long they were waited for; None if they were not."""
    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        files = len(self.files)
        are = "is" if files == 1 else "are"
        return f"{files} of {self.wanted} recordings {are} there{_after(self.after_s)}: {first_of(self.files)}"


class NoRecordingLeft(Reason, frozen=True):
    """No recording was left."""

    CODE = Code.NO_RECORDING_LEFT
    MEANING = "what `torchprof.adopt` called left no recording of torch.profiler in the folder within the timeout"
    ADVICE = (
        "let it write to the folder that it is given; make it wait until the profiler has stopped; raise "
        "`timeout=`. With torch 2.15's `CuspyConfig` a profiler of another process skips its export, with one "
        "warning, where it could not register (*Cuspy observer unavailable*), and writes late with "
        "`cuspy_async_export`: call `wait_for_exports()`"
    )

    after_s: float | None
    """For how long one was waited for; None if it was not."""
    others: tuple[str, ...]
    """Files of JSON that are no recordings."""

    @property
    def sentence(self) -> str:
        beside = f"; JSON without a trace's events is in {first_of(self.others)}" if self.others else ""
        return f"no recording (.json or .json.gz) was left there{_after(self.after_s)}{beside}"


class ExportSkipped(Reason, frozen=True):
    """Recordings are missing, and a profiler of this process has skipped its export."""

    CODE = Code.NO_RECORDING_LEFT
    REMEDY = "record without CuspyConfig, or remove whatever keeps it from CUPTI"
    MEANING = "torch 2.15 goes on without a recording where its monitor has no CUPTI of 13.2 or newer for itself"

    because: str
    """The message of the monitor."""
    there: int
    after_s: float | None
    """For how long the others were waited for; None if they were not."""

    @property
    def sentence(self) -> str:
        return self.words(
            "torch's own monitor of CUPTI (CuspyConfig) could not register ({because}), and a profiler then skips "
            "its export: {there:recording} {there:is|are} there"
        ) + _after(self.after_s)


class StillUnnamed(Reason, frozen=True):
    """A recording is still being written under another name."""

    CODE = Code.UNFINISHED_RECORDING
    MEANING = "there is a file such as `trace.json.tmp`, which its writer renames when it is complete"
    ADVICE = "wait for it in the function; raise `timeout=`"

    file: str
    after_s: float | None

    @property
    def sentence(self) -> str:
        still = "it is still being written, or its writer is dead"
        return f"{printable_line(self.file)} does not have its own name yet{_after(self.after_s)}: {still}"


class StillIncomplete(Reason, frozen=True):
    """A recording has no end yet."""

    CODE = Code.UNFINISHED_RECORDING
    MEANING = "its writer was not done when the time was over, or has died"
    ADVICE = "wait for it in the function; raise `timeout=`"

    file: str
    after_s: float | None

    @property
    def sentence(self) -> str:
        return f"{self.file} is still incomplete{_after(self.after_s)}: whoever writes it is slow (timeout=), or dead"


class WrittenBefore(Reason, frozen=True):
    """A recording was written before the call that was to make it."""

    CODE = Code.STALE_RECORDING
    MEANING = "the file was there before: it would satisfy the limits, whatever the code does now"
    ADVICE = (
        "remove what earlier runs leave; to judge an earlier file on purpose, give its path instead of the function"
    )

    file: str
    early_s: float

    @property
    def sentence(self) -> str:
        early = _seconds(self.early_s)
        return f"{self.file} was written {early} before the call that was to make it: it is of something else"


class CopiedRecording(Reason, frozen=True):
    """A recording is a copy of an older one."""

    CODE = Code.STALE_RECORDING
    MEANING = "the file is new, but its contents are not"
    ADVICE = (
        "remove what earlier runs leave; to judge an earlier file on purpose, give its path instead of the function"
    )

    file: str
    early_s: float

    @property
    def sentence(self) -> str:
        early = _seconds(self.early_s)
        return f"{self.file} is a copy: by its time stamps it ended {early} before the call that was to make it"


class OneTellsNoRank(Reason, frozen=True):
    """Some of several recordings say which rank they are of, and others do not."""

    CODE = Code.MIXED_JOBS
    SENTENCE = "the recordings are not of one job: {silent} does not say which rank it is of, and {other} does"

    silent: str
    other: str


class DifferentJobSizes(Reason, frozen=True):
    """Recordings are of jobs of different numbers of processes."""

    CODE = Code.MIXED_JOBS

    sizes: tuple[tuple[str, int | None], ...]
    """Each file, and of how many processes its job is."""

    @property
    def sentence(self) -> str:
        each = ", ".join(f"{file} of {size or 'an unknown number'}" for file, size in self.sizes)
        return f"the recordings are not of one job: they are of different numbers of processes: {each}"


class RankTwice(Reason, frozen=True):
    """Several recordings are of the same rank."""

    CODE = Code.MIXED_JOBS

    files: tuple[str, ...]
    rank: int

    @property
    def sentence(self) -> str:
        return f"the recordings are not of one job: {' and '.join(self.files)} are both of rank {self.rank}"


class RecordingTwice(Reason, frozen=True):
    """Several files hold the same recording."""

    CODE = Code.MIXED_JOBS

    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"the recordings are not of one job: {' and '.join(self.files)} are the same recording"


class OtherDevice(Reason, frozen=True):
    """A recording was made on another device than the test asks for."""

    CODE = Code.REPLAY_MISMATCH
    SENTENCE = "{file} was recorded on the {device}, and the test asks for {asked}"
    ADVICE = "record it again on the device that the test asks for"

    file: str
    device: str
    asked: str


class NothingToReplay(Reason, frozen=True):
    """The folder of a replay has no recording of a measurement."""

    CODE = Code.REPLAY_MISSING
    FOR_THE_DOCTOR = False

    test: str
    label: str | None
    folder: str
    file: str
    """The name under which it would be there."""
    ranks: tuple[tuple[int, int], ...]
    """The ranks whose recordings of it are there: the number of each, and of how many it was one."""

    @property
    def sentence(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"no recording of {self.test}{label} in {self.folder}: expected {self.file}"

    @property
    def remedy(self) -> str:
        record = f"record it with: pytest {self.test!r} --torchprof-save={self.folder}"
        if not self.ranks:
            return record
        there = ", ".join(f"rank {number} of {world}" for number, world in self.ranks)
        number, world = self.ranks[0]
        replay = f"RANK={number} WORLD_SIZE={world} pytest {self.test!r} --torchprof-replay={self.folder}"
        return f"there are those of {there}, which are judged by the same rank, also alone: {replay}; or {record}"


class GpuWorkForCpu(Reason, frozen=True):
    """A recording of a GPU is to be judged as one of the CPU."""

    CODE = Code.NOT_IN_RECORDING
    SENTENCE = "{file} holds work of a GPU, so the cpu is not what was measured"
    ADVICE = 'judge it without `device="cpu"`'

    file: str


class SignOfGpu(Phrase):
    """Why work of a GPU should be in a recording."""

    ASKED = "asked", "the test asks for"
    REQUIRED = "required", "--torchprof-require-gpu asks for it"
    IN_RECORDING = "in-recording", "the process that made it saw a GPU"
    HERE = "here", "this machine has a GPU"


class NothingOfGpu(Reason, frozen=True):
    """A recording shows nothing of the GPU that should be in it."""

    CODE = Code.NO_GPU_SIDE
    REMEDY = 'record it with ProfilerActivity.CUDA; where the CPU was to be measured, say device="cpu" in the marker'
    MEANING = "an adopted recording shows nothing of the GPU that its process saw, or that the test asks for"

    file: str
    sign: SignOfGpu
    asked: str | None = None
    """The device that the test asks for, where that is the sign."""

    @property
    def sentence(self) -> str:
        why = f"{self.sign} {self.asked}" if self.sign is SignOfGpu.ASKED else self.sign.text
        return f"{self.file} has no GPU operation and no launch, and {why}"


class OtherNumberAdopted(Reason, frozen=True):
    """Another number of recordings was adopted than the test asks for."""

    CODE = Code.OTHER_FILE_COUNT
    ADVICE = "adopt as many as `files=` or `ranks=` says"
    SENTENCE = "{adopted:recording} of this test {adopted:was|were} adopted together, and it asks for {asked}"

    adopted: int
    asked: str


class RanksNotAdopted(Reason, frozen=True):
    """Recordings of some ranks are not there, and all are asked for."""

    CODE = Code.NO_RANK
    REMEDY = "where these ranks are enough, say files={there}"
    MEANING = "the job has more ranks than there are recordings, so limits may be missed where nobody looks"
    ADVICE = "add the missing recordings; where these are enough, say so in the test (`files=2`)"

    missing: tuple[int, ...]
    there: int

    @property
    def sentence(self) -> str:
        rank, them = ("ranks", "them") if len(self.missing) > 1 else ("rank", "it")
        return f"no recording of {rank} {', '.join(map(str, self.missing))}: nothing is known of {them}"


def _after(after_s: float | None) -> str:
    return "" if after_s is None else f" after {after_s:g} s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{int(seconds):,} s"

"""Reasons that a recording itself gives: it lacks something, or is not of what was to be measured."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import AnyWhyUnreadable  # noqa: TC001 - msgspec reads the annotations


class _NotRead:
    """The base of reasons that something cannot be read, for a cause that users look up."""

    __slots__ = ()
    cause: AnyWhyUnreadable

    @property
    def code(self) -> Code:
        """The code that users know it by."""
        return self.cause.CODE


class Unreadable(_NotRead, Reason, frozen=True):
    """The file cannot be read as a recording."""

    FOR_THE_DOCTOR = False

    cause: AnyWhyUnreadable

    @property
    def sentence(self) -> str:
        return self.cause.sentence


class UnreadableFile(_NotRead, Reason, frozen=True):
    """A file that somebody has asked for cannot be read as a recording."""

    FOR_THE_DOCTOR = False

    path: str
    cause: AnyWhyUnreadable

    @property
    def sentence(self) -> str:
        return self.cause.of_file(self.path)


class RecordedElsewhere(Reason, frozen=True):
    """A recording says that another device was measured than is asked for."""

    CODE = Code.NOT_IN_RECORDING
    FOR_THE_DOCTOR = False
    SENTENCE = "its device is {recorded}, not {asked}"
    ADVICE = "leave `--device` out"

    recorded: str
    asked: str


class GpuWasMeasured(Reason, frozen=True):
    """A recording has a GPU's work, and is asked for as the recording of a device without launches."""

    CODE = Code.NOT_IN_RECORDING
    FOR_THE_DOCTOR = False
    SENTENCE = "it has {operations:GPU operation}, so the {asked} is not what was measured"
    ADVICE = "leave `--device` out"

    operations: int
    asked: str


class UnknownWork(Reason, frozen=True):
    """Work of an unknown kind ran on the GPU."""

    CODE = Code.UNKNOWN_WORK
    SENTENCE = (
        "{events:event} on a stream of the category {category:name}, which is not known: they may be kernels, copies "
        "or fills"
    )
    MEANING = "the recording was made by a profiler that calls the GPU's work otherwise, or was changed since"
    ADVICE = "record it with torch.profiler; report the category, with the version of what wrote it"

    events: int
    category: str


class NoOperator(Reason, frozen=True):
    """A recording of the CPU holds no operator."""

    CODE = Code.NOTHING_RAN
    SENTENCE = "the recording has no operator"
    ADVICE = "let the measured code compute something; record with `ProfilerActivity.CPU`"


class MadeWithoutGpu(Reason, frozen=True):
    """Neither GPU operations nor launches are in the recording."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "the recording has no GPU operation and no launch: it was made without the GPU"
    REMEDY = (
        'where the CPU was to be measured, say so: --device cpu, load(path, device="cpu"), or device = "cpu" in a rule '
        "of a fleet"
    )
    ADVICE = (
        "record it with `ProfilerActivity.CUDA`; if the CPU was to be measured, use `--device cpu`, `load(path, "
        'device="cpu")`, or `device = "cpu"` in a rule of a fleet'
    )


class GpuNotRecorded(Reason, frozen=True):
    """The recording lists a GPU, and neither its operations nor launches are in it."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = (
        "the recording lists a GPU ({name:line}) and has no GPU operation and no launch: the profiler did not record "
        "the GPU, or nothing was launched"
    )
    REMEDY = (
        "record with ProfilerActivity.CUDA; where the CPU was to be measured, say so: --device cpu, load(path, "
        'device="cpu"), or device = "cpu" in a rule of a fleet'
    )
    MEANING = "the machine has a GPU, and the profiler did not record it, or nothing was launched"

    name: str


class NoLaunches(Reason, frozen=True):
    """GPU operations ran, and no launch is in the recording."""

    CODE = Code.LOST_LAUNCHES
    SENTENCE = "no launch is in the recording, and {operations:GPU operation} ran: events were lost"
    MEANING = "the profiler lost all launches, so nobody knows which step the operations belong to"
    ADVICE = "record it again"

    operations: int


class CompiledBefore(Reason, frozen=True):
    """A graph of Inductor's ran that was compiled without ranges around its kernels."""

    CODE = Code.COMPILED_BEFORE
    SENTENCE = (
        "compiled before the measurement: a graph of Inductor's was compiled without kernel profiling, so that its C++ "
        "kernels leave no event ({graph})"
    )
    REMEDY = "compile it in the measured code, or set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"
    MEANING = "Inductor compiled the code for the CPU before the plugin could see its kernels"

    graph: str
    """The path of its code, else its hash."""


class Absent(Phrase):
    """A part that a recording lacks, from which a number would be worked out."""

    LAUNCHES = "launches", "the recording has GPU operations without their launches"
    CALLS = "calls", "the recording has GPU operations and no calls of the runtime, so waits cannot be told"
    CPU_WORK = "cpu-work", "the recording has no operator, no call and no range of the CPU"
    GPU_WORK_OF_STEP = "gpu-work-of-step", "a step has no GPU operations"
    GPU_WORK = "gpu-work", "the recording has no GPU operations"
    BLOCKS = "blocks", "the recording's kernels carry no `blocks per SM` (ROCm and old recordings do not)"
    PEAK_MEMORY = "peak-memory", "the recording does not hold the allocator's peak memory"


class NumberNotRecorded(Reason, frozen=True):
    """The recording does not hold a number."""

    CODE = Code.NOT_RECORDED

    number: str
    absent: Absent | None = None
    """The fact for want of which the number is not known; None if the number itself is missing."""

    @property
    def sentence(self) -> str:
        return f"the recording does not hold {self.number}" if self.absent is None else self.absent.text


class NeedsGpu(Reason, frozen=True):
    """A limit is on something that only a GPU has."""

    CODE = Code.NEEDS_GPU
    SENTENCE = "device {device:name} has no {what}; this limit needs a GPU"
    ACTION = "run it on a machine with a GPU, without device='cpu', or deselect it on this machine"
    ADVICE = f"{ACTION}; or replay a recording of a GPU"

    device: str
    what: str


class OneRankAlone(Reason, frozen=True):
    """Something is asked of all ranks, and the recording is one rank's."""

    CODE = Code.ONE_RANK
    SENTENCE = "one rank's recording says nothing of the others"
    MEANING = "`profile.ranks` needs the recordings of all ranks together"
    ADVICE = (
        "adopt them together (`files=`), or check the folder with `torchprof check DIR --ranks`; `load_ranks(DIR)` "
        "reads a folder of them"
    )


class NoRecordingOfRank(Reason, frozen=True):
    """The recordings of a job lack one rank's."""

    CODE = Code.NO_RANK
    SENTENCE = "there is no recording of rank {rank}; there are those of {there}"
    MEANING = "`profile.ranks[2]` was looked up"
    ADVICE = "use a rank that is there"

    rank: int
    there: str


class NothingWasRun(Reason, frozen=True):
    """The code's result is asked of a recording that was read."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "there is no result: the profile was read from a recording, the code was not run"
    MEANING = "a recording that was loaded holds no values"
    ADVICE = "measure the code, or do without `profile.result`"


class BuiltInMemory(Reason, frozen=True):
    """A trace was made by a program and read from no file."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "save what was read from a file"
    SENTENCE = "this trace was built in memory; there is no recording to save"


class RecordingGone(Reason, frozen=True):
    """The recording of a measurement was removed when its test had ended."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "call `save()` in the test, or keep all recordings"
    SENTENCE = (
        "The recording {file} is gone: that of a measurement is kept until its test has ended. Call save() in the test "
        "itself, or keep all recordings with --torchprof-save=DIR."
    )

    file: str


class NoTracesThere(Reason, frozen=True):
    """A folder holds no trace."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "check the path"

    folder: str
    json_files: int
    """So many files in it are JSON, and no trace."""

    @property
    def sentence(self) -> str:
        beside = "no file in it ends in .json or .json.gz"
        if self.json_files:
            beside = f"none of its {self.json_files} JSON files is one"
        return f"There are no traces in the folder {self.folder}: {beside}. Check the path."


class NoFolderOfRanks(Reason, frozen=True):
    """The recordings of a job's ranks are looked for in what is no folder."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "name a folder"
    SENTENCE = "{path} is no folder: expected one with the recordings of a job's ranks, a file for each"

    path: str


class NoSuchStep(Reason, frozen=True):
    """A recording has no step of this name."""

    CODE = Code.NOT_IN_RECORDING
    FOR_THE_DOCTOR = False
    ADVICE = "name one of those"

    step: str
    path: str
    steps: tuple[str, ...]
    """The steps that it has; empty where the whole recording is one."""

    @property
    def sentence(self) -> str:
        there = ", ".join(self.steps) or "none, the whole trace is one"
        return f"there is no {self.step} in {self.path}; steps in it: {there}"


class RecordingOfAnother(Reason, frozen=True):
    """The recording under the name of a measurement is of another one."""

    CODE = Code.REPLAY_MISMATCH
    FOR_THE_DOCTOR = False
    SENTENCE = "{path} is a recording of {recorded}, not of {test}"
    REMEDY = "record it again with --torchprof-save={folder}"

    path: str
    folder: str
    recorded: str
    """The measurement that it is of."""
    test: str

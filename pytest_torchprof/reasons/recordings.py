"""Reasons that a recording itself gives: it lacks something, or is not of what was to be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons import cupti_versions
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import AnyWhyUnreadable  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_NAMES: Final = 10


def ranges_instead(name: str, near: str | None, there: Sequence[str]) -> str:
    """Return a text for somebody who asks for a range that is not there, with the one that may be meant or all."""
    unrecorded = "" if name.isascii() else ' (torch records names that are not ASCII as "unknown")'
    if not there:
        return f"the recording has no ranges of the user's{unrecorded}"
    if near is not None:
        return f"did you mean {near!r}?{unrecorded}"
    return f"ranges in the recording: {first_of(there, _MOST_NAMES)}{unrecorded}"


class Unreadable(Reason, frozen=True):
    """The file cannot be read as a recording."""

    FOR_THE_DOCTOR = False

    cause: AnyWhyUnreadable

    @property
    def code(self) -> Code:
        return self.cause.CODE

    @property
    def sentence(self) -> str:
        return self.cause.sentence


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


class NoSuchRange(Reason, frozen=True):
    """The range whose occurrences are to be the steps is not there."""

    CODE = Code.NO_SUCH_RANGE
    MEANING = (
        "no range on the CPU has this name: the name is mistyped, the range was not entered, or compiled code has "
        "dropped it"
    )
    ADVICE = "the text lists the names that exist, and so does `torchprof analyze FILE --by range`"

    name: str
    near: str | None
    """The range that may be meant."""
    there: tuple[str, ...]
    """The user's ranges in the recording."""

    @property
    def sentence(self) -> str:
        absent = self.words("the range {name:name} that is to be the step is not in the recording")
        return f"{absent}; {ranges_instead(self.name, self.near, self.there)}"


class NoOperator(Reason, frozen=True):
    """A recording of the CPU holds no operator."""

    CODE = Code.NOTHING_RAN
    SENTENCE = "the recording has no operator"
    ADVICE = "let the measured code compute something; record with `ProfilerActivity.CPU`"


class MadeWithoutGpu(Reason, frozen=True):
    """Neither GPU operations nor launches are in the recording."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "the recording has no GPU operation and no launch: it was made without the GPU"
    REMEDY = 'where the CPU was to be measured, say so: --device cpu, load(path, device="cpu")'
    ADVICE = (
        "record it with `ProfilerActivity.CUDA`; if the CPU was to be measured, use `--device cpu` or `load(path, "
        'device="cpu")`'
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
        'device="cpu")'
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


class LostLaunches(Reason, frozen=True):
    """GPU operations ran in the steps, and their launches were lost."""

    CODE = Code.LOST_LAUNCHES
    MEANING = "the profiler lost the launches, so nobody knows which step the operations belong to"
    ADVICE = "record it again"

    operations: int
    idle_first: str | None = None
    """What launched nothing at first and launched something ever after: "step", or an operator."""

    @property
    def sentence(self) -> str:
        idle = "" if self.idle_first is None else ": the first {idle_first} launched nothing, all later ones did"
        return self.words(
            "{operations:GPU operation} ran in the steps whose {operations:launch is|launches are} not in the "
            "recording (events were lost" + idle + ")"
        )


class LaunchesUntied(Reason, frozen=True):
    """Kernels of collectives belong to launches that nobody can tell."""

    CODE = Code.LOST_LAUNCHES
    SENTENCE = (
        "{kernels:kernel} of collectives {kernels:has|have} no correlation id (as ROCm 6.1 records them), and nobody "
        "can tell which {kernels:launch it belongs|launches they belong} to"
    )
    MEANING = (
        "the tracer gives the kernels of RCCL no id. They are joined with the launches that lack a kernel, in turn, "
        "where there are as many and all ran on one stream; here that is not so"
    )
    ADVICE = "use a newer ROCm; record the collectives of one group at a time"

    kernels: int


class StepsOverlapOnThreads(Reason, frozen=True):
    """Two occurrences of the range that is the step overlap on two threads."""

    CODE = Code.OVERLAPPING_STEPS
    SENTENCE = "{first} and {second} overlap on two threads, so that what was launched belongs to neither"
    MEANING = "the range that is to be the step was entered on two threads at once"
    ADVICE = "name a range that one thread enters at a time"

    first: str
    second: str


class StepsOverlap(Reason, frozen=True):
    """Two steps overlap, which those of one profiler cannot."""

    CODE = Code.OVERLAPPING_STEPS
    SENTENCE = "{first} and {second} overlap: the recording holds the work of several processes or profilers"
    REMEDY = "read the recording of each by itself"
    MEANING = "the file holds the work of several processes or profilers, so that launches belong to no single step"

    first: str
    second: str


class NoSentinel(Reason, frozen=True):
    """The range with which our recordings begin is missing."""

    CODE = Code.LOST_SENTINEL
    SENTENCE = (
        "the range {name} with which our recordings begin is missing: another profiler took the events, or they were "
        "lost"
    )
    MEANING = "another profiler took this one's events"
    ADVICE = "run one profiler at a time"

    name: str


class SentinelLaunchedNothing(Reason, frozen=True):
    """No kernel of the sentinel is in the recording."""

    CODE = Code.LOST_SENTINEL
    SENTENCE = "no kernel of the sentinel is in the recording (the profiler lost its beginning)"
    MEANING = "the profiler lost its first events; the measurement was tried three times"
    ADVICE = "as for [lost-kernels](#lost-kernels)"


class LostSteps(Reason, frozen=True):
    """The recording holds fewer steps than were measured."""

    CODE = Code.LOST_STEPS
    SENTENCE = "{found} of {measured:step} {found:is|are} in the recording (the profiler lost events)"
    ADVICE = "as for [lost-kernels](#lost-kernels)"

    found: int
    measured: int


class OtherSteps(Reason, frozen=True):
    """The steps of the recording are those of another profiler's schedule."""

    CODE = Code.ANOTHER_PROFILER
    SENTENCE = (
        "{found:step range} in the recording, and {measured} {measured:was|were} measured (another profiler's schedule "
        "ran)"
    )
    MEANING = "another profiler's schedule marked steps of its own around the measured calls"
    ADVICE = "take it out of the test"

    found: int
    measured: int


class SawNothingOfGpu(Reason, frozen=True):
    """Not even the sentinel's launch is in the recording."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "no launch is in the recording, not even the sentinel's (the profiler saw nothing of the GPU)"
    ADVICE = "see [no-kernels-recorded](#no-kernels-recorded)"


class NoGpuOperations(Reason, frozen=True):
    """Launches are in the recording, and nothing that they launched."""

    CODE = Code.NO_GPU_SIDE
    SENTENCE = "{launches:launch} and no GPU operation in the recording (the GPU's side is missing)"
    ADVICE = "see [no-kernels-recorded](#no-kernels-recorded)"

    launches: int


class EarlierWork(Reason, frozen=True):
    """What was launched before the recording began still ran in the steps."""

    CODE = Code.EARLIER_WORK
    SENTENCE = (
        "{operations:GPU operation} {operations:was|were} launched before the recording began and still ran in the "
        "measured steps"
    )
    MEANING = "the wait at the recording's beginning did not reach them"
    ADVICE = "synchronize where they are queued"

    operations: int


class UnplacedLaunches(Reason, frozen=True):
    """Operations whose launch is not recorded may belong to several steps."""

    CODE = Code.UNPLACED_LAUNCHES
    SENTENCE = (
        "{operations:GPU operation} {operations:was|were} launched by a call that the profiler does not record (such "
        "as cuLaunchCooperativeKernel), and it cannot be told in which step"
    )
    REMEDY = "record it anew, or measure one step (steps=1)"
    MEANING = (
        "there is no call on either side of the step's end in the recording by which they could be placed, as in "
        "recordings of older versions of this plugin"
    )

    operations: int


class LostKernels(Reason, frozen=True):
    """Launches without a kernel."""

    CODE = Code.LOST_KERNELS
    MEANING = (
        "the profiler's buffers overflowed, or its last records were not flushed; the measurement was tried three "
        "times. Where it is the same launches in each step, the driver may have refused them: too many threads, too "
        "much shared memory"
    )
    ADVICE = (
        "measure shorter steps; look for a second profiling tool (nsys, ncu, DCGM), or for an error of CUDA's that "
        "the measured code catches (`CUDA_LAUNCH_BLOCKING=1`)"
    )

    lost: int
    launches: int
    in_each_step: bool
    """Whether each step lacks the kernels of the same launches, as where the driver refused them."""

    @property
    def sentence(self) -> str:
        refused = (
            "; they are the same ones in each step, so that the driver may have refused them instead: look for an "
            "error of CUDA's that the code catches or ignores"
        )
        return self.words(
            "{lost} of {launches:launch} {lost:has|have} no kernel in the recording (the profiler lost events)"
            + (refused if self.in_each_step else "")
        )


class LostGraphKernels(Reason, frozen=True):
    """A replay of a CUDA graph has fewer operations in the recording than the graph."""

    CODE = Code.LOST_GRAPH_KERNELS
    MEANING = (
        "another replay of this CUDA graph ran more, or torch said that the graph has more kernels: the profiler "
        "lost some; the measurement was tried three times"
    )
    ADVICE = "as for [lost-kernels](#lost-kernels)"

    graph: int | None
    """The number of the graph; None where the recording does not tell it."""
    step: int
    """From 1."""
    steps: int
    found: int
    whole: int
    """How many operations the graph has."""
    others: int
    """How many other replays lack some too."""

    @property
    def sentence(self) -> str:
        graph = "a graph" if self.graph is None else "graph {graph}"
        others = ", as it did in {others:other replay}" if self.others else ""
        return self.words(
            "the replay of " + graph + " in step {step} of {steps} has {found} of {whole:operation} in the recording "
            "(the profiler lost events" + others + ")"
        )


class UntimedKernels(Reason, frozen=True):
    """GPU operations have no usable time."""

    CODE = Code.UNTIMED_KERNELS
    SENTENCE = "GPU operations without a usable time in the recording: {operations}"
    MEANING = "the driver gave them no time, or an end before their start"
    ADVICE = "record again"

    operations: int


class RanOnOtherThread(Reason, frozen=True):
    """The measured code handed something to another thread, whose operators are not recorded."""

    CODE = Code.OTHER_THREAD
    SENTENCE = "the measured code ran {what} on another thread, whose operators torch.profiler does not record"
    MEANING = "with the CPU as device, torch.profiler does not record operators of other Python threads"
    ADVICE = (
        "run it on the test's own thread; write `baseline=False` in the marker if only what the compiler did matters"
    )

    what: str


class LaunchedOutsideSteps(Reason, frozen=True):
    """Another thread launched kernels that belong to no step."""

    CODE = Code.OTHER_THREAD
    SENTENCE = (
        "{kernels:kernel} {kernels:was|were} launched by another thread between the steps or behind the last one, and "
        "{kernels:belongs|belong} to none"
    )
    REMEDY = "wait in the measured code for what other threads do (thread.join(), future.result(), queue.join())"
    MEANING = (
        "a step handed work to a thread (a pool, an engine's queue) and was over before the thread had launched it all"
    )

    kernels: int


class PackageRan(Reason, frozen=True):
    """A package of AOTInductor ran on the CPU."""

    CODE = Code.AOTINDUCTOR
    SENTENCE = "a package of AOTInductor ran, whose kernels leave no event on the CPU"
    REMEDY = "measure the model under torch.compile instead, or on a GPU"


class PackageMayHaveRun(Reason, frozen=True):
    """A call of a package of AOTInductor was kept before the measurement."""

    CODE = Code.AOTINDUCTOR
    SENTENCE = (
        "a package of AOTInductor may have run, whose kernels leave no event on the CPU: a call of it was kept before "
        "the measurement (run = loader.boxed_run), which cannot be seen"
    )
    REMEDY = "keep the package instead"
    MEANING = "a bound method of the package's loader is kept somewhere, so it may be called unseen"


class GraphWithoutKernels(Reason, frozen=True):
    """Compiled code ran in somebody else's recording of a CPU, without a kernel of Inductor's."""

    CODE = Code.COMPILED_BEFORE
    SENTENCE = "a graph of Inductor's ran, and none of its C++ kernels is in the recording, if it has any"
    REMEDY = (
        "record it with TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1; one that has none can be judged where a test "
        "measures it itself"
    )
    MEANING = "compiled code ran in somebody else's recording of a CPU, without a kernel of Inductor's"


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


class UnseenWork(Reason, frozen=True):
    """An operator computed without leaving events."""

    CODE = Code.UNSEEN_WORK
    MEANING = (
        "with the CPU as device, an operator or a function of TorchScript worked for 2 ms or more where no operator "
        "of torch's was recorded, and also called some that were: how many kernels that is, nobody knows"
    )
    ADVICE = (
        "measure the model before `optimize_for_inference` or fusion; in an operator of your own, call either "
        "torch's operators or none: one that calls none is one kernel"
    )

    operator: str
    most_us: float
    surely: bool
    """Whether it is known to have computed for as long."""
    seen: int
    """In how many steps."""
    steps: int

    @property
    def sentence(self) -> str:
        verb = "computed for" if self.surely else "may have computed for up to"
        return self.words(
            "{operator:name} " + verb + " {most_us:us} in a step without leaving events, in {seen} of {steps:step}, so "
            "not all of its kernels are known: fused code of TorchScript, or an operator of Python, NumPy or C++ that "
            "calls torch's operators too"
        )


class LossNoted(Reason, frozen=True):
    """The profiler noted in the recording that it lost records."""

    CODE = Code.LOST_RECORDS
    SENTENCE = "the profiler noted in the recording that it lost records: {note:name}"
    MEANING = "its buffers were full"
    ADVICE = "record less: fewer steps or requests"

    note: str


_NEWER_CUPTI = (
    "torch 2.15 brings a newer one, and a torch built for CUDA 13 works with one: "
    "pip install 'nvidia-cuda-cupti>=13.1.115'"
)
_REPORT_IT = "report it, with the recording: only CUPTI before CUDA 13.1 Update 1 is known to do that"


class _WrongGraphNumbers:
    """Launches or kernels of graphs have wrong correlation ids, which some versions of CUPTI are known for."""

    __slots__ = ()
    cupti: int | None

    @property
    def _whose_fault(self) -> str:
        if self.cupti is None:
            return "CUPTI before CUDA 13.1 Update 1 numbers graphs wrongly in all sessions of a process but the first"
        which = f"CUPTI of {cupti_versions.name_of(self.cupti)}, which recorded this,"
        if self.cupti in cupti_versions.NUMBERS_GRAPHS_WRONGLY:
            return f"{which} numbers graphs wrongly in all sessions of a process but the first"
        return f"{which} is not known to do that"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        is_known = self.cupti is None or self.cupti in cupti_versions.NUMBERS_GRAPHS_WRONGLY
        return _NEWER_CUPTI if is_known else _REPORT_IT


class SharedGraphNumbers(_WrongGraphNumbers, Reason, frozen=True):
    """Launches of graphs have the correlation ids of other calls."""

    CODE = Code.WRONG_GRAPH_NUMBERS
    SENTENCE = "{shared} of {launches:launch} of graphs {shared:has|have} the correlation id of another call as well"
    MEANING = "the kernels of several calls are under one number, so nobody can tell which of them launched them"

    shared: int
    launches: int
    cupti: int | None = None
    """The version of CUPTI that recorded it, by its own number; None where the recording does not say."""

    @property
    def sentence(self) -> str:
        return f"{self.words(self.SENTENCE)}. {self._whose_fault}"


class StrayGraphNumbers(_WrongGraphNumbers, Reason, frozen=True):
    """Operations of graphs are under other correlation ids than those of the launches, some of which have none."""

    CODE = Code.WRONG_GRAPH_NUMBERS
    SENTENCE = (
        "{strays} {strays:operation of a CUDA graph is|operations of CUDA graphs are} in the recording under other "
        "correlation ids than their launch's: {empty} of {launches:launch} of graphs {empty:has|have} none"
    )
    MEANING = "the kernels are there, and nobody can tell by which launch, and so in which step, they ran"

    strays: int
    empty: int
    launches: int
    cupti: int | None = None
    """The version of CUPTI that recorded it, by its own number; None where the recording does not say."""

    @property
    def sentence(self) -> str:
        return f"{self.words(self.SENTENCE)}. {self._whose_fault}"


class UnknownLaunch(Reason, frozen=True):
    """Kernels ran behind a call that is not known as a launch."""

    CODE = Code.UNKNOWN_LAUNCH
    SENTENCE = "kernels ran behind {call}, which is not known as a launch"
    MEANING = "the step's kernels can be counted, but not its launches"
    ADVICE = "limit the kernels; report the call's name"

    call: str


class InsideGraph(Reason, frozen=True):
    """Something is asked of a range inside a CUDA graph that only the CPU could tell."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "the CPU does not go through ranges of a CUDA graph when that is replayed"


class LostCopies(Reason, frozen=True):
    """Calls that copy left no copy in the recording."""

    CODE = Code.LOST_COPIES
    SENTENCE = (
        "{calls} {calls:call that copies|calls that copy} ({first}) left no copy in the recording: it was lost, or "
        "there was nothing to copy"
    )
    MEANING = (
        "the profiler lost the copies, or does not record such calls, or they had nothing to copy; limits on copies "
        "are not measured"
    )
    ADVICE = (
        "record it again; if it stays, the call copies nothing or leaves no record: do without it, or without a "
        "limit on copies"
    )

    calls: int
    first: str


class Absent(Phrase):
    """What a recording lacks, from which a number would be worked out."""

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
    """What the recording lacks instead."""

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


class NoRangeOfName(Reason, frozen=True):
    """The recording has no range of the name that is asked for."""

    CODE = Code.NOT_IN_RECORDING
    ADVICE = "use one of the names in the text; `torchprof analyze FILE --by range` lists them"

    name: str
    near: str | None
    """The range that may be meant."""
    there: tuple[str, ...]
    """The user's ranges in the recording."""

    @property
    def sentence(self) -> str:
        absent = self.words("there is no range {name!r} in the recording")
        return f"{absent}; {ranges_instead(self.name, self.near, self.there)}"


class NoRangeInSteps(Reason, frozen=True):
    """The recording has ranges of the name, and none begins in a step."""

    CODE = Code.NOT_IN_RECORDING
    SENTENCE = "no range {name!r} begins in a step of the recording"
    ADVICE = "enter it in the measured code"

    name: str


class NoRecordingOfRank(Reason, frozen=True):
    """The recordings of a job lack one rank's."""

    CODE = Code.NO_RANK
    SENTENCE = "there is no recording of rank {rank}; there are those of {there}"
    MEANING = "`profile.ranks[2]` was looked up"
    ADVICE = "use a rank that is there"

    rank: int
    there: str


class NothingWasRun(Reason, frozen=True):
    """What the code returned is asked of a recording that was read."""

    CODE = Code.NOT_RECORDED
    SENTENCE = "there is no result: the profile was read from a recording, the code was not run"
    MEANING = "a recording that was loaded holds no values"
    ADVICE = "measure the code, or do without `profile.result`"


class NoSuchOperator(Reason, frozen=True):
    """Neither the recording nor torch has an operator of the name."""

    CODE = Code.NO_SUCH_OPERATOR
    MEANING = (
        "nothing can have the name, so that to forbid it would always hold; a library's operators are known where "
        "it is imported"
    )
    ADVICE = "write the operator as `profile.ops` or `torchprof analyze --by op` shows it, or as the text says"

    written: str
    near: str | None
    torch_loaded: bool

    @property
    def sentence(self) -> str:
        unsure = "" if self.torch_loaded else " (which is not loaded here, so that libraries' own are not known)"
        meant = "" if self.near is None else "; did you mean {near!r}?"
        return self.words("there is no operator {written!r}, neither in the recording nor in torch" + unsure + meant)


class OnlyNamespace(Reason, frozen=True):
    """What is asked for is the namespace of operators."""

    CODE = Code.NO_SUCH_OPERATOR
    SENTENCE = "{written!r} is a namespace: all of its operators are '{written}::*'"
    ADVICE = "write it so"

    written: str


class PartOfOperators(Reason, frozen=True):
    """What is asked for is a part of operators' names."""

    CODE = Code.NO_SUCH_OPERATOR
    SENTENCE = "no operator is called {written!r}, and it is a part of words of {operators:list}: write these"
    ADVICE = "write those that are meant"

    written: str
    operators: tuple[str, ...]


class MatchUnknown(Reason, frozen=True):
    """Whether kernels match a pattern cannot be told."""

    CODE = Code.MATCH_UNKNOWN
    SENTENCE = "whether {pattern} matches cannot be told for {kernels:kernel}"
    MEANING = (
        "neither names nor the inputs of operators say it; one of the kernels may match. Names of one's own Triton "
        "or CUDA kernels are in no table"
    )
    ADVICE = (
        "ask for what is known: a name, a family, an operator; or say once what your kernels are, with the lines "
        "below the message: [Your own kernels](limits.md#your-own-kernels)"
    )

    pattern: str
    kernels: int

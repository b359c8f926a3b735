"""Reasons that work is missing in a recording, or cannot be told to belong to its steps or launches."""

from __future__ import annotations

from typing import ClassVar

from pytest_torchprof.reasons import cupti_versions
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.wording import worded_of


class LostLaunches(Reason, frozen=True):
    """GPU operations ran in the steps, and their launches were lost."""

    CODE = Code.LOST_LAUNCHES
    MEANING = "the profiler lost the launches, so nobody knows which step the operations belong to"
    ADVICE = "record it again"

    operations: int
    idle_first: str | None = None
    """The part of the code that launched nothing at first and something ever after: "step", or an operator."""

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


class GraphsSeemCut(Reason, frozen=True):
    """Operations of CUDA graphs seem to be missing in a recording that does not say how many there are."""

    CODE = Code.LOST_GRAPH_KERNELS
    SENTENCE = (
        "the GPU idled for {idle_us:us} between operations of the same CUDA graph, which wait for nothing outside of "
        "it: the recording seems to lack kernels, so that more may have run"
    )
    MEANING = (
        "a graph runs its operations at once, so that long gaps inside one are work that has no event; a limit on how "
        "much may run holds only where all that ran is known"
    )
    ADVICE = (
        "record without CUDA graphs, or with Nsight Systems (`nsys profile --cuda-graph-trace=node`), which shows what "
        "ran in the graphs"
    )

    idle_us: float


class UntimedKernels(Reason, frozen=True):
    """GPU operations have no usable time."""

    CODE = Code.UNTIMED_KERNELS
    SENTENCE = "GPU operations without a usable time in the recording: {operations}"
    MEANING = "the driver gave them no time, or an end before their start"
    ADVICE = "record again"

    operations: int


class RanBeforeLaunch(Reason, frozen=True):
    """GPU operations began before the calls that launched them."""

    CODE = Code.CLOCKS_DIFFER
    SENTENCE = (
        "{operations:GPU operation} began before {operations:its launch|their launches}, {first:line} by "
        "{early_us:us}: the clocks of CPU and GPU differ, or times in the recording are wrong"
    )
    MEANING = (
        "no work begins before its launch: the profiler converts the GPU's times to the CPU's clock, and in this "
        "recording that went wrong by more than 30 us, so that idle times, gaps and shares of the window mean nothing"
    )
    ADVICE = (
        "record again, after a longer warm-up of the profiler (`schedule(warmup=...)`); if it happens again, update "
        "the GPU's driver. A clock that was set meanwhile, or another exporter than torch's, may be why too"
    )

    operations: int
    first: str
    """The name of the one that began earliest before its launch."""
    early_us: float


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
    SENTENCE: ClassVar[str]

    @property
    def sentence(self) -> str:
        """The facts in words, and which version of CUPTI is at fault."""
        return f"{worded_of(self, self.SENTENCE)}. {self._whose_fault}"

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
        """The advice on what to do about it."""
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

"""Reasons of capturing: the profiler, the device, and who else uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import AnyWhyUnreadable  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOW_EXPORT: Final = (
    "torch's profiler no longer knows trace_only, by which it is asked for the file alone: measurements are right, and "
    "take longer than they need to. Please report it"
)
"""The warning, given once, that a private option of torch's no longer has the name that it had."""


class Forked(Reason, frozen=True):
    """CUDA cannot begin in a fork of a process that has begun it."""

    CODE = Code.FORKS
    SENTENCE = "this process was forked from one that had asked for its GPUs, and CUDA cannot begin again in a fork"
    REMEDY = (
        "start new processes instead (multiprocessing's spawn, pytest-xdist), or let nothing ask for a GPU before the "
        "fork"
    )


class FabricNotReady(Reason, frozen=True):
    """The GPUs behind an NVSwitch wait for its fabric manager."""

    CODE = Code.GPU_UNUSABLE
    SENTENCE = (
        "the GPUs of this machine are not ready (CUDA error 802): those behind an NVSwitch need the fabric manager, in "
        "the driver's own version"
    )
    REMEDY = "systemctl status nvidia-fabricmanager"
    MEANING = "GPUs behind an NVSwitch wait for the fabric manager"


_OF_CUPTI: Final[Mapping[str, str]] = {
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": (
        "the driver lets only administrators profile: load it with NVreg_RestrictProfilingToAdminUsers=0, or give the "
        "container CAP_SYS_ADMIN"
    ),
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": (
        "another profiling tool is attached (nsys, ncu, compute-sanitizer, DCGM): run without it"
    ),
    "CUPTI_ERROR_NOT_COMPATIBLE": (
        "the CUPTI that was loaded and the driver do not fit: look for another CUDA in LD_LIBRARY_PATH"
    ),
    "CUPTI_ERROR_NOT_INITIALIZED": (
        "the CUPTI that was loaded does not work: look for another CUDA in LD_LIBRARY_PATH, and for profiling tools"
    ),
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": "the GPU is a virtual one on which nothing can be profiled",
}
"""What to do about errors of CUPTI, by their names."""
_WITHOUT_CUPTI: Final = "torch was built or installed without CUPTI (libcupti), or loads another CUDA's"


class CuptiRefusal(Struct, frozen=True, kw_only=True):
    """A call of CUPTI that failed."""

    call: str
    error: str
    """Its name, such as CUPTI_ERROR_INSUFFICIENT_PRIVILEGES."""

    def __str__(self) -> str:
        """Return the error, and the call of CUPTI that gave it."""
        return f"{self.error} to {self.call}"

    @property
    def advice(self) -> str:
        """What to do about it; empty where nothing is known of it."""
        return _OF_CUPTI.get(self.error, "")


class DeviceTrouble(Phrase):
    """What keeps a device from being used, with what to do about it."""

    MEMORY_FULL = "memory-full", "end the processes that hold its memory (nvidia-smi lists them), or take another GPU"
    TAKEN = (
        "taken",
        "another process has it to itself (nvidia-smi -q -d COMPUTE): wait until that ends, or reset its compute mode",
    )
    MEMORY_DAMAGED = "memory-damaged", "its memory is damaged (nvidia-smi -q -d ECC): reset or replace it"


class DeviceUnusable(Reason, frozen=True):
    """A device raises an error when it is used."""

    CODE = Code.GPU_UNUSABLE
    SENTENCE = "{device} cannot be used: {error}"
    MEANING = (
        "the device refused before anything was measured: its memory is full, another process has it to itself, it "
        "is damaged, ..."
    )
    ADVICE = "do what the sentence says; tests that measure nothing there run as usual"

    device: str
    error: str
    cause: DeviceTrouble | None = None
    """What the error is known to mean."""

    @property
    def remedy(self) -> str:
        return "" if self.cause is None else self.cause.text


class EarlierGpuError(Reason, frozen=True):
    """An error of the GPU that came before the measurement lasts as long as the process."""

    CODE = Code.GPU_FAILED
    SENTENCE = (
        "an earlier error of the GPU ({error}) lasts as long as this process: it came from a test before or from the "
        "preparation of this one"
    )
    REMEDY = "mend that, or run this test in a new process"
    MEANING = (
        "an illegal access or a failed assertion on the GPU breaks CUDA for the whole process; the test that caused "
        "it fails with the error itself"
    )

    error: str


class CaptureFailed(Reason, frozen=True):
    """The measurement itself raised an error that nobody foresaw."""

    CODE = Code.MEASUREMENT_FAILED
    SENTENCE = "the measurement itself failed ({error} at {line}: {error_text})"
    REMEDY = "please report it"
    MEANING = "an error in this plugin, or in a library under it, that nobody foresaw"

    error: str
    line: str
    error_text: str


class NoKernelsRecorded(Reason, frozen=True):
    """torch.profiler records no kernels in this process."""

    CODE = Code.NO_KERNELS_RECORDED
    MEANING = "before the first test a few kernels are launched under the profiler, and none was recorded"
    ADVICE = "what is said above of the cause; ask `torchprof doctor`"

    device: str
    fresh_kernels: int | None = None
    """How many kernels a fresh process recorded; None if it did not get that far."""
    refusals: tuple[CuptiRefusal, ...] = ()
    """What CUPTI refused there."""
    error: str | None = None
    """Why the fresh process did not come to an end."""
    tools: tuple[str, ...] = ()
    """The variables of profiling tools that are set."""

    @property
    def sentence(self) -> str:
        none = f"torch.profiler records no kernels on {self.device} in this process, though some were launched"
        return f"{none}{self._seen_by_fresh}"

    @property
    def _seen_by_fresh(self) -> str:
        if self.fresh_kernels:
            return (
                ". A fresh process records them, so that it is something in this one: most often a profiler session "
                "with the CPU only that ran earlier (in a conftest, a plugin or an import), an empty one too, as "
                "torch's _init_for_cuda_graphs begins"
            )
        if self.refusals:
            listed = "; ".join(map(str, self.refusals))
            advice = [refusal.advice for refusal in self.refusals if refusal.advice]
            return f", nor does a fresh process, in which CUPTI says {': '.join([listed, *advice])}"
        if self.fresh_kernels is None and not self.error:
            return ""
        if self.error:
            return f"; a fresh process, which was to show whether the cause is in this one, failed: {self.error}"
        tools = f"another profiling tool is attached ({', '.join(self.tools)} is set); run without it"
        causes = [*([tools] if self.tools else []), _WITHOUT_CUPTI]
        return f", nor does a fresh process, and CUPTI says nothing. Usual causes: {'; '.join(causes)}"


class NoKineto(Reason, frozen=True):
    """This build of torch writes no recordings."""

    CODE = Code.NO_KERNELS_RECORDED
    SENTENCE = "this build of torch has no kineto, so its profiler writes no recording"
    REMEDY = "use another build"


class MemoryUncounted(Reason, frozen=True):
    """The allocator does not count what it gives out."""

    CODE = Code.NO_PEAK_MEMORY
    SENTENCE = (
        "the allocator in use does not count what it gives out: either it is a pluggable one, or "
        "PYTORCH_NO_CUDA_MEMORY_CACHING is set"
    )
    MEANING = (
        "with pluggable allocators (RMM) and `PYTORCH_NO_CUDA_MEMORY_CACHING`, torch does not know the peak of memory"
    )
    ADVICE = "remove `max_peak_memory`, or use torch's own allocator"


class PeakWasReset(Reason, frozen=True):
    """Something reset the allocator's peak during the steps."""

    CODE = Code.NO_PEAK_MEMORY
    SENTENCE = "the allocator's peak went down during the steps: something reset it, and what it had been is not known"
    MEANING = (
        "an extension resets the peak by torch's interface for C++, where it cannot be seen; resets from Python are "
        "seen, and hide nothing"
    )
    ADVICE = "take that out of the measured code"


class NothingHeld(Reason, frozen=True):
    """The profiler ended without a recording."""

    CODE = Code.MEASUREMENT_FAILED
    SENTENCE = "the profiler holds no recording"
    MEANING = "the profiler ended, and there is nothing to read"
    ADVICE = "report it with the output of `torchprof doctor`"


class BuffersFull(Reason, frozen=True):
    """The profiler's buffers were full before the end."""

    CODE = Code.LOST_KERNELS
    SENTENCE = "the profiler stopped collecting from the GPU early: its buffers were full"
    MEANING = "its buffers were full"
    ADVICE = "measure shorter steps"


class OtherThreadNotDone(Reason, frozen=True):
    """What a step handed to another thread was not done in time."""

    CODE = Code.OTHER_THREAD
    SENTENCE = (
        "{what}, which a step handed to another thread, was not done {patience_s:.6g} s after the last step, and may "
        "launch more"
    )
    REMEDY = "wait for it in the measured code (thread.join(), future.result())"
    MEANING = "a thread that a step started still runs, or what a step gave to a pool has no result yet"
    ADVICE = (
        "wait for it in the measured code; a thread that is to stay is a daemon (`daemon=True`), or is started "
        "before the steps"
    )

    what: str
    patience_s: float


class GpuFailedAtStop(Reason, frozen=True):
    """The GPU failed while the profiler stopped."""

    CODE = Code.GPU_FAILED
    SENTENCE = "the GPU failed while the profiler stopped: {error}"
    MEANING = "the last wait for the GPU raised an error"
    ADVICE = "mend that test; run the others in a new process"

    error: str


class EventsTaken(Reason, frozen=True):
    """Another profiler took the events of this one."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False
    SENTENCE = "another profiler took the events of this one"


class ProfilerOnOtherThread(Reason, frozen=True):
    """Another profiler was started on another thread meanwhile."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False
    SENTENCE = "another profiler was started on another thread during the measurement ({line})"

    line: str


class ProfilerInside(Reason, frozen=True):
    """The measured code starts a profiler of its own."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False

    line: str
    left_running: bool

    @property
    def sentence(self) -> str:
        left = " and left running" if self.left_running else ""
        return f"another profiler was started{left} inside the measured code ({self.line})"


class ProfilerEnded(Reason, frozen=True):
    """Another profiler ended this one."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False
    SENTENCE = "another profiler ended this one during the measurement"


class CollectionSwitchedOff(Reason, frozen=True):
    """The measured code switched the profiler's collection off."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False
    SENTENCE = "the measured code switched the profiler's collection off ({line}): what ran meanwhile left no event"
    REMEDY = "take {function} out of it"

    line: str
    function: str = "toggle_collection_dynamic"
    """As a user calls it."""


class ThreadOfProfiler(Phrase):
    """Where a profiler runs."""

    THIS = "this", "on this thread"
    OTHER = "other", "on another thread"


class ProfilerRuns(Reason, frozen=True):
    """A profiler runs already, and torch can run one at a time."""

    CODE = Code.ANOTHER_PROFILER
    FOR_THE_DOCTOR = False
    SENTENCE = "another profiler is running {where}, and torch can run one at a time"
    REMEDY = (
        "look for torch.profiler (or torch.autograd.profiler) in a fixture, around the test, or left open by an "
        "earlier test, and stop it"
    )

    where: ThreadOfProfiler


class GpuInUse(Reason, frozen=True):
    """Another process has measured on the GPU for too long."""

    CODE = Code.GPU_IN_USE
    SENTENCE = "another process has measured on this GPU for {waited_s:.0f} s and holds {lock} ({holders})"
    REMEDY = "end it, then try again"
    MEANING = (
        "the process that is named, of whichever account, holds the GPU's lock; the line *waits for the GPU* on "
        "stderr has told of it at once"
    )

    waited_s: float
    lock: str
    holders: str


class LockUnopened(Reason, frozen=True):
    """The lock of a GPU cannot be opened."""

    CODE = Code.GPU_IN_USE
    SENTENCE = "the lock of this GPU, {lock}, cannot be opened: {error}"
    MEANING = "the file cannot be read or is none, its folder cannot be written, or its file system has no locks"
    ADVICE = "delete the file while nobody measures, or correct the folder's permissions"

    lock: str
    error: str


class CacheNotEmptied(Reason, frozen=True):
    """There is no memory with which the device's cache could be emptied before each call."""

    CODE = Code.NO_TIMES
    SENTENCE = "the cache cannot be emptied before each call, which takes twice as much memory as it has: {error}"
    REMEDY = "leave the device that much, or take times with a hot cache"
    MEANING = (
        "to make the cache cold, twice its size is overwritten, at least 512 MB, and the device has no room for that"
    )

    error: str


class CallTooLong(Reason, frozen=True):
    """A call takes so long that enough samples of it would take too long."""

    CODE = Code.NO_TIMES
    SENTENCE = "a call takes {call_s:.1f} s, so {samples} samples would take longer than {limit_s:.0f} s"
    REMEDY = "measure a smaller part of it"
    MEANING = "one call is too slow to be sampled for a time tolerance"

    call_s: float
    samples: int
    limit_s: float


class WorkGoesOn(Reason, frozen=True):
    """Work on another stream or device goes on after a call."""

    CODE = Code.NO_TIMES
    SENTENCE = (
        "work on another stream or device went on for {left_ms:.1f} ms after a call, and nothing in the call waits for "
        "it, so no sample would hold it"
    )
    REMEDY = "let the current stream wait for it (wait_stream)"
    MEANING = "nothing in the call waits for it, so no sample would include its time"

    left_ms: float


class LoopLeft(Reason, frozen=True):
    """A rank left the loop over the measured calls."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "its loop over the measured calls was left"


class CodeRaised(Reason, frozen=True):
    """The measured code raised on a rank."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "the code raised {error}"

    error: str


class RankProcess(Struct, frozen=True):
    """The process of a rank."""

    pid: int
    host: str

    def __str__(self) -> str:
        """Return what a person looks for."""
        return f"pid {self.pid} on {self.host}"


class EndedWithoutMeasuring(Reason, frozen=True):
    """A rank ended the test without the measurement."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    MEANING = "the ranks do not measure the same things"
    ADVICE = "measure equally often on each rank; skip on all of them or on none"

    rank: int
    outcome: str
    """How the test ended there: "passed", "failed", "skipped", "xfailed"."""
    explanation: str
    """Pytest's words on that, if it has any."""

    @property
    def sentence(self) -> str:
        how = f"it {self.outcome}" + (f" ({self.explanation})" if self.explanation else "")
        return f"rank {self.rank} has ended the test without this measurement: {how}"


class EndedItsRun(Reason, frozen=True):
    """A rank ended its run before it came to the measurement."""

    CODE = Code.OTHER_RANK
    FOR_THE_DOCTOR = False
    MEANING = "`-x`, `pytest.exit()` or an interrupt, on that rank alone"
    ADVICE = "look at what it says"

    rank: int
    goal: str
    explanation: str = ""
    """Why, in pytest's words; empty where nothing is known of it."""
    not_collected: str | None = None
    """The test, where the rank has not collected it."""

    @property
    def sentence(self) -> str:
        why = self.explanation or ("" if self.not_collected is None else f"it has not collected {self.not_collected}")
        return f"rank {self.rank} has ended its run before {self.goal}{f': {why}' if why else ''}"


class RankTooLate(Reason, frozen=True):
    """A rank did not come as far as the others in time."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    MEANING = "it hangs, takes far longer than the others, or was killed: the text names the process to look at"
    ADVICE = (
        "see what it is doing (`py-spy dump`); if it only takes long, set a larger `torchprof_rank_timeout` in the "
        "ini file"
    )

    rank: int
    goal: str
    timeout_s: float
    process: RankProcess | None
    """None where the rank has measured nothing so far."""

    @property
    def sentence(self) -> str:
        who = self.process or "it has measured nothing so far"
        return f"rank {self.rank} did not reach {self.goal} within {self.timeout_s:.6g} s ({who})"


class NothingHeardOfRank(Reason, frozen=True):
    """A rank has given no sign."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "nothing was heard of rank {rank} within {timeout_s:.6g} s: it has measured nothing so far"
    MEANING = "it has not come to its first measurement"
    ADVICE = "run the same tests in one order on all ranks"

    rank: int
    timeout_s: float


class RankStillSilent(Reason, frozen=True):
    """A rank that was waited for once has given no sign since."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "rank {rank} is still silent, and was last heard of in {test} ({process})"
    MEANING = "an earlier test waited for it, and it did not come"
    ADVICE = "the first test that says so tells more"

    rank: int
    test: str
    process: RankProcess


class RankElsewhere(Reason, frozen=True):
    """A rank measures something else, or runs another test."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    MEANING = "it is in another test, or in a part of this one that takes long"
    ADVICE = (
        "run the same tests in one order on all ranks; let them meet (`distributed.barrier()`) before the measured code"
    )

    rank: int
    timeout_s: float
    process: RankProcess
    test: str | None
    """The test that it is in; None where it is in this one, in another measurement."""
    label: str | None = None
    """What that measurement is called."""
    not_collected: str | None = None
    """This test, where the rank has not collected it."""

    @property
    def sentence(self) -> str:
        if self.test is None:
            where = f"the one called {self.label}" if self.label else "one without a label"
            rules = ["each rank has to measure the same in a test"]
        else:
            where = self.test
            missing = [] if self.not_collected is None else [f"it has not collected {self.not_collected}"]
            rules = [*missing, "each rank has to run the same tests in one order"]
        late = f"rank {self.rank} did not begin this measurement within {self.timeout_s:.6g} s"
        return f"{late}, and was last heard of in {where} ({self.process}): {'; '.join(rules)}"


class RanksUnreachable(Reason, frozen=True):
    """The ranks of a job cannot reach each other."""

    CODE = Code.SILENT_RANK
    FOR_THE_DOCTOR = False
    SENTENCE = "the ranks of the job cannot reach each other: {error}"
    MEANING = (
        "the store at which they meet is gone: a process group's store lives in rank 0's process, and that has ended"
    )
    ADVICE = "look at what rank 0 says"

    error: str


class NotReadBack(Reason, frozen=True):
    """What was recorded cannot be read."""

    cause: AnyWhyUnreadable | str
    """In reports of earlier versions a text."""
    known_as: Code
    """What the reader's error is called."""

    @property
    def code(self) -> Code:
        return self.known_as

    @property
    def sentence(self) -> str:
        return f"the recording cannot be read back: {self.cause}"

    @property
    def remedy(self) -> str:
        if self.known_as != Code.RECORDING_DAMAGED:
            return ""
        return "some versions of torch leave quotation marks in names of ranges: give ranges plain names"

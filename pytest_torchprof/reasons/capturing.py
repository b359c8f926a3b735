"""Reasons of capturing: the profiler, and who else uses it."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.reasons.unreadable import AnyWhyUnreadable  # noqa: TC001 - msgspec reads the annotations

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


class CaptureFailed(Reason, frozen=True):
    """The measurement itself raised an error that nobody foresaw."""

    CODE = Code.MEASUREMENT_FAILED
    SENTENCE = "the measurement itself failed ({error} at {line}: {error_text})"
    REMEDY = "please report it"
    MEANING = "an error in this plugin, or in a library under it, that nobody foresaw"

    error: str
    line: str
    error_text: str


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
    """Work that a step handed to another thread was not done in time."""

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


class NotReadBack(Reason, frozen=True):
    """The recording that was written cannot be read."""

    cause: AnyWhyUnreadable | str
    """In reports of earlier versions a text."""
    known_as: Code
    """The code of the reader's error."""

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

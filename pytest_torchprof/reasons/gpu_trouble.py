"""Reasons that lie in the GPU of a measurement, its driver, or who else uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.fresh_processes import AnyFreshFailure  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        """The advice on the error; empty where there is none."""
        return _OF_CUPTI.get(self.error, "")


class DeviceTrouble(Phrase):
    """A condition that keeps a device from being used, with the remedy."""

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
    """The known cause of the error."""

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


class NoKernelsRecorded(Reason, frozen=True):
    """torch.profiler records no kernels in this process."""

    CODE = Code.NO_KERNELS_RECORDED
    MEANING = "before the first test a few kernels are launched under the profiler, and none was recorded"
    ADVICE = "what is said above of the cause; ask `torchprof doctor`"

    device: str
    fresh_kernels: int | None = None
    """How many kernels a fresh process recorded; None if it did not get that far."""
    refusals: tuple[CuptiRefusal, ...] = ()
    """The refusals of CUPTI there."""
    error: AnyFreshFailure | str | None = None
    """Why the fresh process did not come to an end; a text where Python says it, and in earlier versions always."""
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


class GpuFailedAtStop(Reason, frozen=True):
    """The GPU failed while the profiler stopped."""

    CODE = Code.GPU_FAILED
    SENTENCE = "the GPU failed while the profiler stopped: {error}"
    MEANING = "the last wait for the GPU raised an error"
    ADVICE = "mend that test; run the others in a new process"

    error: str


_LONGEST: Final = 200
"""Characters of what is told of a process: another account may have noted anything."""


class LockHolder(Struct, frozen=True):
    """A process that holds the lock of a GPU."""

    process: int
    program: str | None
    """None where it is not known, as of a process of another container."""
    work: str | None
    """What it measures, such as a test, as it has noted itself; None where it has noted nothing."""

    def __str__(self) -> str:
        """Return the number of the process, with the name of its program and what it measures."""
        program = "" if self.program is None else f" ({self.program})"
        return printable_line(f"process {self.process}{program} measures {self.work or 'on it'}", _LONGEST)


def in_words(holders: tuple[LockHolder, ...]) -> str:
    """Return who holds a lock; that is not known of another thread, and where the system does not tell."""
    return " and ".join(map(str, holders)) or "another process or thread measures on it"


class GpuInUse(Reason, frozen=True):
    """Another process has measured on the GPU for too long."""

    CODE = Code.GPU_IN_USE
    REMEDY = "end it, then try again"
    MEANING = (
        "the process that is named, of whichever account, holds the GPU's lock; the line *waits for the GPU* on "
        "stderr has told of it at once"
    )

    waited_s: float
    lock: str
    holders: tuple[LockHolder, ...] | str
    """Empty where they are not known; in reports of earlier versions a text."""

    @property
    def held_by(self) -> str:
        """Who holds it, in words."""
        return self.holders if isinstance(self.holders, str) else in_words(self.holders)

    @property
    def sentence(self) -> str:
        return (
            f"another process has measured on this GPU for {self.waited_s:.0f} s and holds {self.lock} ({self.held_by})"
        )


class LockUnopened(Reason, frozen=True):
    """The lock of a GPU cannot be opened."""

    CODE = Code.GPU_IN_USE
    SENTENCE = "the lock of this GPU, {lock}, cannot be opened: {error}"
    MEANING = "the file cannot be read or is none, its folder cannot be written, or its file system has no locks"
    ADVICE = "delete the file while nobody measures, or correct the folder's permissions"

    lock: str
    error: str

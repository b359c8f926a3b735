"""Questions to the NVIDIA driver through NVML: each is answered by a value, or by its silence, the reason for none."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml
from msgspec import Struct

from pytest_torchprof.reasons.disturbances import (
    Brake,
    NothingKnown,
    OthersUnknown,
    SlowdownUnknown,
    SlowedDown,
    UsedByOthers,
)
from pytest_torchprof.reasons.nvml_silence import AskerNotListed, NvmlSilence, QuestionRefused, QuestionUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.reasons.disturbances import Disturbance

_T = TypeVar("_T")

_CLOCKS = {"graphics": pynvml.NVML_CLOCK_GRAPHICS, "sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
# nvmlClocksEventReasons: those that take speed away, not the idle state or clocks that someone set.
_SLOWED = {
    0x04: Brake.POWER_LIMIT,
    0x08: Brake.HARDWARE,
    0x10: Brake.OTHER_GPUS,
    0x20: Brake.TEMPERATURE,
    0x40: Brake.HARDWARE_TEMPERATURE,
    0x80: Brake.POWER_SUPPLY,
}
# These have no bit among the reasons, only a counter of the time for which they held the GPU back.
_HELD_BACK = {
    pynvml.NVML_PERF_POLICY_BOARD_LIMIT: Brake.BOARD_LIMIT,
    pynvml.NVML_PERF_POLICY_RELIABILITY: Brake.RELIABILITY_LIMIT,
}
# Newer drivers lose the older name of a function, older ones do not have the newer.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


def ask(*names: str, given: tuple[Any, ...] = ()) -> Any:
    """Return the answer of the first of these functions that the driver and its bindings have; else why none."""
    for name in names:
        function = getattr(pynvml, name, None)
        if function is None:
            continue
        try:
            return function(*given)
        except pynvml.NVMLError_FunctionNotFound:
            continue
        except pynvml.NVMLError as error:
            return QuestionRefused(name, str(error), error.value)
    return QuestionUnknown(names[0])


class Gpu(Struct, frozen=True):
    """One GPU, or one MIG slice of a board."""

    handle: Any
    """The handle of the device on which processes run."""
    board: Any
    """The handle of the board, which has clocks and a power limit: its slices share them."""

    @classmethod
    def of(cls, uuid: str) -> Gpu | NvmlSilence:
        """Return the GPU with this UUID ("GPU-..."), which may be a MIG slice's: torch gives both in the same form."""
        handle = ask("nvmlDeviceGetHandleByUUID", given=(uuid,))
        if not isinstance(handle, NvmlSilence):
            return cls(handle, handle)
        mig = ask("nvmlDeviceGetHandleByUUID", given=(uuid.replace("GPU-", "MIG-", 1),))
        if isinstance(mig, NvmlSilence):
            return handle
        board = ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", given=(mig,))
        return board if isinstance(board, NvmlSilence) else cls(mig, board)

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a board that was cut up (MIG)."""
        return self.handle is not self.board

    def clocks_mhz(self) -> dict[str, int] | NvmlSilence:
        """Return its clocks, current and maximal ("sm", "sm_max"), in MHz, as far as NVML gives them."""
        clocks: dict[str, int] = {}
        unknown = None
        for name, kind in _CLOCKS.items():
            for key, function in ((name, "nvmlDeviceGetClockInfo"), (f"{name}_max", "nvmlDeviceGetMaxClockInfo")):
                mhz = ask(function, given=(self.board, kind))
                if isinstance(mhz, NvmlSilence):
                    unknown = unknown or mhz
                else:
                    clocks[key] = mhz
        return clocks or unknown or {}

    def slowed_by(self) -> tuple[Brake, ...] | NvmlSilence:
        """Return the causes that slow the device down right now, or why NVML does not answer."""
        reasons = ask(*_REASONS, given=(self.board,))
        if isinstance(reasons, NvmlSilence):
            return reasons
        return tuple(brake for bit, brake in _SLOWED.items() if reasons & bit)

    def held_back_ns(self) -> dict[Brake, int] | NvmlSilence:
        """Return how long each of the limits without a bit of their own has held it back since the driver's start."""
        lasted: dict[Brake, int] = {}
        for policy, brake in _HELD_BACK.items():
            violation = ask("nvmlDeviceGetViolationStatus", given=(self.board, policy))
            if isinstance(violation, NvmlSilence):
                return violation
            lasted[brake] = violation.violationTime
        return lasted

    def others(self) -> int | NvmlSilence:
        """Return how many other processes compute on it."""
        processes = ask(*_PROCESSES, given=(self.handle,))
        if isinstance(processes, NvmlSilence):
            return processes
        pids = {process.pid for process in processes}
        if os.getpid() not in pids:
            # In a container NVML knows processes by their numbers outside, or not at all.
            return AskerNotListed()
        return len(pids) - 1

    def compute_mode(self) -> int | NvmlSilence:
        """Return who may compute on it: nvmlComputeMode_t."""
        mode: int | NvmlSilence = ask("nvmlDeviceGetComputeMode", given=(self.board,))
        return mode

    def persistence(self) -> int | NvmlSilence:
        """Return whether (1, 0) the driver stays loaded while no process uses it."""
        loaded: int | NvmlSilence = ask("nvmlDeviceGetPersistenceMode", given=(self.board,))
        return loaded


@contextmanager
def opened() -> Iterator[NvmlSilence | None]:
    """Initialize NVML for the block; yield the reason if that failed, else None."""
    unknown = ask("nvmlInit")
    try:
        yield unknown
    finally:
        if unknown is None:
            ask("nvmlShutdown")


@contextmanager
def opened_for(uuid: str) -> Iterator[Gpu | NvmlSilence]:
    """Yield the GPU with this UUID."""
    with opened() as unknown:
        yield unknown or Gpu.of(uuid)


@contextmanager
def watched(uuid: str) -> Iterator[Callable[[], list[Disturbance]]]:
    """Yield a function that returns the disturbances of times on this GPU: slowed down, used by others, not known.

    Call it while the GPU works on the timed code: an idle one is never too hot. NVML is opened beforehand, which takes
    longer than many a call.
    """
    with opened_for(uuid) as gpu:
        if isinstance(gpu, NvmlSilence):
            yield lambda: [NothingKnown(gpu)]
        else:
            before = gpu.held_back_ns()
            yield lambda: [*_slowed(gpu, before), *_others(gpu)]


def _slowed(gpu: Gpu, before: dict[Brake, int] | NvmlSilence) -> Iterator[Disturbance]:
    reasons, after = gpu.slowed_by(), gpu.held_back_ns()
    if isinstance(reasons, NvmlSilence):
        yield SlowdownUnknown(reasons)
    else:
        yield from map(SlowedDown, reasons)
    if isinstance(before, NvmlSilence) or isinstance(after, NvmlSilence):
        why = next(answer for answer in (before, after) if isinstance(answer, NvmlSilence))
        yield SlowdownUnknown(why, tuple(_HELD_BACK.values()))
    else:
        yield from (SlowedDown(brake) for brake, lasted in after.items() if lasted > before[brake])


def _others(gpu: Gpu) -> Iterator[Disturbance]:
    others = gpu.others()
    if isinstance(others, NvmlSilence):
        yield OthersUnknown(others)
    elif others:
        yield UsedByOthers(others)


def driver_version() -> str | NvmlSilence:
    """Return the driver's version, such as "570.86.15"."""
    with opened() as unknown:
        return unknown or ask("nvmlSystemGetDriverVersion")


def clocks_mhz(uuid: str) -> dict[str, int] | NvmlSilence:
    """Return the clocks of the GPU with this UUID."""
    with opened_for(uuid) as gpu:
        return gpu if isinstance(gpu, NvmlSilence) else gpu.clocks_mhz()


def value_or_none(answer: _T | NvmlSilence) -> _T | None:
    """Return the answer, None where there is none."""
    return None if isinstance(answer, NvmlSilence) else answer

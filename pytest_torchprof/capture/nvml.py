"""Questions to the NVIDIA driver through NVML: each is answered by a value, or by the reason why there is none."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml
from msgspec import Struct

from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

_CLOCKS = {"graphics": pynvml.NVML_CLOCK_GRAPHICS, "sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
# nvmlClocksEventReasons: those that take speed away, not the idle state or clocks that someone set.
_SLOWED = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x10: "other GPUs that it is kept in step with",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
# These have no bit among the reasons, only a counter of the time for which they held the GPU back.
_HELD_BACK = {
    pynvml.NVML_PERF_POLICY_BOARD_LIMIT: "its board's limit",
    pynvml.NVML_PERF_POLICY_RELIABILITY: "its reliability limit",
}
# Newer drivers lose the older name of a function, older ones do not have the newer.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class Unknown(Struct, frozen=True):
    """A question without an answer."""

    why: str
    code: int | None = None
    """NVML's return code, if it was asked."""


def ask(*names: str, given: tuple[Any, ...] = ()) -> Any:
    """Return the answer of the first of these functions that the driver and its bindings have; else Unknown."""
    for name in names:
        function = getattr(pynvml, name, None)
        if function is None:
            continue
        try:
            return function(*given)
        except pynvml.NVMLError_FunctionNotFound:
            continue
        except pynvml.NVMLError as error:
            return Unknown(f"{name}: {error}", error.value)
    return Unknown(f"this driver has no {names[0]}")


class Gpu(Struct, frozen=True):
    """One GPU, or one MIG slice of a board."""

    handle: Any
    """The handle of the device on which processes run."""
    board: Any
    """The handle of the board, which has clocks and a power limit: its slices share them."""

    @classmethod
    def of(cls, uuid: str) -> Gpu | Unknown:
        """Return the GPU with this UUID ("GPU-..."), which may be a MIG slice's: torch gives both in the same form."""
        handle = ask("nvmlDeviceGetHandleByUUID", given=(uuid,))
        if not isinstance(handle, Unknown):
            return cls(handle, handle)
        mig = ask("nvmlDeviceGetHandleByUUID", given=(uuid.replace("GPU-", "MIG-", 1),))
        if isinstance(mig, Unknown):
            return handle
        board = ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", given=(mig,))
        return board if isinstance(board, Unknown) else cls(mig, board)

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a board that was cut up (MIG)."""
        return self.handle is not self.board

    def clocks_mhz(self) -> dict[str, int] | Unknown:
        """Return its clocks, current and maximal ("sm", "sm_max"), in MHz, as far as NVML gives them."""
        clocks: dict[str, int] = {}
        unknown = None
        for name, kind in _CLOCKS.items():
            for key, function in ((name, "nvmlDeviceGetClockInfo"), (f"{name}_max", "nvmlDeviceGetMaxClockInfo")):
                mhz = ask(function, given=(self.board, kind))
                if isinstance(mhz, Unknown):
                    unknown = unknown or mhz
                else:
                    clocks[key] = mhz
        return clocks or unknown or {}

    def slowed_by(self) -> tuple[str, ...] | Unknown:
        """Return the reasons for which it is slowed down right now."""
        reasons = ask(*_REASONS, given=(self.board,))
        if isinstance(reasons, Unknown):
            return reasons
        return tuple(why for bit, why in _SLOWED.items() if reasons & bit)

    def held_back_ns(self) -> dict[str, int] | Unknown:
        """Return how long each of the limits without a bit of their own has held it back since the driver's start."""
        lasted: dict[str, int] = {}
        for policy, name in _HELD_BACK.items():
            violation = ask("nvmlDeviceGetViolationStatus", given=(self.board, policy))
            if isinstance(violation, Unknown):
                return violation
            lasted[name] = violation.violationTime
        return lasted

    def others(self) -> int | Unknown:
        """Return how many other processes compute on it."""
        processes = ask(*_PROCESSES, given=(self.handle,))
        if isinstance(processes, Unknown):
            return processes
        pids = {process.pid for process in processes}
        if os.getpid() not in pids:
            # In a container NVML knows processes by their numbers outside, or not at all.
            return Unknown("NVML does not list this process itself, as in a container")
        return len(pids) - 1

    def compute_mode(self) -> int | Unknown:
        """Return who may compute on it: nvmlComputeMode_t."""
        mode: int | Unknown = ask("nvmlDeviceGetComputeMode", given=(self.board,))
        return mode

    def persistence(self) -> int | Unknown:
        """Return whether (1, 0) the driver stays loaded while no process uses it."""
        loaded: int | Unknown = ask("nvmlDeviceGetPersistenceMode", given=(self.board,))
        return loaded


@contextmanager
def opened() -> Iterator[Unknown | None]:
    """Initialize NVML for the block; yield the reason if that failed, else None."""
    unknown = ask("nvmlInit")
    try:
        yield unknown
    finally:
        if unknown is None:
            ask("nvmlShutdown")


@contextmanager
def opened_for(uuid: str) -> Iterator[Gpu | Unknown]:
    """Yield the GPU with this UUID."""
    with opened() as unknown:
        yield unknown or Gpu.of(uuid)


@contextmanager
def watched(uuid: str) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns texts on what spoils times on this GPU: slowed down, used by others, not known.

    Call it while the GPU works on the timed code: an idle one is never too hot. NVML is opened beforehand, which takes
    longer than many a call.
    """
    with opened_for(uuid) as gpu:
        if isinstance(gpu, Unknown):
            yield lambda: [f"nobody told whether the GPU was slowed down or used by others ({gpu.why})"]
        else:
            before = gpu.held_back_ns()
            yield lambda: [*_slowed(gpu, before), *_others(gpu)]


def _slowed(gpu: Gpu, before: dict[str, int] | Unknown) -> Iterator[str]:
    reasons, after = gpu.slowed_by(), gpu.held_back_ns()
    if isinstance(reasons, Unknown):
        yield f"nobody told whether the GPU was slowed down ({reasons.why})"
    else:
        yield from (f"the GPU was slowed down by {why}" for why in reasons)
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        why = next(answer.why for answer in (before, after) if isinstance(answer, Unknown))
        yield f"nobody told whether the GPU was slowed down by {' or '.join(_HELD_BACK.values())} ({why})"
    else:
        yield from (f"the GPU was slowed down by {name}" for name, lasted in after.items() if lasted > before[name])


def _others(gpu: Gpu) -> Iterator[str]:
    others = gpu.others()
    if isinstance(others, Unknown):
        yield f"nobody told whether the GPU was used by others ({others.why})"
    elif others:
        yield f"{counted(others, 'other process')} used the GPU"


def driver_version() -> str | Unknown:
    """Return the driver's version, such as "570.86.15"."""
    with opened() as unknown:
        return unknown or ask("nvmlSystemGetDriverVersion")


def clocks_mhz(uuid: str) -> dict[str, int] | Unknown:
    """Return the clocks of the GPU with this UUID."""
    with opened_for(uuid) as gpu:
        return gpu if isinstance(gpu, Unknown) else gpu.clocks_mhz()


def value_or_none(answer: _T | Unknown) -> _T | None:
    """Return the answer, None where there is none."""
    return None if isinstance(answer, Unknown) else answer

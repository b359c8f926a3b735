"""What the NVIDIA driver tells through its own library: a question is answered by a value, or by why there is none."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
# nvmlClockType_t
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}
# nvmlClocksEventReasons: those that take speed away, not the idle state or clocks that someone set.
_SLOWED = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x10: "other GPUs that it is kept in step with",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
# nvmlPerfPolicyType_t: these have no bit among the reasons, only a count of the time for which they held the GPU back.
_HELD_BACK = {3: "its board's limit", 5: "its reliability limit"}
_OK = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question without an answer."""

    why: str
    code: int | None = None
    """What NVML returned, where it was asked."""


class _Process(ctypes.Structure):
    # nvmlProcessInfo_v2_t, which both functions below fill in.
    _fields_ = (("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint))


class _Violation(ctypes.Structure):
    # nvmlViolationTime_t: when it was asked, in microseconds, and how long it has lasted, in nanoseconds.
    _fields_ = (("reference", c_ulonglong), ("lasted", c_ulonglong))


# Newer drivers lose the older name of a function, older ones do not have the newer.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_TAKES: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (),
    "nvmlShutdown": (),
    "nvmlSystemGetDriverVersion": (c_char_p, c_uint),
    "nvmlDeviceGetHandleByUUID": (c_char_p, POINTER(c_void_p)),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": (c_void_p, POINTER(c_void_p)),
    "nvmlDeviceGetClockInfo": (c_void_p, c_uint, POINTER(c_uint)),
    "nvmlDeviceGetMaxClockInfo": (c_void_p, c_uint, POINTER(c_uint)),
    "nvmlDeviceGetViolationStatus": (c_void_p, c_uint, POINTER(_Violation)),
    "nvmlDeviceGetComputeMode": (c_void_p, POINTER(c_uint)),
    "nvmlDeviceGetPersistenceMode": (c_void_p, POINTER(c_uint)),
    **dict.fromkeys(_REASONS, (c_void_p, POINTER(c_ulonglong))),
    **dict.fromkeys(_PROCESSES, (c_void_p, POINTER(c_uint), POINTER(_Process))),
}


class Library:
    """NVML, loaded."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._loaded = loaded

    def ask(self, *names: str, given: tuple[Any, ...] = ()) -> Unknown | None:
        """Call the first of these functions that this driver has; None: it filled in what it was given."""
        for name in names:
            function = getattr(self._loaded, name, None)
            if function is not None:
                function.restype, function.argtypes = c_int, _TAKES[name]
                code = function(*given)
                return None if code == _OK else Unknown(f"{name}: {self._words(code)}", code)
        return Unknown(f"this driver has no {names[0]}")

    def _words(self, code: int) -> str:
        function = getattr(self._loaded, "nvmlErrorString", None)
        if function is None:
            return f"error {code}"
        function.restype, function.argtypes = c_char_p, (c_int,)
        return (function(code) or b"").decode(errors="replace") or f"error {code}"

    def driver_version(self) -> str | Unknown:
        """Return the driver's version, such as "570.86.15"."""
        text = ctypes.create_string_buffer(96)
        unknown = self.ask("nvmlSystemGetDriverVersion", given=(text, len(text)))
        return unknown or text.value.decode(errors="replace")

    def gpu(self, uuid: str) -> Gpu | Unknown:
        """Return the GPU with this UUID ("GPU-..."), which may be that of a MIG slice: torch tells both alike."""
        handle = c_void_p()
        unknown = self.ask("nvmlDeviceGetHandleByUUID", given=(uuid.encode(), byref(handle)))
        if unknown is None:
            return Gpu(self, handle, handle)
        mig = uuid.replace("GPU-", "MIG-", 1).encode()
        if self.ask("nvmlDeviceGetHandleByUUID", given=(mig, byref(handle))):
            return unknown
        board = c_void_p()
        return self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", given=(handle, byref(board))) or Gpu(
            self, handle, board
        )


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG slice of a board."""

    library: Library
    handle: c_void_p
    """What processes run on."""
    board: c_void_p
    """What has clocks and a power limit: the slices of a board share them."""

    @property
    def is_slice(self) -> bool:
        """Whether it is a part of a board that was cut up (MIG)."""
        return self.handle is not self.board

    def clocks_mhz(self) -> dict[str, int] | Unknown:
        """Return its clocks, now and at most ("sm", "sm_max"), in MHz; those that are told."""
        clocks: dict[str, int] = {}
        unknown = None
        for name, kind in _CLOCKS.items():
            for key, function in ((name, "nvmlDeviceGetClockInfo"), (f"{name}_max", "nvmlDeviceGetMaxClockInfo")):
                mhz = c_uint()
                why = self.library.ask(function, given=(self.board, kind, byref(mhz)))
                if why is None:
                    clocks[key] = mhz.value
                unknown = unknown or why
        return clocks or unknown or {}

    def slowed_by(self) -> tuple[str, ...] | Unknown:
        """Return what takes speed away from it right now."""
        reasons = c_ulonglong()
        unknown = self.library.ask(*_REASONS, given=(self.board, byref(reasons)))
        return unknown or tuple(why for bit, why in _SLOWED.items() if reasons.value & bit)

    def held_back_ns(self) -> dict[str, int] | Unknown:
        """Return how long each of the limits that are told no other way has held it back since the driver's start."""
        lasted: dict[str, int] = {}
        for policy, name in _HELD_BACK.items():
            violation = _Violation()
            unknown = self.library.ask("nvmlDeviceGetViolationStatus", given=(self.board, policy, byref(violation)))
            if unknown:
                return unknown
            lasted[name] = violation.lasted
        return lasted

    def processes(self) -> tuple[int, ...] | Unknown:
        """Return the processes that compute on it, this one among them."""
        unknown: Unknown | None = None
        for room in (64, 4096):
            count, found = c_uint(room), (_Process * room)()
            unknown = self.library.ask(*_PROCESSES, given=(self.handle, byref(count), found))
            if unknown is None:
                break
            if count.value <= room:
                return unknown
        pids = tuple(process.pid for process in found[: count.value])
        if unknown is None and os.getpid() not in pids:
            # In a container NVML knows processes by the numbers that they have outside of it, or not at all.
            return Unknown("NVML does not list this process itself, as in a container")
        return unknown or pids

    def others(self) -> int | Unknown:
        """Return how many other processes compute on it."""
        pids = self.processes()
        return pids if isinstance(pids, Unknown) else len(set(pids) - {os.getpid()})

    def compute_mode(self) -> int | Unknown:
        """Return who may compute on it: nvmlComputeMode_t."""
        return self._setting("nvmlDeviceGetComputeMode")

    def persistence(self) -> int | Unknown:
        """Return whether (1, 0) the driver stays loaded while no process uses it."""
        return self._setting("nvmlDeviceGetPersistenceMode")

    def _setting(self, name: str) -> int | Unknown:
        value = c_uint()
        return self.library.ask(name, given=(self.board, byref(value))) or value.value


@contextmanager
def opened() -> Iterator[Library | Unknown]:
    """Give NVML, initialized."""
    try:
        library = Library(ctypes.CDLL(LIBRARY))
    except OSError:
        yield Unknown(f"{LIBRARY} cannot be loaded")
        return
    unknown = library.ask("nvmlInit_v2")
    if unknown:
        yield unknown
        return
    try:
        yield library
    finally:
        library.ask("nvmlShutdown")


@contextmanager
def opened_for(uuid: str) -> Iterator[Gpu | Unknown]:
    """Give the GPU with this UUID."""
    with opened() as library:
        yield library if isinstance(library, Unknown) else library.gpu(uuid)


@contextmanager
def watched(uuid: str) -> Iterator[Callable[[], list[str]]]:
    """Give a function that says what spoils times on this GPU: slowed down, used by others, not told.

    To be called while the GPU works on what is timed: an idle one is never too hot. NVML is opened before, which takes
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
        why = next(one.why for one in (before, after) if isinstance(one, Unknown))
        yield f"nobody told whether the GPU was slowed down by {' or '.join(_HELD_BACK.values())} ({why})"
    else:
        yield from (f"the GPU was slowed down by {name}" for name, lasted in after.items() if lasted > before[name])


def _others(gpu: Gpu) -> Iterator[str]:
    others = gpu.others()
    if isinstance(others, Unknown):
        yield f"nobody told whether the GPU was used by others ({others.why})"
    elif others:
        yield f"{counted(others, 'other process')} used the GPU"


def driver_version() -> str | None:
    """Return the driver's version, None where it is not told."""
    with opened() as library:
        return _value_or_none(library if isinstance(library, Unknown) else library.driver_version())


def clocks_mhz(uuid: str) -> dict[str, int] | None:
    """Return the clocks of the GPU with this UUID, None where they are not told."""
    with opened_for(uuid) as gpu:
        return _value_or_none(gpu if isinstance(gpu, Unknown) else gpu.clocks_mhz())


def _value_or_none(answer: _T | Unknown) -> _T | None:
    return None if isinstance(answer, Unknown) else answer

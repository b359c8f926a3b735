"""What the NVIDIA driver tells through its own library: driver version and clocks; nothing where there is none."""

from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
# nvmlClockType_t
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}
# nvmlClocksThrottleReasons: those that take speed away, not the idle state or clocks that someone set.
_SLOWED = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
_OK = 0
_INSUFFICIENT_SIZE = 7


def driver_version() -> str | None:
    """Return the driver's version, such as "570.86.15"."""
    with _opened() as nvml:
        if nvml is None:
            return None
        text = ctypes.create_string_buffer(96)  # pragma: needs gpu
        found = nvml.nvmlSystemGetDriverVersion(text, len(text)) == _OK  # pragma: needs gpu
        return text.value.decode(errors="replace") if found else None  # pragma: needs gpu


def clocks_mhz(uuid: str) -> dict[str, int] | None:
    """Return the clocks of the GPU with this UUID ("GPU-..."), now and at most ("sm", "sm_max"), in MHz."""
    with _opened() as nvml:
        if nvml is None:
            return None
        handle = ctypes.c_void_p()  # pragma: needs gpu
        if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) != _OK:  # pragma: needs gpu
            return None
        return _clocks_of(nvml, handle) or None  # pragma: needs gpu


def disturbances(uuid: str) -> list[str]:
    """Return what spoils times on the GPU with this UUID right now, in words: slowed down, used by others, not told."""
    with _opened() as nvml:
        handle = ctypes.c_void_p()
        if nvml is None or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) != _OK:
            return ["nobody told whether the GPU was slowed down or used by others (no NVML for it)"]
        return [*_slowed(nvml, handle), *_others(nvml, handle)]  # pragma: needs gpu


def _slowed(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> list[str]:  # pragma: needs gpu
    reasons = ctypes.c_ulonglong()
    if nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) != _OK:
        return []
    return [f"the GPU was slowed down by {why}" for bit, why in _SLOWED.items() if reasons.value & bit]


def _others(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> list[str]:  # pragma: needs gpu
    # Asked with room for none, it tells how many there are; this process is one of them.
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None) not in (_OK, _INSUFFICIENT_SIZE):
        return []
    others = count.value - 1
    return [f"{counted(others, 'other process')} used the GPU"] if others > 0 else []


def _clocks_of(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> dict[str, int]:  # pragma: needs gpu
    clocks: dict[str, int] = {}
    for name, kind in _CLOCKS.items():
        for key, ask in ((name, nvml.nvmlDeviceGetClockInfo), (f"{name}_max", nvml.nvmlDeviceGetMaxClockInfo)):
            mhz = ctypes.c_uint()
            if ask(handle, kind, ctypes.byref(mhz)) == _OK:
                clocks[key] = mhz.value
    return clocks


@contextmanager
def _opened() -> Iterator[ctypes.CDLL | None]:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2() != _OK:  # pragma: needs gpu
        yield None
        return
    try:  # pragma: needs gpu
        yield nvml
    finally:
        nvml.nvmlShutdown()

"""What the NVIDIA driver's own library tells of the GPU, query by query."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from pytest_torchprof.doctor.answer import OK, UNKNOWN, WRONG, Answer
from pytest_torchprof.doctor.child import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.doctor.machine import Machine

    Told = dict[str, Any]

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_OK, _INSUFFICIENT_SIZE = 0, 7
# nvmlReturn_t, those that tell something.
_ERRORS = {
    1: "not initialized",
    3: "not supported by this GPU",
    4: "no permission",
    6: "not found",
    9: "the driver is not loaded",
    10: "timeout",
    12: "a library of the driver is missing",
    15: "the GPU is lost: it fell off the bus",
    17: "the operating system blocks it",
    18: "the driver was updated and not loaded yet: library and kernel module differ",
    999: "unknown error",
}
_BROKEN = {15, 18}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_SLOWED = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x10: "other GPUs that it is kept in step with",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
_CLOCKS = {"sm": 1, "memory": 2}


def work(uuid: str) -> Told:
    """Ask everything; each answer is a value or why there is none. Called in a process of its own."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return {"library": {"why": f"{_LIBRARY} cannot be loaded"}}
    if code := nvml.nvmlInit_v2():
        return {"library": _why(code)}
    handle = ctypes.c_void_p()
    found = _driver_version(nvml)
    # torch calls a slice of a GPU as it calls a whole one.
    for name in (uuid, uuid.replace("GPU-", "MIG-", 1)):
        code = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        if not code:
            break
    if code:
        return {"driver": found, "handle": _why(code)}
    # Clocks and modes are its board's.
    board = ctypes.c_void_p()
    to_board = getattr(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", None)
    sliced = to_board is not None and to_board(handle, ctypes.byref(board)) == _OK
    told = {name: query(nvml, board if sliced else handle) for name, query in _OF_THE_BOARD.items()}
    return {"driver": found, **told, "MIG": {"value": sliced}, "processes": _processes(nvml, handle)}


def _why(code: int) -> Told:
    return {"why": _ERRORS.get(code, f"error {code}"), "broken": code in _BROKEN}


def _number(nvml: ctypes.CDLL, names: tuple[str, ...], kind: Callable[[], Any], *given: Any) -> Told:
    """Ask the first of these functions that this driver has for one number."""
    ask_for = next((function for name in names if (function := getattr(nvml, name, None))), None)
    if ask_for is None:
        return {"why": f"this driver has no {names[0]}"}
    number = kind()
    code = ask_for(*given, ctypes.byref(number))
    return _why(code) if code else {"value": number.value}


def _driver_version(nvml: ctypes.CDLL) -> Told:
    text = ctypes.create_string_buffer(96)
    code = nvml.nvmlSystemGetDriverVersion(text, len(text))
    return _why(code) if code else {"value": text.value.decode(errors="replace")}


def _clocks(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Told:
    found = []
    for name, kind in _CLOCKS.items():
        now = _number(nvml, ("nvmlDeviceGetClockInfo",), ctypes.c_uint, handle, kind)
        most = _number(nvml, ("nvmlDeviceGetMaxClockInfo",), ctypes.c_uint, handle, kind)
        if "why" in now:
            return now
        found.append(f"{name} {now['value']} MHz" + (f" of {most['value']}" if "value" in most else ""))
    return {"value": ", ".join(found)}


def _slowed(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Told:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return _number(nvml, names, ctypes.c_ulonglong, handle)


def _processes(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Told:
    """Ask how many compute on it; this process has no part in that."""
    names = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    function = next((one for name in names if (one := getattr(nvml, name, None))), None)
    if function is None:
        return {"why": f"this driver has no {names[0]}"}
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    return {"value": count.value} if code in (_OK, _INSUFFICIENT_SIZE) else _why(code)


def _compute_mode(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Told:
    return _number(nvml, ("nvmlDeviceGetComputeMode",), ctypes.c_int, handle)


def _persistence(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Told:
    return _number(nvml, ("nvmlDeviceGetPersistenceMode",), ctypes.c_int, handle)


_OF_THE_BOARD: dict[str, Callable[[ctypes.CDLL, ctypes.c_void_p], Told]] = {
    "clocks": _clocks,
    "slow-downs": _slowed,
    "compute mode": _compute_mode,
    "persistence": _persistence,
}


def of_nvml(machine: Machine) -> Iterator[Answer]:
    """Say what the driver answers to each query, and which it does not answer."""
    if not machine.gpu["cuda"]:
        return
    told = ask(work, machine.gpu["uuid"], limit_s=30).facts
    for name, one in told.items():
        check = f"NVML {name}"
        if "why" in one:
            yield Answer(check, WRONG if one.get("broken") else UNKNOWN, one["why"], _about_nothing(name, one))
        else:
            status, text, do = _READ.get(name, _as_it_is)(one["value"])
            yield Answer(check, status, text, do)


def _about_nothing(name: str, one: Told) -> str:
    if one.get("broken"):
        return "restart the machine; what the kernel's log says of NVRM or Xid tells more (dmesg)"
    if name in ("library", "handle"):
        return "times with a tolerance cannot be told from disturbed ones without it; counts are measured all the same"
    return ""


def _as_it_is(value: Any) -> tuple[Any, str, str]:
    return OK, str(value), ""


def _read_slowed(bits: int) -> tuple[Any, str, str]:
    reasons = [why for bit, why in _SLOWED.items() if bits & bit]
    if not reasons:
        return OK, "none", ""
    return WRONG, f"slowed down by {', '.join(reasons)}", "compare no times until it is cool and has its power"


def _read_processes(count: int) -> tuple[Any, str, str]:
    if not count:
        return OK, "no other process computes on it", ""
    others = f"{count} other process{'es' * (count > 1)} on it"
    return WRONG, others, "end what nvidia-smi lists before times are measured; counts are right beside them"


def _read_compute_mode(mode: int) -> tuple[Any, str, str]:
    text = _COMPUTE_MODES.get(mode, str(mode))
    if mode == 0:
        return OK, text, ""
    if mode == 2:
        return WRONG, text, "nvidia-smi -c DEFAULT"
    return OK, f"{text}: one process at a time, so workers of pytest-xdist fail on it (nvidia-smi -c DEFAULT)", ""


def _read_persistence(mode: int) -> tuple[Any, str, str]:
    return OK, "on" if mode else "off (the first use of the GPU by any process takes longer: nvidia-smi -pm 1)", ""


def _read_mig(sliced: int) -> tuple[Any, str, str]:
    return OK, "this is a slice of a GPU" if sliced else "a whole GPU", ""


_READ: dict[str, Callable[[Any], tuple[Any, str, str]]] = {
    "slow-downs": _read_slowed,
    "processes": _read_processes,
    "compute mode": _read_compute_mode,
    "persistence": _read_persistence,
    "MIG": _read_mig,
}

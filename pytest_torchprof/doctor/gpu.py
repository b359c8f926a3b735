"""Whether there is a GPU, what it is, and what the NVIDIA driver's own library tells of it, query by query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.capture import nvml
from pytest_torchprof.doctor.answer import OK, UNKNOWN, WRONG, Answer
from pytest_torchprof.doctor.child import ask
from pytest_torchprof.text import counted, show_bytes, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_torchprof.doctor.machine import Machine

    Told = dict[str, Any]


_FIRST = "nothing can be measured on a GPU until this is put right"


def of_gpu(machine: Machine) -> Iterator[Answer]:
    """Say which GPU is measured, or why none is."""
    found = machine.gpu
    if "name" in found:
        what = f"{found['name']} ({found['kind']}, {show_bytes(found['memory'])})"
        which = f"{found['device']} of {counted(found['count'], 'GPU')}"
        text = f"{what}, {which}" + (f", driver for CUDA {found['driver']}" if found["driver"] else "")
        yield Answer("GPU", OK, text)
        yield _allocator(found)
    elif "problem" in found:
        yield Answer("GPU", WRONG, found["problem"], _FIRST)
    elif found["surprising"]:
        yield Answer("GPU", WRONG, f"torch sees no GPU: {found['none']}", _FIRST)
    else:
        yield Answer("GPU", OK, f"no GPU ({found['none']}); the CPU is measured as the device")


def _allocator(found: Mapping[str, Any]) -> Answer:
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        return Answer("allocator", OK, "torch's, without its cache: see environment")
    return Answer("allocator", OK, f"torch's, backend {found['allocator']}")


# nvmlReturn_t, those that nothing but the machine's owner can put right: the GPU fell off the bus; the driver was
# updated and the one in the kernel is still the old one.
_BROKEN: Final = {
    15: "restart the machine; what the kernel's log says of NVRM or Xid tells more (dmesg)",
    18: "the driver was updated and the old one is still loaded: restart the machine",
}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}

_QUERIES: Mapping[str, Callable[[nvml.Gpu], Any]] = {
    "clocks": nvml.Gpu.clocks_mhz,
    "slow-downs": nvml.Gpu.slowed_by,
    "limits": nvml.Gpu.held_back_ns,
    "processes": nvml.Gpu.others,
    "compute mode": nvml.Gpu.compute_mode,
    "persistence": nvml.Gpu.persistence,
}


def ask_nvml(device: str, uuid: str) -> Told:
    """Ask everything; each answer is a value or why there is none. Called in a process of its own."""
    import torch

    # A measurement asks from a process that uses the GPU: one that does not is not listed among those that do.
    torch.ones(1, device=device)
    with nvml.opened() as library:
        if isinstance(library, nvml.Unknown):
            return {"library": _told(library)}
        driver, gpu = _told(library.driver_version()), library.gpu(uuid)
        if isinstance(gpu, nvml.Unknown):
            return {"driver": driver, "GPU": _told(gpu)}
        told = {name: _told(query(gpu)) for name, query in _QUERIES.items()}
        return {"driver": driver, **told, "MIG": _told(gpu.is_slice)}


def _told(answer: Any) -> Told:
    return {"why": answer.why, "code": answer.code} if isinstance(answer, nvml.Unknown) else {"value": answer}


def of_nvml(machine: Machine) -> Iterator[Answer]:
    """Say what the driver answers to each query, and which it does not answer."""
    if not machine.gpu["cuda"]:
        return
    told = ask(ask_nvml, machine.gpu["device"], machine.gpu["uuid"]).facts
    for name, one in told.items():
        check = f"NVML {name}"
        if "value" in one:
            yield Answer(check, *_READ.get(name, _as_it_is)(one["value"]))
        elif one["code"] in _BROKEN:
            yield Answer(check, WRONG, one["why"], _BROKEN[one["code"]])
        else:
            yield Answer(check, UNKNOWN, one["why"], _WITHOUT.get(name, ""))


_WITHOUT = dict.fromkeys(
    ("library", "GPU"),
    "put NVML where it is found, or measure without: counts need none of it, and a time beyond its limit cannot be "
    "told from one that others disturbed",
)


def _as_it_is(value: Any) -> tuple[Any, str, str]:
    return OK, str(value), ""


def _read_clocks(mhz: Mapping[str, int]) -> tuple[Any, str, str]:
    now = {name: value for name, value in mhz.items() if not name.endswith("_max")}
    if not now:
        return UNKNOWN, "told at their most, not now", ""
    most = {name: f" of {mhz[f'{name}_max']}" for name in now if f"{name}_max" in mhz}
    return OK, ", ".join(f"{name} {value}{most.get(name, '')} MHz" for name, value in now.items()), ""


def _read_slowed(reasons: list[str]) -> tuple[Any, str, str]:
    if not reasons:
        return OK, "none", ""
    return WRONG, f"slowed down by {', '.join(reasons)}", "compare no times until it is cool and has its power"


def _read_limits(held_back_ns: Mapping[str, int]) -> tuple[Any, str, str]:
    told = (f"{show_us(ns / 1000)} by {name}" for name, ns in held_back_ns.items())
    return OK, f"held back since the driver was loaded: {', '.join(told)}", ""


def _read_processes(others: int) -> tuple[Any, str, str]:
    if not others:
        return OK, "no other process computes on it", ""
    text = f"{counted(others, 'other process')} on it"
    return WRONG, text, "end what nvidia-smi lists before times are measured; counts are right all the same"


def _read_compute_mode(mode: int) -> tuple[Any, str, str]:
    text = _COMPUTE_MODES.get(mode, str(mode))
    if mode == 0:
        return OK, text, ""
    if mode == 2:
        return WRONG, f"{text}: no process may compute on it", "nvidia-smi -c DEFAULT, as its administrator"
    return OK, f"{text}: one process at a time, so workers of pytest-xdist fail on it (nvidia-smi -c DEFAULT)", ""


def _read_persistence(mode: int) -> tuple[Any, str, str]:
    return OK, "on" if mode else "off (the first use of the GPU by any process takes longer: nvidia-smi -pm 1)", ""


def _read_mig(is_slice: bool) -> tuple[Any, str, str]:
    return OK, "a slice of a GPU" if is_slice else "a whole GPU", ""


_READ: dict[str, Callable[[Any], tuple[Any, str, str]]] = {
    "clocks": _read_clocks,
    "slow-downs": _read_slowed,
    "limits": _read_limits,
    "processes": _read_processes,
    "compute mode": _read_compute_mode,
    "persistence": _read_persistence,
    "MIG": _read_mig,
}

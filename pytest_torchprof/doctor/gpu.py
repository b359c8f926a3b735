"""Whether there is a GPU, whether torch can compute on it, and what it is."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import no_gpu, pick_device, reasons
from pytest_torchprof.capture.devices.cuda import gpu_uuid, has_gpu
from pytest_torchprof.doctor.answer import OK, WRONG, Answer
from pytest_torchprof.text.plural import counted
from pytest_torchprof.text.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.doctor.machine import Machine

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_FIRST = "nothing can be measured on a GPU until this is put right"


def work() -> dict[str, Any]:
    """Use the GPU once and describe it. Called in a process of its own: a broken driver may hang or crash it."""
    import torch

    built = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    if not has_gpu():
        lack = no_gpu()
        # A GPU that was handed to this machine or container, and for which nothing of a driver can be loaded.
        handed = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
        return {**built, "none": lack.reason, "surprising": lack.surprising or handed}
    device = pick_device("auto")
    try:
        return {**built, **_used(device)}
    except Exception as error:  # noqa: BLE001 - torch's errors of the GPU are of several kinds
        return {**built, "problem": reasons.of_device(device, error)}


def _used(device: str) -> dict[str, Any]:
    import torch

    torch.ones(8, device=device).add_(1)
    torch.cuda.synchronize(device)
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "kind": properties.gcnArchName if torch.version.hip else f"sm_{properties.major}{properties.minor}",
        "memory": properties.total_memory,
        "device": device,
        "count": torch.cuda.device_count(),
        "uuid": gpu_uuid(device),
        "allocator": torch.cuda.get_allocator_backend(),
        "driver": _driver(),
    }


def _driver() -> str | None:
    """Return the CUDA version that the driver knows, None where it does not tell."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(_DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"


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

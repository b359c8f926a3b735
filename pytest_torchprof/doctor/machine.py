"""What several checks want to know of this machine, found out once."""

from __future__ import annotations

import ctypes
import sys
import warnings
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import no_gpu, pick_device, reasons
from pytest_torchprof.capture.devices.cuda import gpu_uuid, has_gpu
from pytest_torchprof.doctor.answer import first_line
from pytest_torchprof.doctor.child import ChildFailed, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class Machine:
    """This process's torch, and the GPU as a process of its own finds it."""

    profiler_fails: str | None = None
    """Why nothing more can be measured on the GPU, once a check has found that out."""

    @cached_property
    def no_torch(self) -> str | None:
        """Why torch cannot be imported, None where it can."""
        try:
            with warnings.catch_warnings():
                # Without NumPy, which nothing here needs, torch warns at its import.
                warnings.simplefilter("ignore")
                import_module("torch")
        except Exception as problem:  # noqa: BLE001 - a library that is missing or of a wrong kind raises many things
            return first_line(problem)
        return None

    @cached_property
    def gpu(self) -> Mapping[str, Any]:
        """What `use_gpu` tells; only "problem" where it cannot."""
        try:
            return ask(use_gpu).facts
        except ChildFailed as failed:
            return {"problem": str(failed)}

    @property
    def gpu_works(self) -> bool:
        """Whether there is a GPU that torch can compute on."""
        return self.no_torch is None and "name" in self.gpu

    @property
    def has_none(self) -> bool:
        """Whether there is no GPU, and nobody would expect one."""
        return self.no_torch is None and not self.gpu.get("surprising", True)


def use_gpu() -> dict[str, Any]:
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

"""Why a GPU cannot be used or measured here: each reason a sentence that says what to do.

All of them are found by asking torch and the machine; none needs a GPU to be there.
"""

from __future__ import annotations

import ctypes
import os
import re
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FORKED = (
    "this process was forked from one that had asked for its GPUs, and CUDA cannot begin again in a fork: start new "
    "processes instead (multiprocessing's spawn, pytest-xdist), or let nothing ask for a GPU before the fork"
)
FABRIC = (
    "the GPUs of this machine are not ready (CUDA error 802): those behind an NVSwitch need the fabric manager, in the "
    "driver's own version: systemctl status nvidia-fabricmanager"
)

# What is in an error's text (CUDA's sentence, or the name that newer versions of torch add), and what to do about it.
_OF_A_DEVICE = (
    (r"out of memory", "end what holds its memory (nvidia-smi lists the processes), or take another GPU"),
    (
        r"busy or unavailable|cudaErrorDevicesUnavailable",
        "another process has it for itself (nvidia-smi -q -d COMPUTE): wait for its end, or set its compute mode back",
    ),
    (
        r"uncorrectable ECC|cudaErrorECCUncorrectable",
        "its memory is damaged (nvidia-smi -q -d ECC): reset or replace it",
    ),
)
_OF_CUPTI = {
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
_CHOOSING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


_LONGEST = 160


class NoGpu(NamedTuple):
    """Why torch has no GPU."""

    reason: str
    surprising: bool
    """Whether somebody on this machine may believe that it has one."""


def no_gpu() -> NoGpu:
    """Return why torch sees no GPU in this process; ask only where it sees none."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        build = f"torch {torch.__version__} is built for the CPU only"
        driver = _driver_of_this_machine()
        if driver is None:
            return NoGpu(build, surprising=False)
        return NoGpu(f"{build}, and this machine has {driver}: install the build of torch for it", surprising=True)
    said = _said_at_initializing()
    if said is None:
        return NoGpu("torch.cuda.is_available() is False and gives no reason", surprising=False)
    if "gpus are available" in said.lower() and (hiding := _hiding()):
        return NoGpu(hiding, surprising=True)
    if "no nvidia driver" in said.lower():
        reason = "no NVIDIA driver is to be found: install one, or start the container with its GPUs (--gpus all)"
        return NoGpu(reason, surprising=_driver_of_this_machine() is not None)
    return NoGpu(_of_initializing(said), surprising=True)


def _hiding() -> str | None:
    """Return how CUDA_VISIBLE_DEVICES and the like explain that there is no GPU; None where they do not."""
    chosen = {name: os.environ[name].strip() for name in _CHOOSING if name in os.environ}
    if not chosen:
        return None
    shown = " and ".join(f"{name}={value!r}" for name, value in chosen.items())
    # CUDA takes what stands before the first index that is not there.
    if any(not value or value.startswith("-") for value in chosen.values()):
        return f"{shown} leaves this process no GPU: unset it, or name one"
    return (
        f"the driver sees no GPU, or none of those that {shown} names: nvidia-smi (rocminfo on AMD) tells which there "
        "are, and why none"
    )


def _of_initializing(said: str) -> str:
    import torch

    if found := re.search(r"driver on your system is too old \(found version (\d+)\)", said):
        version = int(found[1])
        return (
            f"the NVIDIA driver is too old for torch {torch.__version__}: it knows CUDA {version // 1000}."
            f"{version % 1000 // 10}, and torch is built with {torch.version.cuda}. Update the driver, or install a "
            "build of torch for this CUDA"
        )
    if "error 802" in said.lower():
        return FABRIC
    if "gpus are available" in said.lower():
        return "the driver sees no GPU: nvidia-smi (rocminfo on AMD) tells which there are, and why none"
    return f"CUDA cannot be initialized: {said}"


def _said_at_initializing() -> str | None:
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        return first_line(error)
    return None


def _driver_of_this_machine() -> str | None:
    """Return which driver of a GPU this machine has, whether torch can use it or not."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return "an NVIDIA driver"
    if Path("/proc/driver/nvidia/version").exists():
        return "an NVIDIA driver"
    return "an AMD GPU's driver" if Path("/dev/kfd").exists() else None


def of_device(device: str, error: BaseException) -> str:
    """Return why a device cannot be used, from the error that its use raised."""
    said = first_line(error)
    if "forked subprocess" in said:
        return FORKED
    if re.search(r"Error 802|system not yet initialized|cudaErrorSystemNotReady", str(error)):
        return FABRIC
    advice = next((advice for part, advice in _OF_A_DEVICE if re.search(part, str(error))), None)
    return f"{device} cannot be used: {said}" + (f"; {advice}" if advice else "")


def of_earlier_error(error: BaseException) -> str:
    """Return why nothing can be measured on the GPUs of a process after an error that is there to stay."""
    return (
        f"an earlier error of the GPU ({first_line(error)}) lasts as long as this process: it came from a test before "
        "or from the preparation of this one; mend that, or run this test in a new process"
    )


def of_ourselves(error: Exception) -> str:
    """Return what to say of an error that nobody foresaw: enough for a bug report."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"the measurement itself failed ({type(error).__name__} at {where}: {first_line(error)}): please report it"


def of_cupti(error: str) -> str | None:
    """Return what to do about an error of CUPTI, by its name."""
    return _OF_CUPTI.get(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, its kind where it has none; torch's lines may be a page long."""
    line = next((line.strip(" .") for line in str(error).splitlines() if line.strip()), type(error).__name__)
    # What torch asks before the number of an error that it did not expect is for its own users.
    line = re.sub(r"^Unexpected error from .*?(?=Error \d+: )", "", line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

"""Why a GPU cannot be used or measured here: each reason is a sentence that says what to do.

All of them are found by asking torch and the machine; none needs a GPU.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.reasons.capturing import CaptureFailed, Forked
from pytest_torchprof.reasons.fresh_processes import EndedSilently, FreshNotStarted, NotDoneInTime
from pytest_torchprof.reasons.gpu_trouble import (
    CuptiRefusal,
    DeviceTrouble,
    DeviceUnusable,
    EarlierGpuError,
    FabricNotReady,
    NoKernelsRecorded,
)
from pytest_torchprof.reasons.no_gpu import (
    BuiltForCpu,
    CannotInitialize,
    DriverSeesNone,
    DriverTooOld,
    FabricMissing,
    GpuDriver,
    GpusHidden,
    NoDriver,
    NoErrorReported,
    NoGpuOfThese,
)
from pytest_torchprof.system.processes import run
from pytest_torchprof.text import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.reasons.fresh_processes import AnyFreshFailure
    from pytest_torchprof.reasons.no_gpu import WhyNoGpu
    from pytest_torchprof.reasons.reason import Reason

# A part of an error's text (CUDA's sentence, or the name that newer versions of torch add), and what it means.
_OF_A_DEVICE = (
    (r"out of memory", DeviceTrouble.MEMORY_FULL),
    (r"busy or unavailable|cudaErrorDevicesUnavailable", DeviceTrouble.TAKEN),
    (r"uncorrectable ECC|cudaErrorECCUncorrectable", DeviceTrouble.MEMORY_DAMAGED),
)
_CHOOSING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


_LONGEST = 160


def no_gpu() -> WhyNoGpu:
    """Return why torch sees no GPU in this process; ask only where it sees none."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return BuiltForCpu(str(torch.__version__), _driver_of_this_machine())
    message = _error_at_initializing()
    if message is None:
        return NoErrorReported()
    if "no nvidia driver" in message.lower():
        return NoDriver(_driver_of_this_machine())
    if "gpus are available" in message.lower():
        return _why_driver_sees_none()
    return _of_initializing(message)


def _why_driver_sees_none() -> WhyNoGpu:
    chosen = tuple((name, os.environ[name].strip()) for name in _CHOOSING if name in os.environ)
    if not chosen:
        return DriverSeesNone()
    # CUDA takes the GPUs before the first index that does not exist.
    leaves_none = any(not value or value.startswith("-") for _, value in chosen)
    return GpusHidden(chosen) if leaves_none else NoGpuOfThese(chosen)


def _of_initializing(message: str) -> WhyNoGpu:
    import torch

    if match := re.search(r"driver on your system is too old \(found version (\d+)\)", message):
        return DriverTooOld(str(torch.__version__), int(match[1]), torch.version.cuda)
    return FabricMissing() if "error 802" in message.lower() else CannotInitialize(message)


def _error_at_initializing() -> str | None:
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        return line_of_error(error)
    return None


def _driver_of_this_machine() -> GpuDriver | None:
    """Return this machine's GPU driver, whether torch can use it or not; None if there is none."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return GpuDriver.NVIDIA
    if Path("/proc/driver/nvidia/version").exists():
        return GpuDriver.NVIDIA
    return GpuDriver.AMD if Path("/dev/kfd").exists() else None


def of_device(device: str, error: BaseException) -> Reason:
    """Return why a device cannot be used, from the error that its use raised."""
    message = line_of_error(error)
    if "forked subprocess" in message:
        return Forked()
    if re.search(r"Error 802|system not yet initialized|cudaErrorSystemNotReady", str(error)):
        return FabricNotReady()
    cause = next((trouble for part, trouble in _OF_A_DEVICE if re.search(part, str(error))), None)
    return DeviceUnusable(device, message, cause)


def of_earlier_error(error: BaseException) -> Reason:
    """Return why nothing can be measured on the GPUs of a process after an error that lasts."""
    return EarlierGpuError(line_of_error(error))


def of_ourselves(error: Exception) -> Reason:
    """Return the reason for an error that nobody foresaw, with enough for a bug report."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return CaptureFailed(type(error).__name__, f"{Path(frame.filename).name}:{frame.lineno}", line_of_error(error))


def line_of_error(error: BaseException) -> str:
    """Return the first line of an error's text, or else its type, cut off: torch's may be a page long."""
    line = first_line(str(error)).strip(" .") or type(error).__name__
    # torch's question before the number of an unexpected error is meant for its own users.
    line = re.sub(r"^Unexpected error from .*?(?=Error \d+: )", "", line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


# torch alone: what a fresh process does must depend neither on this one nor on us. The number is looked for in all
# output; a first session may lose kernels.
_PROGRAM = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile

x = torch.zeros(1, device=sys.argv[1])
torch.cuda.synchronize(sys.argv[1])
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    for _ in range(int(sys.argv[2])):
        x.add_(1)
    torch.cuda.synchronize(sys.argv[1])
print("kernels", sum(event.device_type.name == "CUDA" for event in profiler.events()))
"""
_LAUNCHED = 64
# A fresh process imports torch and begins CUDA, which takes half a minute on a slow file system.
_LIMIT_S = 120.0
# Calls of a class of kineto's own are named by their object: "function cbapi.getCuptiStatus() failed ...".
_REFUSAL = re.compile(r"function ([\w.]+)\(([^)]*)\) failed with error (\w+)(?: \((\d+)\))?")
_VERSIONS = re.compile(r"CUDA versions\. (CUPTI: .*)")
_OF_THE_DEVICE = re.compile(r"CUDA error|HIP error|AcceleratorError|CUDA driver error|OutOfMemoryError")


def why_no_kernels(device: str, fresh: FreshProcess) -> Reason:
    """Return why torch.profiler records no kernels in this process, from what a fresh one saw."""
    tools = tuple(name for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH") if os.environ.get(name))
    return NoKernelsRecorded(device, fresh.kernels, fresh.refusals, fresh.failure, tools)


class FreshProcess(Struct, frozen=True, kw_only=True):
    """The kernels that a fresh process launched and recorded, and its errors."""

    launched: int
    kernels: int | None = None
    """How many its profiler recorded; None if it did not get that far."""
    refusals: tuple[CuptiRefusal, ...] = ()
    """The refusals of CUPTI, each error once, in the order in which they came."""
    versions: str | None = None
    """The versions in kineto's form: "CUPTI: 130001; Runtime: 13000; Driver: 13000"."""
    failure: AnyFreshFailure | str | None = None
    """Why it did not come to an end; a text where Python says it."""

    @property
    def silent(self) -> bool:
        """Whether it saw no kernel, and nothing says why."""
        return self.kernels == 0 and not self.refusals and self.failure is None

    @property
    def device_failed(self) -> bool:
        """Whether the GPU failed, and not its profiler."""
        return isinstance(self.failure, str) and _OF_THE_DEVICE.search(self.failure) is not None


def without_filters(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without filters that would turn a warning of torch's into an error."""
    return {name: value for name, value in environ.items() if name != "PYTHONWARNINGS"}


def fresh_process(device: str, *, limit_s: float = _LIMIT_S, bare: bool = False) -> FreshProcess:
    """Launch a few kernels on `device` under torch.profiler in a fresh process, and return what it saw.

    ``bare``: without the code that runs whenever Python starts, sitecustomize and the lines of .pth files.
    """
    # -P: no module of the current folder, such as a checkout of torch, may take the place of an installed one.
    words = ["-c", f"import sys; sys.path[:] = {sys.path!r}\n{_PROGRAM}"] if bare else ["-c", _PROGRAM]
    command = [sys.executable, "-P", *(["-S"] if bare else []), *words, device, str(_LAUNCHED)]
    environment = {**without_filters(os.environ), "KINETO_LOG_LEVEL": "1"}
    try:
        done = run(command, env=environment, limit_s=limit_s)
    except OSError as error:
        return FreshProcess(launched=_LAUNCHED, failure=FreshNotStarted(str(error.strerror or error)))
    if done.status is None:
        return FreshProcess(launched=_LAUNCHED, failure=NotDoneInTime(limit_s))
    counted = re.search(r"^kernels (\d+)\s*$", done.output, re.MULTILINE)
    versions = _VERSIONS.search(done.errors)
    return FreshProcess(
        launched=_LAUNCHED,
        kernels=int(counted[1]) if counted else None,
        refusals=_refusals(done.errors),
        versions=versions[1].strip() if versions else None,
        failure=None if counted else _last_line(done.errors) or EndedSilently(done.status),
    )


def _refusals(log: str) -> tuple[CuptiRefusal, ...]:
    by_error: dict[str, CuptiRefusal] = {}
    for call, given, error, _ in _REFUSAL.findall(log):
        by_error.setdefault(error, CuptiRefusal(call=f"{call}({given.strip()})", error=error))
    return tuple(by_error.values())


def _last_line(log: str) -> str | None:
    """Return the end of a traceback: its last line that does not explain an error of CUDA."""
    lines = [line for line in log.splitlines() if re.match(r"[\w.]+(Error|Exception|Interrupt|Warning)\b", line)]
    return lines[-1] if lines else None

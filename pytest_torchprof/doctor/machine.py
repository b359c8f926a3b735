"""The machine and its software: torch and what its profiler can record, variables that matter, the GPU's lock."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import warnings
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof.capture import no_gpu, pick_device, reasons, torch_profiler
from pytest_torchprof.capture.devices.cuda import gpu_uuid, has_gpu
from pytest_torchprof.capture.processes import holding, lock_file
from pytest_torchprof.doctor.inquiry import OK, WRONG, Answer, ChildFailed, ask, first_line, public
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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


def of_torch(machine: Machine) -> Iterator[Answer]:
    """Say which torch is imported here, built for what."""
    if machine.no_torch is not None:
        missing = machine.no_torch.startswith("ModuleNotFoundError: No module named 'torch'")
        text = "torch is not installed" if missing else f"torch cannot be imported: {machine.no_torch}"
        yield Answer("torch", WRONG, text, "install torch into the environment of this command: pip install torch")
        return
    import torch

    kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    built = kind if torch.version.cuda or torch.version.hip else "for the CPU"
    where = f"Python {platform.python_version()}, {platform.system()}-{platform.machine()}"
    yield Answer("torch", OK, f"{torch.__version__}, built {built.replace('CUDA', 'for CUDA')}; {where}")


def of_kineto(machine: Machine) -> Iterator[Answer]:
    """Say whether torch's profiler writes recordings, and of what."""
    if not torch_profiler.records_files():
        yield Answer(
            "kineto",
            WRONG,
            "this build of torch has no kineto: its profiler writes no recordings",
            "use another build of torch, such as the one that pip installs",
        )
        return
    from torch.profiler import supported_activities

    has_gpu()  # What torch warns of a driver that does not fit is said once, and better, by the check of the GPU.
    names = sorted(activity.name for activity in supported_activities())  # type: ignore[no-untyped-call]
    if machine.gpu_works and not {"CUDA", "HIP"} & set(names):
        yield Answer(
            "kineto",
            WRONG,
            f"records {', '.join(names)}, and not the GPU: this torch was built without its tracing library",
            "use a build of torch with CUPTI (CUDA) or roctracer (ROCm), such as the one that pip installs",
        )
        return
    yield Answer("kineto", OK, f"records {' and '.join(names)}")


_LONGEST = 120
_WAITING = "every launch waits for its kernel: times and ratios are not measured, counts are"
_ATTACHED = "another profiling tool is attached, and CUPTI serves one"
_RUN_WITHOUT = "run the tests without it, or with --torchprof=off"

# Name, what it does, what to do where that is wrong on a machine with a GPU ("": it is not).
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"(CUDA|HIP|ROCR)_VISIBLE_DEVICES", "chooses the GPUs that torch sees", ""),
    (r"NSYS_PROFILING_SESSION_ID", _ATTACHED, _RUN_WITHOUT),
    (r"CUDA_INJECTION(64|32)_PATH", "loads a profiling tool into each process", _RUN_WITHOUT),
    (r"NSYS_\w+", "a setting of nsys", ""),
    (r"CUDA_LAUNCH_BLOCKING|HIP_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL", _WAITING, "unset it"),
    (r"TEARDOWN_CUPTI", "1 shuts CUPTI down after each session: graphs and first records may suffer", ""),
    (r"DISABLE_CUPTI_LAZY_REINIT|CUPTI_\w+", "a setting of CUPTI", ""),
    (r"KINETO_CONFIG", "kineto takes settings from this file, its activities and buffers too", ""),
    (r"KINETO_USE_DAEMON", "a daemon may start profilers in this process", ""),
    (r"KINETO_\w+", "a setting of kineto", ""),
    (r"PYTORCH_NO_(CUDA|HIP)_MEMORY_CACHING", "peak memory is not measured without the cache", "unset it"),
    (r"PYTORCH_\w*ALLOC\w*", "settings of torch's allocator", ""),
    (r"LD_LIBRARY_PATH", "folders searched for libraries first", ""),
    (r"LD_PRELOAD", "libraries put before all others", ""),
)
_OFF = ("", "0")
# 0 means none of these is in force.
_SWITCHES = re.compile(r"\w+_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL|PYTORCH_NO_\w+_MEMORY_CACHING")


def of_variables(machine: Machine) -> Iterator[Answer]:
    """Say of each variable that is set what it does."""
    there = machine.no_torch is None and machine.gpu_works
    found = [one for name, value in sorted(os.environ.items()) if (one := _of(name, value, gpu=there))]
    yield from found or [Answer("environment", OK, "no variable is set that changes what is measured")]


def _of(name: str, value: str, *, gpu: bool) -> Answer | None:
    meaning = next(((what, do) for pattern, what, do in _KNOWN if re.fullmatch(pattern, name)), None)
    if meaning is None or (_SWITCHES.fullmatch(name) and value in _OFF):
        return None
    what, do = meaning
    text = f"{name}={printable_line(public(value), _LONGEST)}: {what}"
    return (
        Answer("environment", WRONG, text, do.replace("unset it", f"unset {name}"))
        if do and gpu
        else Answer("environment", OK, text)
    )


# A test run gives it back after each measurement.
_WAIT_S = 5.0


def of_lock(machine: Machine) -> Iterator[Answer]:
    """Say whether the GPU's lock is free."""
    uuid = machine.gpu["uuid"]
    path = lock_file(uuid)
    shown = public(str(path))
    try:
        with holding(uuid, wait_s=_WAIT_S):
            yield Answer("GPU lock", OK, f"free, {shown}")
    except NotMeasured as problem:
        machine.profiler_fails = "the GPU's lock is not to be had"
        who = holders(path)
        if who:
            text = f"held by {' and '.join(who)}, {shown}"
            yield Answer("GPU lock", WRONG, text, "end it, or run this again when it is done: nothing else is measured")
        else:
            do = "give every user of the machine the right to read and write it, or set TMPDIR to a folder of your own"
            yield Answer("GPU lock", WRONG, first_line(problem), do)


def holders(path: Path) -> list[str]:
    """Return the processes that hold a lock on a file, by number and program, where the system tells."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; those that wait have an arrow more.
        words = line.split()
        if len(words) == 8 and words[5].rpartition(":")[2] == str(inode):
            found.append(f"process {words[4]}{_program(words[4])}")
    return found


def _program(pid: str) -> str:
    try:
        return f" ({Path('/proc', pid, 'comm').read_text(encoding='utf-8', errors='replace').strip()})"
    except OSError:
        return ""

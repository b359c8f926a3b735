"""The machine and its software: torch, its profiler, variables, the GPU and its driver's answers."""

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

from msgspec import Struct, convert

from pytest_torchprof.capture import cupti_users, no_gpu, nvml, pick_device, reasons, torch_profiler
from pytest_torchprof.capture.devices.cuda import gpu_uuid, has_gpu
from pytest_torchprof.cli.doctor_checks.inquiry import OK, UNKNOWN, WRONG, Answer, ChildFailed, ask, public, public_line
from pytest_torchprof.reasons.capturing import SLOW_EXPORT
from pytest_torchprof.reasons.disturbances import Brake
from pytest_torchprof.reasons.no_gpu import AnyWhyNoGpu  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.nvml_silence import AnyNvmlSilence, NvmlSilence
from pytest_torchprof.text import counted, printable_line
from pytest_torchprof.text.units import show_bytes, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class UsableGpu(Struct, frozen=True, kw_only=True, tag=True):
    """The GPU that is measured, and what torch says of it."""

    name: str
    kind: str
    """The generation of its code: ``sm_90``, ``gfx942``."""
    memory_bytes: int
    device: str
    """Its name in torch: ``cuda:0``."""
    count: int
    """The number of GPUs."""
    uuid: str
    allocator: str
    """torch's."""
    cuda: bool
    """Whether this torch is built for CUDA."""
    driver: str | None
    """The CUDA version that the driver supports; None if it does not answer."""


class UnusableGpu(Struct, frozen=True, tag=True):
    """A GPU that torch cannot use."""

    problem: str
    """The failure."""


class NoGpu(Struct, frozen=True, tag=True):
    """torch sees no GPU."""

    why: AnyWhyNoGpu
    expected: bool
    """Whether users of this machine may believe that it has one."""


class Machine:
    """This process's torch, and the GPU as another process sees it."""

    profiler_fails: str | None = None
    """Why nothing more can be measured on the GPU, as soon as a check has shown it."""

    def give_up_profiling(self, why: str) -> None:
        """Keep why nothing more can be measured on the GPU."""
        self.profiler_fails = why

    @cached_property
    def no_torch(self) -> Exception | None:
        """The error that keeps torch from being imported; None if there is none."""
        try:
            with warnings.catch_warnings():
                # Without NumPy, which nothing here needs, torch warns when it is imported.
                warnings.simplefilter("ignore")
                import_module("torch")
        except Exception as problem:  # noqa: BLE001 - a missing or wrong library raises many kinds of errors
            return problem
        return None

    @cached_property
    def seen_gpu(self) -> UsableGpu | UnusableGpu | NoGpu:
        """The GPU that another process sees, or why it can use none."""
        try:
            return ask(use_gpu)
        except ChildFailed as failed:
            return UnusableGpu(str(failed))

    @property
    def gpu(self) -> UsableGpu:
        """The GPU that is measured."""
        if isinstance(self.seen_gpu, UsableGpu):
            return self.seen_gpu
        raise AssertionError  # No check asks for it before it has asked `gpu_works`.

    @property
    def gpu_works(self) -> bool:
        """Whether there is a GPU that torch can compute on."""
        return self.no_torch is None and isinstance(self.seen_gpu, UsableGpu)

    @property
    def has_no_gpu(self) -> bool:
        """Whether there is no GPU, and none is to be expected."""
        return self.no_torch is None and isinstance(self.seen_gpu, NoGpu) and not self.seen_gpu.expected


def use_gpu() -> UsableGpu | UnusableGpu | NoGpu:
    """Use the GPU once and describe it.

    It is called in a process of its own, which a broken driver may hang or crash.
    """
    if not has_gpu():
        lack = no_gpu()
        # A GPU that this machine or container has, but for which no driver can be loaded.
        handed = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
        return NoGpu(lack, expected=lack.surprising or handed)
    device = pick_device("auto")
    try:
        return _describe_used(device)
    except Exception as error:  # noqa: BLE001 - torch's errors of the GPU are of several kinds
        return UnusableGpu(str(reasons.of_device(device, error)))


def _describe_used(device: str) -> UsableGpu:
    import torch

    torch.ones(8, device=device).add_(1)
    torch.cuda.synchronize(device)
    properties = torch.cuda.get_device_properties(device)
    return UsableGpu(
        name=properties.name,
        kind=properties.gcnArchName if torch.version.hip else f"sm_{properties.major}{properties.minor}",
        memory_bytes=properties.total_memory,
        device=device,
        count=torch.cuda.device_count(),
        uuid=gpu_uuid(device),
        allocator=torch.cuda.get_allocator_backend(),
        cuda=bool(torch.version.cuda),
        driver=_driver(),
    )


def _driver() -> str | None:
    """Return the CUDA version that the driver supports; None if it does not answer."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(_DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"


def of_torch(machine: Machine) -> Iterator[Answer]:
    """Say which torch is imported here, and for which devices it was built."""
    if machine.no_torch is not None:
        missing = isinstance(machine.no_torch, ModuleNotFoundError) and machine.no_torch.name == "torch"
        text = "torch is not installed" if missing else f"torch cannot be imported: {public_line(machine.no_torch)}"
        yield Answer("torch", WRONG, text, "install torch into the environment of this command: pip install torch")
        return
    import torch

    kinds = (torch.version.cuda and f"for CUDA {torch.version.cuda}", torch.version.hip and f"ROCm {torch.version.hip}")
    built = next(filter(None, kinds), "for the CPU")
    where = f"Python {platform.python_version()}, {platform.system()}-{platform.machine()}"
    yield Answer("torch", OK, f"{torch.__version__}, built {built}; {where}")


def of_kineto(machine: Machine) -> Iterator[Answer]:
    """Say whether torch's profiler writes recordings, and of which devices."""
    if not torch_profiler.records_files():
        yield Answer(
            "kineto",
            WRONG,
            "this build of torch has no kineto: its profiler writes no recordings",
            "use another build of torch, such as the one that pip installs",
        )
        return
    from torch.profiler import supported_activities

    has_gpu()  # The check of the GPU reports an unsuitable driver better than torch's warning does.
    names = sorted(activity.name for activity in supported_activities())  # type: ignore[no-untyped-call]
    if machine.gpu_works and not {"CUDA", "HIP"} & set(names):
        yield Answer(
            "kineto",
            WRONG,
            f"records {', '.join(names)}, and not the GPU: this torch was built without its tracing library",
            "use a build of torch with CUPTI (CUDA) or roctracer (ROCm), such as the one that pip installs",
        )
        return
    text = f"records {' and '.join(names)}"
    if torch_profiler.lacks_file_only():
        text += f"; {SLOW_EXPORT}"
    yield Answer("kineto", OK, text)


_LONGEST = 120
_WAITING = "every launch waits for its kernel: times and ratios are not measured, counts are"
_ATTACHED = "another profiling tool is attached, and CUPTI serves one"
_RUN_WITHOUT = "run the tests without it, or with --torchprof=off"

# Name, effect, the remedy if that is wrong on a machine with a GPU ("": it is not wrong).
_UNSET = "unset {name}"
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"(CUDA|HIP|ROCR)_VISIBLE_DEVICES", "chooses the GPUs that torch sees", ""),
    (r"NSYS_PROFILING_SESSION_ID", _ATTACHED, _RUN_WITHOUT),
    (r"CUDA_INJECTION(64|32)_PATH", "loads a profiling tool into each process", _RUN_WITHOUT),
    (r"NSYS_\w+", "a setting of nsys", ""),
    (r"CUDA_LAUNCH_BLOCKING|HIP_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL", _WAITING, _UNSET),
    (r"TEARDOWN_CUPTI", "1 shuts CUPTI down after each session: graphs and first records may suffer", ""),
    (r"DISABLE_CUPTI_LAZY_REINIT|CUPTI_\w+", "a setting of CUPTI", ""),
    (r"KINETO_CONFIG", "kineto takes settings from this file, its activities and buffers too", ""),
    (r"KINETO_USE_DAEMON", "a daemon, such as dynolog, may start profilers in this process", ""),
    (r"KINETO_\w+", "a setting of kineto", ""),
    (r"PYTORCH_NO_(CUDA|HIP)_MEMORY_CACHING", "peak memory is not measured without the cache", _UNSET),
    (r"PYTORCH_\w*ALLOC\w*", "settings of torch's allocator", ""),
    (r"LD_LIBRARY_PATH", "folders searched for libraries first", ""),
    (r"LD_PRELOAD", "libraries put before all others", ""),
)
_OFF = ("", "0")
# 0 means none of these is in force.
_SWITCHES = re.compile(r"\w+_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL|PYTORCH_NO_\w+_MEMORY_CACHING")


def of_variables(machine: Machine) -> Iterator[Answer]:
    """Say what each variable that is set does."""
    there = machine.no_torch is None and machine.gpu_works
    answers = [
        answer for name, value in sorted(os.environ.items()) if (answer := _variable_answer(name, value, gpu=there))
    ]
    yield from answers or [Answer("environment", OK, "no variable is set that changes what is measured")]
    for user in cupti_users.loaded():
        text = f"{user} is loaded as soon as Python starts, and CUPTI serves one profiler at a time"
        yield Answer("environment", WRONG if there else OK, text, _RUN_WITHOUT if there else "")


def _variable_answer(name: str, value: str, *, gpu: bool) -> Answer | None:
    meaning = next(((what, do) for pattern, what, do in _KNOWN if re.fullmatch(pattern, name)), None)
    if meaning is None or (_SWITCHES.fullmatch(name) and value in _OFF):
        return None
    what, do = meaning
    text = f"{name}={printable_line(public(value), _LONGEST)}: {what}"
    return Answer("environment", WRONG, text, do.format(name=name)) if do and gpu else Answer("environment", OK, text)


_FIRST = "nothing can be measured on a GPU until this is put right"


def of_gpu(machine: Machine) -> Iterator[Answer]:
    """Say which GPU is measured, or why no GPU is."""
    match machine.seen_gpu:
        case UsableGpu() as gpu:
            what = f"{gpu.name} ({gpu.kind}, {show_bytes(gpu.memory_bytes)})"
            which = f"{gpu.device} of {counted(gpu.count, 'GPU')}"
            yield Answer("GPU", OK, f"{what}, {which}" + (f", driver for CUDA {gpu.driver}" if gpu.driver else ""))
            yield _allocator(gpu)
        case UnusableGpu(problem=problem):
            yield Answer("GPU", WRONG, problem, _FIRST)
        case NoGpu(why=why, expected=True):
            yield Answer("GPU", WRONG, f"torch sees no GPU: {why}", _FIRST)
        case NoGpu(why=why):
            yield Answer("GPU", OK, f"no GPU ({why}); the CPU is measured as the device")


def _allocator(gpu: UsableGpu) -> Answer:
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        return Answer("allocator", OK, "torch's, without its cache: see environment")
    return Answer("allocator", OK, f"torch's, backend {gpu.allocator}")


_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}

_QUERIES: Mapping[str, Callable[[nvml.Gpu], Any]] = {
    "clocks": nvml.Gpu.clocks_mhz,
    "slow-downs": nvml.Gpu.slowed_by,
    "limits": nvml.Gpu.held_back_ns,
    "processes": nvml.Gpu.others,
    "compute mode": nvml.Gpu.compute_mode,
    "persistence": nvml.Gpu.persistence,
}


class NvmlAnswer(Struct, frozen=True):
    """The answer of NVML to a question: a value, or why there is none."""

    value: Any = None
    unknown: AnyNvmlSilence | None = None


def ask_nvml(device: str, uuid: str) -> dict[str, NvmlAnswer]:
    """Ask every question, and return the answers by its name. It runs in a process of its own."""
    import torch

    # A measurement asks from a process that uses the GPU: only such processes are listed.
    torch.ones(1, device=device)
    with nvml.opened() as unknown:
        if unknown:
            return {"library": _nvml_answer(unknown)}
        driver, gpu = _nvml_answer(nvml.driver_version()), nvml.Gpu.of(uuid)
        if isinstance(gpu, NvmlSilence):
            return {"driver": driver, "GPU": _nvml_answer(gpu)}
        answers = {name: _nvml_answer(query(gpu)) for name, query in _QUERIES.items()}
        return {"driver": driver, **answers, "MIG": _nvml_answer(gpu.is_slice)}


def _nvml_answer(answer: Any) -> NvmlAnswer:
    return NvmlAnswer(unknown=answer) if isinstance(answer, NvmlSilence) else NvmlAnswer(answer)


def of_nvml(machine: Machine) -> Iterator[Answer]:
    """Say how the driver answers each query, and which queries it does not answer."""
    if not machine.gpu.cuda:
        return
    for name, answer in ask(ask_nvml, machine.gpu.device, machine.gpu.uuid).items():
        check, silence = f"NVML {name}", answer.unknown
        if silence is None:
            yield Answer(check, *(_READ[name](answer.value) if name in _READ else (OK, str(answer.value))))
        elif silence.remedy:
            yield Answer(check, WRONG, silence.text, silence.remedy)
        else:
            yield Answer(check, UNKNOWN, silence.text, _WITHOUT.get(name, ""))


_WITHOUT = dict.fromkeys(
    ("library", "GPU"),
    "put NVML where it is found, or measure without: counts need none of it, and a time beyond its limit may be "
    "due to other processes",
)


def _read_clocks(mhz: Mapping[str, int]) -> tuple[Any, str, str]:
    now = {name: value for name, value in mhz.items() if not name.endswith("_max")}
    if not now:
        return UNKNOWN, "only their maximum is known, not what they are now", ""
    most = {name: f" of {mhz[f'{name}_max']}" for name in now if f"{name}_max" in mhz}
    return OK, ", ".join(f"{name} {value}{most.get(name, '')} MHz" for name, value in now.items()), ""


def _read_slowed(codes: Sequence[str]) -> tuple[Any, str, str]:
    if not codes:
        return OK, "none", ""
    brakes = ", ".join(brake.text for brake in convert(codes, list[Brake]))
    return WRONG, f"slowed down by {brakes}", "compare no times until it is cool and has its power"


def _read_limits(held_back_ns: Mapping[str, int]) -> tuple[Any, str, str]:
    shares = (f"{show_us(ns / 1000)} by {brake}" for brake, ns in convert(held_back_ns, dict[Brake, int]).items())
    return OK, f"held back since the driver was loaded: {', '.join(shares)}", ""


def _read_processes(others: int) -> tuple[Any, str, str]:
    if not others:
        return OK, "no other process computes on it", ""
    text = f"{counted(others, 'other process')} on it"
    return WRONG, text, "end what nvidia-smi lists before times are measured; counts are right all the same"


def _read_compute_mode(mode: int) -> tuple[Any, str, str]:
    text = _COMPUTE_MODES.get(mode)
    if text is None:
        return UNKNOWN, f"the driver says {mode}, which is none of the modes that NVML is known to have", ""
    if mode == 0:
        return OK, text, ""
    if mode == 2:
        return WRONG, f"{text}: no process may compute on it", "nvidia-smi -c DEFAULT, as its administrator"
    return OK, f"{text}: one process at a time, so workers of pytest-xdist fail on it (nvidia-smi -c DEFAULT)", ""


_NOT_LOADED = "the first use of the GPU by any process takes longer: nvidia-smi -pm 1"
_READ: dict[str, Callable[[Any], tuple[Any, str, str]]] = {
    "clocks": _read_clocks,
    "slow-downs": _read_slowed,
    "limits": _read_limits,
    "processes": _read_processes,
    "compute mode": _read_compute_mode,
    "persistence": lambda on: (OK, "on" if on else f"off ({_NOT_LOADED})", ""),
    "MIG": lambda is_slice: (OK, "a slice of a GPU" if is_slice else "a whole GPU", ""),
}

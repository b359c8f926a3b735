"""Which device is measured, which devices the process uses, and how they are waited for."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from pytest_torchprof.capture import reasons, torch_cuda
from pytest_torchprof.capture.profiler_state import this_process
from pytest_torchprof.errors import NotMeasured, TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


def pick_device(wanted: str) -> str:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" stands for here: "cpu" or "cuda:N".

    ROCm devices are "cuda:N" too, as in torch. Raises TorchprofError for a device that is not there or whose
    recordings cannot be read.
    """
    if wanted == "cpu" or (wanted == "auto" and not has_gpu()):
        return "cpu"
    kind, _, number = wanted.partition(":")
    if kind not in ("auto", "cuda") or (number and not number.isdecimal()):
        raise TorchprofError(f"unknown device {wanted!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:N'.")
    return f"cuda:{_gpu_index(wanted, number)}"


def _gpu_index(wanted: str, number: str) -> int:
    import torch

    if not has_gpu():
        raise TorchprofError(
            f"device {wanted!r} was asked for, but torch {torch.__version__} sees no CUDA or ROCm device: "
            f"{reasons.no_gpu().reason}. Use 'auto' or 'cpu', or run where there is a GPU."
        )
    count = torch.cuda.device_count()  # pragma: needs gpu
    # To ask for the current device would begin CUDA, which no fork of this process survives.
    begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # pragma: needs gpu
    try:
        index = int(number) if number else torch.cuda.current_device() if begun else 0  # pragma: needs gpu
    except RuntimeError as error:  # pragma: needs gpu - the device was lost since
        raise NotMeasured(reasons.of_device("the GPU", error)) from None
    if index >= count:  # pragma: needs gpu
        seen = counted(count, "device")
        raise TorchprofError(f"device {wanted!r} was asked for, but torch sees {seen}, from 'cuda:0'.")
    return index  # pragma: needs gpu


def has_gpu() -> bool:
    """Whether torch can use a CUDA or ROCm device in this process."""
    import torch

    _let_torch_look_for_gpus()
    return torch.cuda.is_available()


@cache
def _let_torch_look_for_gpus() -> None:
    """Let torch warn now, unheard, of what it finds: once, and where warnings are errors that would be raised."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.is_available()


def why_unusable() -> str | None:
    """Return what keeps this process from using its GPUs any more; None where nothing does, or where there is none."""
    process = this_process()
    if torch_cuda.cannot_use_gpus_since_fork():
        process.unusable = reasons.FORKED
    elif process.unusable is None:
        process.unusable = _lasting_error()
    return process.unusable


def _lasting_error() -> str | None:
    if not has_gpu():
        return None
    import torch  # pragma: needs gpu

    begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # pragma: needs gpu
    # An error that somebody left behind who did not look is told once; a broken GPU says it again.
    with suppress(Exception):  # pragma: needs gpu
        _wait_for_all()
    try:  # pragma: needs gpu
        _wait_for_all()
    except Exception as error:  # noqa: BLE001 - torch's errors of the GPU are of several kinds
        return reasons.of_earlier_error(error) if begun else reasons.of_device("the GPU", error)
    return None  # pragma: needs gpu


def _wait_for_all() -> None:  # pragma: needs gpu
    """Wait for the current GPU too, in use or not: the profiler will when it stops."""
    import torch

    torch.cuda.synchronize()
    synchronize(devices_in_use("cpu"))


def activities() -> list[ProfilerActivity]:
    """Return what every session records: the CPU, and the GPU wherever there is one.

    Also for measurements of the CPU: kineto registers once per process, and a first session without the GPU would
    leave all later ones without kernels. Where the GPU cannot be used any more, the profiler would fail with it.
    """
    from torch.profiler import ProfilerActivity

    gpu = has_gpu() and this_process().unusable is None
    return [ProfilerActivity.CPU, ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]


def gpu_uuid(device: str) -> str:  # pragma: needs gpu
    """Return the name that this GPU has in every process: "GPU-..." as NVML has it, else its place on the bus."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    place = (getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device"))
    return f"GPU-{uuid}" if uuid else "PCI-{:04x}-{:02x}-{:02x}".format(*place)


def gpu_uuids() -> list[str]:  # pragma: needs gpu
    """Return the names, in every process, of all GPUs that this one sees."""
    import torch

    return [gpu_uuid(f"cuda:{index}") for index in range(torch.cuda.device_count())]


def devices_in_use(device: str) -> tuple[int, ...]:
    """Return the indices of the GPUs that this process holds a context on, and of `device` if it is one.

    The others are left alone: to synchronize a device creates a context on it, which costs memory and time.
    """
    if not has_gpu() or this_process().unusable is not None:
        return ()
    import torch  # pragma: needs gpu

    measured = {torch.device(device).index} - {None}  # pragma: needs gpu
    return tuple(  # pragma: needs gpu
        index for index in range(torch.cuda.device_count()) if index in measured or torch_cuda.has_context(index)
    )


def synchronize(devices: tuple[int, ...]) -> None:
    """Wait for all work queued on these GPUs; the profiler itself waits for the current one only."""
    if devices:  # pragma: needs gpu
        import torch

        for index in devices:
            torch.cuda.synchronize(index)


class MeasuredCodeFailed(Exception):
    """Carries an error of the GPU that is the measured code's own to where it is raised as that."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def wait_for_measured_work(devices: tuple[int, ...]) -> None:
    """Wait as `synchronize` does, after the measured code; raises MeasuredCodeFailed with what comes up here."""
    try:
        synchronize(devices)
    except RuntimeError as error:
        error.add_note(
            "It came up while the plugin waited for what the measured code had queued on the GPU; with "
            "CUDA_LAUNCH_BLOCKING=1 it is raised at the call that queued it."
        )
        raise MeasuredCodeFailed(error) from None


def counts_memory(device: str) -> bool:  # pragma: needs gpu
    """Whether the allocator in use counts what it gives out; ask while something lies on the device."""
    import torch

    try:
        return torch.cuda.memory_allocated(device) > 0
    except Exception:  # noqa: BLE001 - a pluggable allocator raises what it likes
        return False


def start_peak_memory(devices: tuple[int, ...]) -> None:
    """Begin a new allocator peak on these GPUs; a peak that the test had running begins anew with it."""
    if devices:  # pragma: needs gpu
        import torch

        for index in devices:
            torch.cuda.reset_peak_memory_stats(index)


def peak_memory_bytes(devices: tuple[int, ...]) -> int | None:
    """Return the largest allocator peak of these GPUs since `start_peak_memory`, in bytes; None without a GPU."""
    if not devices:
        return None
    import torch  # pragma: needs gpu

    return max(torch.cuda.max_memory_allocated(index) for index in devices)  # pragma: needs gpu

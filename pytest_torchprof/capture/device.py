"""Which device is measured, which devices the process uses, and how they are waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof import torch_private
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.words import counted

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


def pick_device(wanted: str) -> str:
    """Return the device that "auto", "cpu", "cuda", "cuda:N" or "xpu" stands for here: "cpu" or "cuda:N".

    ROCm devices are "cuda:N" too, as in torch. Raises TorchprofError for a device that is not there or whose
    recordings cannot be read.
    """
    if wanted == "cpu" or (wanted == "auto" and not has_gpu()):
        return "cpu"
    if wanted == "xpu":
        raise TorchprofError(
            "device 'xpu' cannot be measured: the launch calls in its recordings are not known yet. "
            "Use 'auto', 'cpu', 'cuda' or 'cuda:N'."
        )
    kind, _, number = wanted.partition(":")
    if kind not in ("auto", "cuda") or (number and not number.isdecimal()):
        raise TorchprofError(f"unknown device {wanted!r}. Use 'auto', 'cpu', 'cuda' or 'cuda:N'.")
    return f"cuda:{_gpu_index(wanted, number)}"


def _gpu_index(wanted: str, number: str) -> int:
    import torch

    if not has_gpu():
        raise TorchprofError(
            f"device {wanted!r} was asked for, but torch {torch.__version__} sees no CUDA or ROCm device. "
            "Use 'auto' or 'cpu', or run where there is a GPU."
        )
    count = torch.cuda.device_count()  # pragma: needs gpu
    index = int(number) if number else torch.cuda.current_device()  # pragma: needs gpu
    if index >= count:  # pragma: needs gpu
        seen = counted(count, "device")
        raise TorchprofError(f"device {wanted!r} was asked for, but torch sees {seen}, from 'cuda:0'.")
    return index  # pragma: needs gpu


def has_gpu() -> bool:
    """Whether torch can use a CUDA or ROCm device in this process."""
    import torch

    return torch.cuda.is_available()


def activities() -> list[ProfilerActivity]:
    """Return what every session records: the CPU, and the GPU wherever there is one.

    Also for measurements of the CPU: kineto registers once per process, and a first session without the GPU would
    leave all later ones without kernels.
    """
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU, ProfilerActivity.CUDA] if has_gpu() else [ProfilerActivity.CPU]


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
    if not has_gpu():
        return ()
    import torch  # pragma: needs gpu

    measured = {torch.device(device).index} - {None}  # pragma: needs gpu
    return tuple(  # pragma: needs gpu
        index for index in range(torch.cuda.device_count()) if index in measured or torch_private.has_context(index)
    )


def synchronize(devices: tuple[int, ...]) -> None:
    """Wait for all work queued on these GPUs; the profiler itself waits for the current one only."""
    if devices:  # pragma: needs gpu
        import torch

        for index in devices:
            torch.cuda.synchronize(index)


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

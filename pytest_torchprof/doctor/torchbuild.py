"""Which torch this is, and what its profiler can record."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.devices.cuda import has_gpu
from pytest_torchprof.doctor.answer import OK, WRONG, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.doctor.machine import Machine


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

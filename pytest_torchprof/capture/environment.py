"""Where a recording was made: hardware, versions, precision flags. No host names, no paths."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from pytest_torchprof.capture import torch_cuda
from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.devices.launch_blocking import launches_wait
from pytest_torchprof.recording.metadata import Environment


def environment(device: str) -> Environment:
    """Return where a recording on `device` ("cpu" or "cuda:0") is made; unknown is None."""
    import torch

    return Environment(
        **live_device(device).describe(),
        cuda=torch.version.cuda,
        rocm=torch.version.hip,
        torch=str(torch.__version__),
        triton=_triton_version(),
        python=platform.python_version(),
        cpu=_cpu_model(),
        platform=f"{platform.system()}-{platform.machine()}",
        **torch_cuda.precision_flags(),
        cuda_launch_blocking=os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        launches_wait=launches_wait(),
    )


@cache
def _triton_version() -> str | None:
    for distribution in ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, "") or platform.processor() or platform.machine()

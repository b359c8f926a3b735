"""Settings of the environment that make the CPU wait for every kernel: counts hold, times and ratios mean nothing."""

from __future__ import annotations

import os

_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


def set_here() -> str | None:
    """Return the setting that is in force in this process, as "CUDA_LAUNCH_BLOCKING=1"."""
    found = ((name, os.environ.get(name, "")) for name in _VARIABLES)
    return next((f"{name}={value}" for name, value in found if value not in ("", "0")), None)

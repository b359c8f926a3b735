"""Settings of the environment that make the CPU wait for every kernel: counts hold, times and ratios mean nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


def set_here() -> str | None:
    """Return the setting that is in force in this process, as "CUDA_LAUNCH_BLOCKING=1"."""
    found = ((name, os.environ.get(name, "")) for name in _VARIABLES)
    return next((f"{name}={value}" for name, value in found if value not in ("", "0")), None)


def recorded(environment: Mapping[str, Any]) -> str | None:
    """Return the setting under which a recording was made, from its environment."""
    told = environment.get("launches_wait")
    if isinstance(told, str):
        return told
    # Recordings of earlier versions say only whether it was this one.
    return "CUDA_LAUNCH_BLOCKING=1" if environment.get("cuda_launch_blocking") else None

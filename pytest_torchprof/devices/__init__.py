"""The differences between kinds of devices that matter to reading; ``capture.devices`` has those for measuring."""

from __future__ import annotations

import os

# The variables are not with the kinds of devices, since the header of every pytest run asks for them.
_LAUNCHES_WAIT = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


def launches_wait() -> str | None:
    """Return the setting of this process that makes the CPU wait for every kernel, as "CUDA_LAUNCH_BLOCKING=1".

    None without one. Counts are valid under it; times and ratios mean nothing.
    """
    settings = ((name, os.environ.get(name, "")) for name in _LAUNCHES_WAIT)
    return next((f"{name}={value}" for name, value in settings if value not in ("", "0")), None)

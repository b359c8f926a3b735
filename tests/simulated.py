"""The simulated CUDA device of tests/fakegpu: whether this process runs on it."""

from __future__ import annotations

import ctypes
import sys


def gpu_is_simulated() -> bool:
    """Whether tests/fakegpu stands in for CUDA in this process."""
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "fakegpu_reload")

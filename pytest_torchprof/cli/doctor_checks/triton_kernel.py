"""A Triton kernel; importing this module imports Triton, which only the process that uses the GPU does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

triton: Any = import_module("triton")
tl: Any = import_module("triton.language")


@triton.jit
def double(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - Triton's language, not Python's
    """Double the first element."""
    tl.store(x, tl.load(x) * 2)

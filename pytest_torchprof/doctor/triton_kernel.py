"""A kernel for Triton; importing this module imports Triton, which only a GPU's process does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

triton: Any = import_module("triton")
tl: Any = import_module("triton.language")


@triton.jit
def double(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - Triton's language, not Python's
    """Double the first element."""
    tl.store(x, tl.load(x) * 2)

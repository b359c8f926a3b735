"""The recording of a repeat with marks for lines and modules, which lies beside that of the measurement."""

from __future__ import annotations

from typing import Final

_ENDING: Final = ".stacks.json"


def stacks_name(name: str) -> str:
    """Return the file name of the recording with stacks beside a recording of this name, packed as kept ones are."""
    return f"{name.removesuffix('.gz').removesuffix('.json')}{_ENDING}.gz"


def is_stacks_name(name: str) -> bool:
    """Whether a file of this name is one that lies beside another."""
    return name.endswith((_ENDING, f"{_ENDING}.gz"))

"""What a limit is: a keyword, how its value is read, and the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from pytest_torchprof.errors import UnknownLimit

if TYPE_CHECKING:
    from pytest_torchprof.limits.verdict import Verdict
    from pytest_torchprof.profile import Profile

GPU = "gpu"
"""Needs kernels of the device; cannot be answered by a CPU that stands in for a missing GPU."""
COMPILE = "compile"
"""Needs compile evidence only; a CPU can answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One keyword of the marker: ``read`` turns its value into what ``check`` takes, or raises UnknownLimit."""

    name: str
    read: Callable[[object], Any]
    check: Callable[[Profile, Any], Verdict]
    needs: str = GPU
    on_gpu_work: bool = True
    """A step without GPU operations cannot satisfy it, unless the test says ``min_kernels=0``."""
    on_time: bool = False
    """Meaningless where launches block (``CUDA_LAUNCH_BLOCKING=1``)."""
    located: bool = True
    """Missed by work that was launched from somewhere: a recording with stacks tells the lines."""


def whole_number(value: object) -> int:
    """Return a count, or raise UnknownLimit."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise UnknownLimit(f"expected a whole number from 0, got {value!r}")


def positive_number(value: object) -> float:
    """Return a finite number from 0, or raise UnknownLimit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0:
        return float(value)
    raise UnknownLimit(f"expected a number from 0, got {value!r}")


def share(value: object) -> float:
    """Return a number from 0 to 1, or raise UnknownLimit."""
    number = positive_number(value)
    if number > 1:
        raise UnknownLimit(f"expected a share from 0 to 1, got {value!r}")
    return number


def as_list(value: object) -> list[object]:
    """Return a single value as a list of it; a tuple, set or list as a list; refuse an empty one."""
    items = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    if not items:
        raise UnknownLimit("expected at least one entry, got an empty list")
    return items


def bounds(value: object) -> tuple[int, int]:
    """Return ``(low, high)`` from an exact count or a pair of counts, or raise UnknownLimit."""
    if isinstance(value, tuple | list):
        if len(value) == 2:
            low, high = whole_number(value[0]), whole_number(value[1])
            if low <= high:
                return low, high
        raise UnknownLimit(f"expected a count or a pair (low, high), got {value!r}")
    count = whole_number(value)
    return count, count


def as_counts(value: object) -> dict[object, tuple[int, int] | None]:
    """Return entry -> (low, high), None meaning "at least one", from a dict, a list or a single entry."""
    if isinstance(value, Mapping):
        if not value:
            raise UnknownLimit("expected at least one entry, got an empty dict")
        return {entry: bounds(count) for entry, count in value.items()}
    return dict.fromkeys(as_list(value))

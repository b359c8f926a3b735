"""How much numbers changed: the ratio of before and after, and which changed most."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    Pair = tuple[float | None, float | None]

GPU_TIME: Final = "gpu_time_us"
# What costs comes first, what is derived from it last.
_TURN: Final = {"us": 0, "bytes": 1, "count": 1, "share": 2, "ratio": 2}
# Counts of nothing have no ratio to others: five from none weigh as much as five from one.
_LEAST: Final = {"share": 0.01, "ratio": 0.01}


def ratio_of(before: float | None, after: float | None) -> float | None:
    """Return after over before, None where there is none."""
    return after / before if before and after is not None else None


def show_factor(ratio: float) -> str:
    """Return "7.5x", "0.44x", "1.03x"."""
    if ratio and 0.9 < ratio < 1.1:
        return f"{ratio:.2f}x"
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x" if ratio > 1 else f"{ratio:.2g}x"


def size_of(number: str, values: Pair) -> float:
    """Return how far a number moved, up or down, as a logarithm: 0 where it did not."""
    before, after = (abs(value or 0) for value in values)
    least = _LEAST.get(BY_NAME[number].unit, 1.0) if number in BY_NAME else 1.0
    return abs(math.log(max(after, least) / max(before, least)))


def largest_first(numbers: Mapping[str, Pair]) -> dict[str, Pair]:
    """Return the numbers in order: times, then counts and bytes, then shares; of each those that moved most first."""
    ordered = sorted(numbers, key=lambda name: (turn_of(name) + follows_gpu_time(name), -size_of(name, numbers[name])))
    return {name: numbers[name] for name in ordered}


def follows_gpu_time(name: str) -> bool:
    """Whether a number is as a rule the GPU time once more: kernel time, busy time, span."""
    return name in BY_NAME and name != GPU_TIME and "gpu_busy_us" in (name, BY_NAME[name].follows)


def turn_of(name: str) -> int:
    """Return when a number is told: 0 for times, among the first."""
    return _TURN[BY_NAME[name].unit] if name in BY_NAME else 0

"""Exact statistics of a few paired differences, which assume nothing about their distribution but symmetry."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import middle

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE: Final = 0.95


def hodges_lehmann(values: Sequence[float]) -> float:
    """Return the median of the values' pairwise means: as robust as a median, and nearly as steady as a mean."""
    return middle(_walsh_averages(values))


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the bounds of the middle of the differences, with at least this confidence, 0..1.

    They follow the exact distribution of Wilcoxon's signed ranks; with fewer than 6 values 95 % cannot be reached, and
    the bounds are those of the widest interval.
    """
    averages = _walsh_averages(values)
    outside = _signed_rank_quantile(len(values), (1 - confidence) / 2)
    return averages[outside], averages[-1 - outside]


def chance_of_sum(values: Sequence[float]) -> float:
    """Return how often differences with randomly drawn signs sum up to as much as these, 0..1: one-sided, exact.

    All combinations of signs are counted, those of each half of the values by themselves: 30 values have a billion.
    """
    half = len(values) // 2
    first, second = _signed_sums(values[:half]), sorted(_signed_sums(values[half:]))
    # The sum itself is among them, by additions that may round differently.
    reached = sum(values) - 1e-9 * sum(map(abs, values))
    return sum(len(second) - bisect_left(second, reached - signed) for signed in first) / (len(first) * len(second))


def _signed_sums(values: Sequence[float]) -> list[float]:
    """Return the sum of the values for each combination of their signs."""
    sums = [0.0]
    for value in values:
        sums = [before + signed for before in sums for signed in (value, -value)]
    return sums


def _walsh_averages(values: Sequence[float]) -> list[float]:
    return sorted((value + other) / 2 for at, value in enumerate(values) for other in values[: at + 1])


def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the largest rank sum that at most this share of all 2**count draws of signs stays within; at least 0."""
    ways = [1]
    for rank in range(1, count + 1):
        longer = [*ways, *[0] * rank]
        for at, number in enumerate(ways):
            longer[at + rank] += number
        ways = longer
    below, quantile = 0, 0
    for rank_sum, number in enumerate(ways):
        below += number
        if below > tail * 2**count:
            break
        quantile = rank_sum
    return quantile

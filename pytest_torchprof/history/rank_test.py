"""The exact test of whether one group of values lies above another, which assumes nothing about how they are spread."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def one_sided(lower: Sequence[float], higher: Sequence[float]) -> float:
    """Return how often chance alone would rank the second of two groups so high above the first, 0..1: exact.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other" (1947).
    Equal values speak against a difference, so that ties make the answer larger, never smaller.
    """
    ordered = sorted(lower)
    return _tail(len(lower), len(higher))[sum(map(bisect_left, repeat(ordered), higher))]


def least_share(before: int, after: int, probability: float) -> float | None:
    """Return the least share of pairs with a larger later value for which chance, in either direction, is at most this.

    None if there is no such share.

    ``before``, ``after``: the sizes of the groups.
    """
    tail = _tail(before, after)
    pairs = next((pairs for pairs, share in enumerate(tail) if 2 * share <= probability), None)
    return None if pairs is None else pairs / (before * after)


@lru_cache(maxsize=4096)
def _tail(first: int, second: int) -> tuple[float, ...]:
    """Return for each number of pairs the probability of that many or more if all orders are equally probable.

    The orders by their number of pairs are the coefficients of a Gaussian binomial, made factor by factor.
    """
    fewer, more = sorted((first, second))
    most = fewer * more
    ways = [1] + [0] * most
    for factor in range(1, fewer + 1):
        for pairs in range(most, more + factor - 1, -1):
            ways[pairs] -= ways[pairs - more - factor]
        for pairs in range(factor, most + 1):
            ways[pairs] += ways[pairs - factor]
    total = sum(ways)
    above, shares = 0, []
    for number in reversed(ways):
        above += number
        shares.append(above / total)
    return tuple(reversed(shares))

"""Whether code became slower, by pairs of processes that ran it as it was and as it is.

Two processes of the same code differ, for example in where their memory lies, for as long as they live, and no number
of samples in one of them distinguishes that from slower code. So a process counts once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.compare.paired import chance_of_sum, hodges_lehmann, interval

PaceVerdict = Literal["same", "better", "worse", "ambiguous"]

LEAST_PAIRS: Final = 7
"""With fewer pairs even the clearest difference is due to chance in more than 1 of 100 runs."""
MOST_PAIRS: Final = 15
CHANCE: Final = 0.01
"""A result that chance would produce less often than this is not put down to chance."""


class TimePair(NamedTuple):
    """The medians of two processes that ran one after the other, in microseconds."""

    base_us: float
    here_us: float


class Slowdown(Struct, frozen=True, kw_only=True):
    """By how much the code became slower, as shares of the time before; negative if it became faster."""

    share: float
    low: float
    high: float
    """The ends of the interval of 95 %."""
    floor: float
    """The median difference between processes of the same code, the old one."""
    chance: float
    """How often chance would produce as large a difference, in this direction."""

    def exceeds(self, allowed: float) -> bool:
        """Return whether the slowdown is more than is allowed, than the same code shows, and than chance explains."""
        return self.share > max(allowed, self.floor) and self.chance < CHANCE

    @property
    def words(self) -> str:
        """The share and its interval: "+12.1% (+8.0% to +15.9%)"."""
        return f"{self.share:+.1%} ({self.low:+.1%} to {self.high:+.1%})"


@lru_cache(maxsize=1024)
def slowdown(pairs: tuple[TimePair, ...]) -> Slowdown:
    """Return the slowdown that pairs of processes show, at least two, in the order in which they ran."""
    ratios = [math.log(pair.here_us / pair.base_us) for pair in pairs]
    apart = [abs(math.log(later.base_us / earlier.base_us)) for earlier, later in pairwise(pairs)]
    low, high = interval(ratios)
    return Slowdown(
        share=math.expm1(hodges_lehmann(ratios)),
        low=math.expm1(low),
        high=math.expm1(high),
        floor=math.expm1(hodges_lehmann(apart)),
        chance=chance_of_sum(ratios),
    )


def speedup(pairs: tuple[TimePair, ...]) -> Slowdown:
    """Return by how much the code was slower before; the floor is that of ``slowdown``."""
    exchanged = slowdown(tuple(TimePair(pair.here_us, pair.base_us) for pair in pairs))
    return replace(exchanged, floor=slowdown(pairs).floor)


class TimedPairs(Struct, frozen=True, kw_only=True):
    """The times of one measurement on both sides, as far as they are known."""

    allowed: float
    """The share by which it may become slower."""
    pairs: tuple[TimePair, ...] = ()
    fresh: tuple[TimePair, ...] = ()
    """The pairs taken after the first ones had shown it to be slower: they confirm that, or they do not."""

    def with_pair(self, pair: TimePair) -> TimedPairs:
        """Return the times with one more pair."""
        if self.doubted:
            return TimedPairs(allowed=self.allowed, pairs=self.pairs, fresh=(*self.fresh, pair))
        return TimedPairs(allowed=self.allowed, pairs=(*self.pairs, pair))

    @property
    def doubted(self) -> bool:
        """Whether the first pairs show it to be slower, which fresh ones have to confirm."""
        return len(self.pairs) >= LEAST_PAIRS and slowdown(self.pairs).exceeds(self.allowed)

    @property
    def wanting(self) -> int:
        """The least number of further pairs; 0 if all is decided, or if more pairs would not decide it."""
        current = self.fresh if self.doubted else self.pairs
        if len(current) < LEAST_PAIRS:
            return LEAST_PAIRS - len(current)
        return int(self._decision is None and len(current) < MOST_PAIRS)

    @property
    def all_pairs(self) -> tuple[TimePair, ...]:
        """The pairs in the order in which they came."""
        return (*self.pairs, *self.fresh)

    @property
    def verdict(self) -> PaceVerdict:
        """The verdict of the pairs so far."""
        return self._decision or "ambiguous"

    @property
    def _decision(self) -> PaceVerdict | None:
        """The verdict of the pairs; None if they leave it open."""
        if len(self.pairs) < LEAST_PAIRS:
            return None
        if self.doubted:
            confirmed = len(self.fresh) >= LEAST_PAIRS and slowdown(self.fresh).exceeds(self.allowed)
            return "worse" if confirmed else None
        if speedup(self.pairs).exceeds(self.allowed):
            return "better"
        return "same" if slowdown(self.pairs).high <= self.allowed else None

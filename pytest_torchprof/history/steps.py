"""Where a series of times takes a step, and how small a step it could show: pure statistics, without a clock or a file.

The values are logarithms of medians, one for each process, in the order of the commits: two processes of the same code
differ for as long as they live, and no number of samples within one of them counts for a second one.

Each place where a series could be cut is tested with the values beside it, at most ``_FAR`` on a side, from which is
taken off what a slow drift may make of them. The test is exact, and its chance is multiplied with the number of all
tests of the series (Bonferroni), each of them a pair of windows at a place: no order of the values of a steady series
gives a wrong step more often than that. Once a step is chosen, what lies before and after it is searched as a series of
its own.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from pytest_torchprof.analysis.numbers import middle
from pytest_torchprof.history.rank_test import least_share, one_sided

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LEAST: Final = 3
"""How many processes a side has at least."""
LARGEST_CHANCE: Final = 0.0002
"""How probable a step may be in a series without one: it is looked for each night anew, and of 1,000 series at most one
may have a false one in a month."""
FALSE_SHARE: Final = 0.05
"""The share of false ones among the series with a step, after Benjamini and Hochberg."""
_FAR: Final = 30
"""How many processes a side has at most: those of a month that runs each night."""
_NEAR: Final = 8
"""How many tell a step that was soon undone."""
_WINDOWS: Final = ((_FAR, _FAR), (_FAR, _NEAR), (_NEAR, _FAR))
_WORTH_TESTING: Final = 3.0
"""In standard deviations: where windows differ by less, no exact test would be passed."""
_CLIPPED: Final = 3.0
"""In standard deviations: how far off a single value counts."""
_SURE: Final = 0.95
_DRIFT: Final = math.log1p(0.05) / 365
"""How much times may drift from process to process without a step: 5 % in a year that runs each night."""


class Step(Struct, frozen=True, kw_only=True):
    """A step in a series of values."""

    at: int
    """The first value after it, where it most probably lies."""
    earliest: int
    latest: int
    """It begins with one of the values from the one to the other, with a probability of 95 %."""
    before: float
    """The median of the values before it, as far as they were compared."""
    after: float
    """That of those after it."""
    chance: float
    """How probable such a step is anywhere in a series without one, 0..1."""


class Steps(Struct, frozen=True, kw_only=True):
    """The steps of a series, oldest first, and what smaller ones would be lost in."""

    count: int
    """How many values the series has."""
    steps: tuple[Step, ...]
    scatter: tuple[float, ...]
    """By how much recent values differ from the middle of theirs, ascending."""

    @property
    def chance(self) -> float:
        """The probability of the clearest of them in a series without steps; 1 if there are none."""
        return min((step.chance for step in self.steps), default=1.0)

    def within(self, probability: float) -> Steps:
        """Return the steps that are at most so probable in a series without steps."""
        kept = tuple(step for step in self.steps if step.chance <= probability)
        return Steps(count=self.count, steps=kept, scatter=self.scatter)

    def smallest(self, probability: float) -> float | None:
        """Return the smallest shift that could be shown with at most this chance; None as long as there is none.

        It would pass the test in one of two cases, once it has as many processes as a window has.
        """
        side = min(_FAR, self.count // 2)
        share = least_share(side, side, probability / tests_of(self.count)) if side >= LEAST else None
        if share is None:
            return None
        apart = sorted(later - earlier for later in self.scatter for earlier in self.scatter)
        return max(0.0, apart[min(len(apart) - 1, math.ceil(share * len(apart)))]) + _DRIFT * side


def processes_needed(count: int, probability: float) -> int | None:
    """Return after how many processes a large step shows in a series of so many; None if it is too short for any."""
    for after in range(LEAST, min(_FAR, count // 2) + 1):
        if least_share(min(_FAR, count - after), after, probability / tests_of(count)) is not None:
            return after
    return None


@lru_cache(maxsize=64)
def count_needed(probability: float) -> int:
    """Return how many processes a series has at least in which any step can be shown with this chance, above 0."""
    return next(count for count in itertools.count(2 * LEAST) if processes_needed(count, probability) is not None)


def one_per_process(values: Iterable[float], processes: Iterable[object]) -> list[float]:
    """Return a value for each process, in the order in which they come: the median, where it has several."""
    of: dict[object, list[float]] = {}
    for value, process in zip(values, processes, strict=True):
        of.setdefault(process, []).append(value)
    return [own[0] if len(own) == 1 else middle(own) for own in of.values()]


def steps_of(values: Sequence[float]) -> Steps:
    """Return the steps in values, logarithms in the order of the commits, one for each process."""
    chosen: list[Step] = []
    undrifted = _Undrifted(*([value + sign * _DRIFT * at for at, value in enumerate(values)] for sign in (-1, 1)))
    pending = [(0, len(values), 1)]
    while pending:
        begin, end, level = pending.pop()
        # Each level of pieces has at most as many tests as the series itself.
        step = _clearest(values, undrifted, begin, end, level * tests_of(len(values)))
        if step is not None:
            chosen.append(step)
            pending += [(begin, step.at, level + 1), (step.at, end, level + 1)]
    steps = tuple(sorted(chosen, key=lambda step: step.at))
    return Steps(count=len(values), steps=steps, scatter=_scatter(values, [step.at for step in steps]))


def largest_chance(chances: Sequence[float]) -> float:
    """Return how probable a step may be, after Benjamini and Hochberg, in series whose clearest steps are so probable.

    "Controlling the false discovery rate" (1995), at 5 %, and never more than ``LARGEST_CHANCE``, which holds in many
    series with true steps too.
    """
    of = FALSE_SHARE / max(1, len(chances))
    kept = [rank for rank, value in enumerate(sorted(chances), start=1) if value <= rank * of]
    return min(LARGEST_CHANCE, kept[-1] * of) if kept else 0.0


def next_chance(chances: Sequence[float]) -> float:
    """Return how probable a step may be in one more of these series."""
    passed, count = sum(value <= largest_chance(chances) for value in chances), max(1, len(chances))
    return min(LARGEST_CHANCE, FALSE_SHARE * min(passed + 1, count) / count)


@lru_cache(maxsize=4096)
def tests_of(count: int) -> int:
    """Return how many tests there are in a series of so many values: windows that are not cut off count once."""
    return sum(
        len({(min(far, at), min(near, count - at)) for far, near in _WINDOWS}) for at in range(LEAST, count - LEAST + 1)
    )


class _Tested(NamedTuple):
    chance: float
    at: int
    before: int
    after: int


class _Undrifted(NamedTuple):
    """The values of a series without as much drift as is no step, in either direction."""

    upwards: Sequence[float]
    downwards: Sequence[float]


def _clearest(values: Sequence[float], undrifted: _Undrifted, begin: int, end: int, tests: int) -> Step | None:
    """Return the step of a piece that chance explains least; None if chance may explain all."""
    worth = {
        (at, min(before, at - begin), min(after, end - at)) for at, before, after in _worth_testing(values, begin, end)
    }
    tested = [_Tested(tests * _chance(undrifted, *window), *window) for window in worth]
    if not tested or (best := min(tested)).chance > LARGEST_CHANCE:
        return None
    return _located(values, best)


def _chance(undrifted: _Undrifted, at: int, before: int, after: int) -> float:
    """Return how often chance, and as much drift as is no step, would set the windows beside a place so far apart."""
    upwards, downwards = undrifted
    chance = one_sided(upwards[at - before : at], upwards[at : at + after])
    # No pair speaks for both directions: where more than half of them speak for one, fewer do for the other.
    if chance > 0.5:
        chance = one_sided(downwards[at : at + after], downwards[at - before : at])
    return min(1.0, 2 * chance)


def _worth_testing(values: Sequence[float], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield place and windows of tests that may be passed: where the means of clipped values differ."""
    count = end - begin
    if count < 2 * LEAST:
        return
    own = values[begin:end]
    few = own[:: max(1, count // 256)]
    scale = middle([abs(later - earlier) for earlier, later in pairwise(few)]) / 0.954
    scale = scale or (max(own) - min(own)) / 10 or 1.0
    center = middle(few)
    low, high = center - _CLIPPED * scale, center + _CLIPPED * scale
    clipped = [low if value < low else high if value > high else value for value in own]  # noqa: FURB136 - calls cost
    sums = list(accumulate(clipped, initial=0.0))
    for before, after in _WINDOWS:
        limit = _WORTH_TESTING * scale * math.sqrt(1 / before + 1 / after)
        if count > before + after:
            yield from ((begin + at, before, after) for at in _peaks(sums, before, after, limit))
        ends = {*range(LEAST, before), *range(count - after + 1, count - LEAST + 1)}
        for at in ends if count > before + after else range(LEAST, count - LEAST + 1):
            left, right = min(before, at), min(after, count - at)
            apart = (sums[at + right] - sums[at]) / right - (sums[at] - sums[at - left]) / left
            if abs(apart) > _WORTH_TESTING * scale * math.sqrt(1 / left + 1 / right):
                yield begin + at, left, right


def _peaks(sums: Sequence[float], before: int, after: int, limit: float) -> Iterator[int]:
    """Yield the places around which whole windows differ most, of each stretch in which they differ by the limit."""
    stride = max(1, min(before, after) // 4)
    there, last, first = sums[before:-after:stride], sums[before + after :: stride], sums[::stride]
    both, of_last, of_first = 1 / before + 1 / after, 1 / after, 1 / before
    apart = [end * of_last + start * of_first - at * both for end, start, at in zip(last, first, there, strict=False)]
    if max(apart) <= limit and min(apart) >= -limit:
        return
    stretch: list[tuple[float, int]] = []
    for number, value in enumerate([*apart, 0.0]):
        if abs(value) > limit:
            stretch.append((abs(value), before + number * stride))
        elif stretch:
            peak = max(stretch)[1]
            yield from range(max(before, peak - stride), min(len(sums) - 1 - after, peak + stride) + 1)
            stretch = []


def _located(values: Sequence[float], tested: _Tested) -> Step:
    """Return the step that a test has shown, at the place that its values speak for."""
    begin, at, end = tested.at - tested.before, tested.at, tested.at + tested.after
    low, high = middle(values[begin:at]), middle(values[at:end])
    off = [abs(value - low) for value in values[begin:at]] + [abs(value - high) for value in values[at:end]]
    scale = middle(off) / 0.6745 or abs(high - low) / 100 or 1.0
    cuts = range(begin + LEAST, end - LEAST + 1)

    def doubt(value: float, expected: float) -> float:
        # Student's distribution with four degrees of freedom, in which a value far off is rare and not impossible.
        return 2.5 * math.log1p((value - expected) ** 2 / (4 * scale**2))

    # How much better each value goes with the side before: the sum up to a place says how probable it is.
    better = [doubt(value, high) - doubt(value, low) for value in values[begin:end]]
    belief = list(accumulate(better, initial=0.0))
    most = max(belief[cut - begin] for cut in cuts)
    weights = sorted(((math.exp(belief[cut - begin] - most), cut) for cut in cuts), reverse=True)
    wanted = _SURE * sum(weight for weight, _ in weights)
    kept: list[int] = []
    for weight, cut in weights:
        if wanted <= 0:
            break
        kept.append(cut)
        wanted -= weight
    likeliest = kept[0]
    return Step(
        at=likeliest,
        earliest=min(kept),
        latest=max(kept),
        before=middle(values[begin:likeliest]),
        after=middle(values[likeliest:end]),
        chance=tested.chance,
    )


def _scatter(values: Sequence[float], cuts: Sequence[int]) -> tuple[float, ...]:
    """Return by how much the values of the newest two windows differ from the middle of their segments, ascending."""
    begin = max(0, len(values) - 2 * _FAR)
    bounds = [begin, *(cut for cut in cuts if cut > begin), len(values)]
    off: list[float] = []
    for first, last in pairwise(bounds):
        own = values[first:last]
        if own:
            center = middle(own)
            off += [value - center for value in own]
    return tuple(sorted(off)[:: max(1, len(off) // _FAR)])

"""How the untraced times of a test changed since its baseline was recorded."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.compare.change import AMBIGUOUS, BETTER, WORSE, WORTH_A_LINE, Change, Undecided

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.baseline import Times
    from pytest_torchprof.compare.change import Direction
    from pytest_torchprof.reasons.disturbances import Disturbance

TimeVerdict = Literal["same", "better", "worse", "ambiguous"]
PROBABILITY: Final = 0.002
"""Samples differ if chance would rank them like this less often; it is small because a run judges many tests."""
FLOOR_US: Final = {"events": 2.0, "perf_counter": 10.0}
"""Smaller differences do not count, however large their share of a short step: the clock does not resolve them."""
_BEST: Final = 2
"""The quantile that represents the undisturbed calls: an eighth of them are faster."""


def time_changes(old: Times | None, new: Times | None, share: float | None) -> Iterator[Change]:
    """Yield the changes of the times; ``share`` is the tolerance; None if times are not gated."""
    if new is None:
        return
    undecided = _not_comparable(old, new)
    if old is None or undecided:
        if share is not None:
            yield _time_change(old, new, AMBIGUOUS, undecided)
        return
    verdict = time_verdict(old, new, WORTH_A_LINE if share is None else share)
    if verdict == "ambiguous" and share is not None:
        why = Undecided(why="close samples" if new.confirmed else "not confirmed")
        yield _time_change(old, new, AMBIGUOUS, why, gated=True)
    elif verdict != "same":
        slower = new.median_us > old.median_us
        yield _time_change(old, new, WORSE if slower else BETTER, gated=share is not None)


def disturbances(
    old: Times | None, new: Times | None
) -> tuple[tuple[Disturbance | str, ...], tuple[Disturbance | str, ...]]:
    """Return the disturbances of the machine while each side's samples were taken, if these are compared."""
    if old is None or new is None or _not_comparable(old, new):
        return ((), ())
    return old.disturbed, new.disturbed


def _not_comparable(old: Times | None, new: Times) -> Undecided | None:
    """Return why the samples of two measurements cannot be compared; None if they can."""
    if old is None:
        return Undecided(why="no samples")
    names = sorted(old.conditions.keys() | new.conditions.keys())
    conditions = tuple(
        (name, old.conditions.get(name), new.conditions.get(name))
        for name in names
        if old.conditions.get(name) != new.conditions.get(name)
    )
    return Undecided(why="other conditions", conditions=conditions) if conditions else None


def time_verdict(old: Times, new: Times, share: float) -> TimeVerdict:
    """Return whether the times are better or worse, by median, best calls and rank; worse only if measured twice."""
    floor = FLOOR_US.get(str(new.conditions.get("clock")), 0.0)
    # Slower code is slower in its best moments too; a busy machine moves the others.
    slower, faster = _exceeds_tolerance(old, new, share, floor), _exceeds_tolerance(new, old, share, floor)
    if any(slower):
        distinct = all(slower) and chance(old.quantiles_us, new.quantiles_us) < PROBABILITY
        return "worse" if distinct and new.confirmed else "ambiguous"
    return "better" if all(faster) and chance(new.quantiles_us, old.quantiles_us) < PROBABILITY else "same"


def unsure(old: Times | None, new: Times | None, share: float) -> bool:
    """Return whether the code has to be measured again before it is judged."""
    return (
        old is not None
        and new is not None
        and _not_comparable(old, new) is None
        and time_verdict(old, new, share) == "ambiguous"
    )


def chance(fewer: Sequence[float], more: Sequence[float]) -> float:
    """Return how probable it is that ``more`` ranks so high above ``fewer`` by chance, 0..1.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other" (1947):
    one-sided, normal approximation with corrections for continuity and ties; good from 8 values a side on.
    """
    pooled = sorted([(value, 0) for value in fewer] + [(value, 1) for value in more])
    ranks, ties, below = 0.0, 0, 0
    for _, group in groupby(pooled, key=lambda pair: pair[0]):
        sides = [side for _, side in group]
        ranks += sum(sides) * (below + (len(sides) + 1) / 2)
        ties += len(sides) ** 3 - len(sides)
        below += len(sides)
    above = ranks - len(more) * (len(more) + 1) / 2
    pairs, total = len(fewer) * len(more), len(pooled)
    spread = math.sqrt(pairs / 12 * (total + 1 - ties / (total * (total - 1))))
    return 0.5 * math.erfc((above - pairs / 2 - 0.5) / spread / math.sqrt(2)) if spread else 1.0


def _time_change(
    old: Times | None, new: Times, direction: Direction, undecided: Undecided | None = None, *, gated: bool = False
) -> Change:
    return Change(
        kind="number",
        what="time",
        old=old.median_us if old else None,
        new=new.median_us,
        direction=direction,
        gated=gated,
        undecided=undecided,
    )


def _middle_and_best(times: Times) -> tuple[float, float]:
    return times.median_us, times.quantiles_us[min(_BEST, len(times.quantiles_us) - 1)]


def _exceeds_tolerance(fewer: Times, more: Times, share: float, floor: float) -> list[bool]:
    """Return whether the median and the best calls each took longer by more than the tolerance."""
    pairs = zip(_middle_and_best(fewer), _middle_and_best(more), strict=True)
    return [longer - shorter > max(shorter * share, floor) for shorter, longer in pairs]

"""The numbers and the untraced times of two measurements: which way each went, and which of them fail a test."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.compare.changes import AMBIGUOUS, BETTER, NEUTRAL, WORSE, WORTH_A_LINE, Change
from pytest_torchprof.text import show_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry, Times


GATED: Final = frozenset(number.name for number in TABLE if number.gated)
"""The numbers that fail a test where they are worse, without being asked for."""
# A kernel more that is allowed has a launch more, unless that is given by itself.
_ALLOWED_WITH: Final = {"launches": "kernels"}
PROBABILITY: Final = 0.002
"""Samples differ where chance alone would rank them so less often than this; many tests are judged in one run."""
FLOOR_US: Final = {"events": 2.0, "perf_counter": 10.0}
"""What a clock tells less than is no difference, whatever share of a short step it is."""
_BEST: Final = 2
"""Which quantile stands for the undisturbed calls: an eighth of them are faster."""

Verdict = Literal["same", "better", "worse", "ambiguous"]


def number_changes(old: Entry, new: Entry, tolerance: Mapping[str, float]) -> Iterator[Change]:
    """Return what changed in the numbers that code decides, then in the varying ones (only memory can be gated)."""
    for number in (number for number in TABLE if number.exact):
        was, now = old.numbers.get(number.name), new.numbers.get(number.name)
        if was != now:
            allowed = tolerance.get(number.name, tolerance.get(_ALLOWED_WITH.get(number.name, ""), 0))
            yield _number_change(number, was, now, gated=number.gated, allowed=allowed)
    for number in (number for number in TABLE if not number.exact):
        before, after = old.varying.get(number.name), new.varying.get(number.name)
        if before is None or after is None:
            continue
        share = tolerance.get(number.tolerance)
        if abs(after - before) > abs(before) * (WORTH_A_LINE if share is None else min(share, WORTH_A_LINE)):
            yield _number_change(number, before, after, gated=share is not None, allowed=share or 0.0)


def _number_change(number: Number, was: float | None, now: float | None, *, gated: bool, allowed: float) -> Change:
    direction = _direction(number, was, now)
    beyond = (
        was is not None and now is not None and now > was + (allowed if isinstance(allowed, int) else was * allowed)
    )
    return Change(
        kind="number",
        what=number.name,
        old=was,
        new=now,
        direction=direction,
        gated=gated and direction != NEUTRAL and (direction == BETTER or beyond),
        words=f"{number.name} {_number_shown(number, was)} -> {_number_shown(number, now)}",
    )


def _direction(number: Number, was: float | None, now: float | None) -> str:
    if was is None or now is None or number.better is None:
        return NEUTRAL
    return BETTER if (now > was) == (number.better == "higher") else WORSE


def _number_shown(number: Number, value: float | None) -> str:
    return "not recorded" if value is None else number.show(value)


def verdict(old: Times, new: Times, share: float) -> Verdict:
    """Return which way the times went, by median, best calls and rank; slower only where measured again."""
    floor = FLOOR_US.get(str(new.conditions.get("clock")), 0.0)
    # Slower code is slower in its best moments too; a busy machine moves the others.
    slower, faster = _beyond(old, new, share, floor), _beyond(new, old, share, floor)
    if any(slower):
        distinct = all(slower) and chance(old.quantiles_us, new.quantiles_us) < PROBABILITY
        return "worse" if distinct and new.confirmed else "ambiguous"
    return "better" if all(faster) and chance(new.quantiles_us, old.quantiles_us) < PROBABILITY else "same"


def _shown_by(times: Times) -> tuple[float, float]:
    return times.median_us, times.quantiles_us[min(_BEST, len(times.quantiles_us) - 1)]


def _beyond(fewer: Times, more: Times, share: float, floor: float) -> list[bool]:
    """Return whether the median, and the best calls, took longer by more than the tolerance."""
    pairs = zip(_shown_by(fewer), _shown_by(more), strict=True)
    return [longer - shorter > max(shorter * share, floor) for shorter, longer in pairs]


def unsure(old: Times | None, new: Times | None, share: float) -> bool:
    """Whether to measure once more before anything is said."""
    return old is not None and new is not None and not differs(old, new) and verdict(old, new, share) == "ambiguous"


def differs(old: Times, new: Times) -> str | None:
    """Return in what conditions the samples of two measurements differ, None where they can be compared."""
    names = sorted(old.conditions.keys() | new.conditions.keys())
    other = [name for name in names if old.conditions.get(name) != new.conditions.get(name)]
    if not other:
        return None
    sides = (
        ", ".join(f"{name} {side.get(name, 'unknown')}" for name in other) for side in (old.conditions, new.conditions)
    )
    return "its samples were taken with {}, this run's with {}".format(*sides)


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


def time_changes(old: Times | None, new: Times | None, share: float | None) -> Iterator[Change]:
    """Return what there is to say about the times; ``share`` is the tolerance, None where times are not gated."""
    if new is None:
        return
    other = differs(old, new) if old is not None else "it has none; --torchprof-baseline=update keeps them"
    if old is None or other:
        if share is not None:
            yield _time_change(old, new, AMBIGUOUS, f"time {show_us(new.median_us)}, not compared: {other}")
        return
    moved = new.median_us / old.median_us - 1 if old.median_us else 0.0
    words = f"time {show_us(old.median_us)} -> {show_us(new.median_us)} ({moved:+.1%})"
    found = verdict(old, new, WORTH_A_LINE if share is None else share)
    if found == "ambiguous" and share is not None:
        why = "measured once, not confirmed" if not new.confirmed else "the samples do not tell"
        yield _time_change(old, new, AMBIGUOUS, f"{words}: {why}", gated=True)
    elif found != "same":
        slower = new.median_us > old.median_us
        yield _time_change(old, new, WORSE if slower else BETTER, words, gated=share is not None)
    for whose, side in (("the baseline's samples", old), ("the samples", new)):
        for disturbance in side.disturbed:
            yield _time_change(old, new, NEUTRAL, f"during {whose} {disturbance}")


def _time_change(old: Times | None, new: Times, direction: str, words: str, *, gated: bool = False) -> Change:
    return Change(
        kind="number",
        what="time",
        old=old.median_us if old else None,
        new=new.median_us,
        direction=direction,
        gated=gated,
        words=words,
    )

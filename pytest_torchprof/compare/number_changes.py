"""How the numbers of two measurements differ, by how much, and the tolerance with which a test would pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.compare.change import BETTER, NEUTRAL, WORSE, WORTH_A_LINE, Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.change import Direction

    Pair = tuple[float | None, float | None]

GPU_TIME: Final = "gpu_time_us"
GATED: Final = frozenset(number.name for number in TABLE if number.gated)
"""The numbers that fail a test if they are worse, without being asked for."""
COUNTS: Final = tuple(number.name for number in TABLE if number.exact)
_VARYING: Final = frozenset(number.name for number in TABLE if not number.exact)
# These change with gpu_busy_us; a line for each would bury the important ones.
_WITH_BUSY_TIME: Final = frozenset(number.name for number in TABLE if number.follows == "gpu_busy_us")
_LEAP_BYTES: Final = 1 << 20
# An additional kernel that is allowed brings an additional launch, unless launches have a tolerance of their own.
_ALLOWED_WITH: Final = {"launches": "kernels"}
# Costs come first, derived numbers last.
_TURN: Final = {"us": 0, "bytes": 1, "count": 1, "share": 2, "ratio": 2}
# A count of zero has no ratio: from none to five weighs as much as from one to five.
_LEAST: Final = {"share": 0.01, "ratio": 0.01}


def number_changes(old: Entry, new: Entry, tolerance: Mapping[str, float]) -> Iterator[Change]:
    """Yield changes of numbers that the code decides, then of those that vary, of which only memory can be gated.

    If the clocks of either side were locked, no number that depends on them is compared.
    """
    locked = old.samples_hardware or new.samples_hardware
    for number in (number for number in TABLE if number.exact):
        was, now = old.numbers.get(number.name), new.numbers.get(number.name)
        if was != now:
            allowed = tolerance.get(number.name, tolerance.get(_ALLOWED_WITH.get(number.name, ""), 0))
            yield _number_change(number, was, now, gated=number.gated, allowed=allowed)
    for number in (number for number in TABLE if not number.exact):
        before, after = old.varying.get(number.name), new.varying.get(number.name)
        if before is None or after is None or (locked and number.on_time):
            continue
        share = tolerance.get(number.tolerance)
        if abs(after - before) > abs(before) * (WORTH_A_LINE if share is None else min(share, WORTH_A_LINE)):
            yield _number_change(number, before, after, gated=share is not None, allowed=share or 0.0)


def median_changes(before: Analysis, after: Analysis) -> tuple[Change, ...]:
    """Return how the medians of two recordings differ: times, then counts and bytes, then shares, the largest first.

    If the clocks of either were locked, no number that depends on them is compared.
    """
    changes = []
    locked = before.trace.samples_hardware or after.trace.samples_hardware
    for number in TABLE:
        if locked and number.on_time:
            continue
        was, now = getattr(before.median, number.name), getattr(after.median, number.name)
        if was != now and (not number.detail or number.name == GPU_TIME):
            changes.append(_number_change(number, was, now))
    return tuple(sorted(changes, key=_times_and_largest_first))


def _number_change(
    number: Number, was: float | None, now: float | None, *, gated: bool = False, allowed: float = 0
) -> Change:
    direction = _direction_of(number, was, now)
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
    )


def _direction_of(number: Number, was: float | None, now: float | None) -> Direction:
    if was is None or now is None or number.better is None:
        return NEUTRAL
    return BETTER if (now > was) == (number.better == "higher") else WORSE


def lacking(old: Entry, new: Entry, tolerance: Mapping[str, float], *, strict: bool = False) -> list[str]:
    """Return the numbers that could fail the test and that the baseline ``old`` does not have, though ``new`` does.

    An entry has each gated number, None if it was not known; only ``strict`` counts that as lacking.
    """
    counts = [name for name in COUNTS if name in GATED and new.numbers.get(name) is not None]
    varying = [number.name for number in TABLE if number.tolerance in tolerance and number.name in new.varying]
    return [
        *(name for name in counts if name not in old.numbers or (strict and old.numbers[name] is None)),
        *(name for name in varying if name not in old.varying),
    ]


def tolerance_for(changes: Sequence[Change]) -> Mapping[str, float]:
    """Return the marker's tolerance that lets the failing changes pass, by keyword: a count, or a share of memory."""
    tolerance: dict[str, float] = {}
    failing = [change for change in changes if change.fails]
    if kernels := sum(change.times for change in failing if not change.is_number):
        tolerance["kernels"] = kernels
    for change in failing:
        if not change.is_number or change.old is None or change.new is None:
            continue
        number = BY_NAME[change.what]
        if not number.exact:
            tolerance[number.tolerance] = (
                math.ceil(100 * (change.new - change.old) / change.old) / 100 if change.old else 1.0
            )
        elif change.what == "kernels" or "kernels" not in tolerance or change.what != "launches":
            tolerance[change.what] = max(tolerance.get(change.what, 0), math.ceil(change.new - change.old))
    return tolerance


def ratio_of(before: float | None, after: float | None) -> float | None:
    """Return after divided by before; None if there is no such ratio."""
    return after / before if before and after is not None else None


def ratio_moved(change: Change) -> float:
    """Return how far a number moved, up or down, as a logarithm; 0 if it did not."""
    before, after = (abs(value or 0) for value in (change.old, change.new))
    least = _LEAST.get(BY_NAME[change.what].unit, 1.0) if change.what in BY_NAME else 1.0
    return abs(math.log(max(after, least) / max(before, least)))


def _times_and_largest_first(change: Change) -> tuple[int, float]:
    return _listing_rank(change.what) + follows_gpu_time(change.what), -ratio_moved(change)


def follows_gpu_time(name: str) -> bool:
    """Return whether a number usually just repeats the GPU time: kernel time, busy time, span."""
    return name in BY_NAME and name != GPU_TIME and "gpu_busy_us" in (name, BY_NAME[name].follows)


def _listing_rank(name: str) -> int:
    return _TURN[BY_NAME[name].unit] if name in BY_NAME else 0


def numbers_to_show(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the numbers that changed: first those that fail the test, then the gated ones, largest changes first."""
    numbers = [
        change
        for change in changes
        if change.is_number and (change.gated or (change.what not in _WITH_BUSY_TIME and prints_differently(change)))
    ]
    return tuple(sorted(numbers, key=_gated_and_largest_first))


def _gated_and_largest_first(change: Change) -> tuple[bool, bool, int, float]:
    return not change.fails, not change.gated, _listing_rank(change.what), -ratio_moved(change)


def prints_differently(change: Change) -> bool:
    """Return whether both values look different when they are printed."""
    before, after, number = change.old, change.new, BY_NAME.get(change.what)
    if number is None or before is None or after is None:
        return True
    return number.show(before) != number.show(after)


def is_noise(change: Change) -> bool:
    """Return whether a change is of a number that varies from run to run and gates nothing."""
    return change.is_number and not change.gated and change.what in _VARYING and not _is_leap(change)


def _is_leap(change: Change) -> bool:
    """Return whether memory grew or shrank by more than two runs of the same code ever differ."""
    number = BY_NAME.get(change.what)
    if number is None or number.unit != "bytes" or change.old is None or change.new is None:
        return False
    low, high = sorted((change.old, change.new))
    return high >= 2 * low and high - low >= _LEAP_BYTES

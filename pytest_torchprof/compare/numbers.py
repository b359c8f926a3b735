"""The numbers and the times of two measurements: which way each went, and which of them fail a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.compare.changes import BETTER, NEUTRAL, WORSE, WORTH_A_LINE, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry

GATED: Final = frozenset(number.name for number in TABLE if number.gated)
"""The numbers that fail a test where they are worse, without being asked for."""
# A kernel more that is allowed has a launch more, unless that is given by itself.
_ALLOWED_WITH: Final = {"launches": "kernels"}


def number_changes(old: Entry, new: Entry, tolerance: Mapping[str, float]) -> Iterator[Change]:
    """Return what changed in the numbers that code decides, then in the varying ones (only memory can be gated)."""
    for number in (number for number in TABLE if number.exact):
        was, now = old.numbers.get(number.name), new.numbers.get(number.name)
        if was != now:
            allowed = tolerance.get(number.name, tolerance.get(_ALLOWED_WITH.get(number.name, ""), 0))
            yield _change(number, was, now, gated=number.gated, allowed=allowed)
    for number in (number for number in TABLE if not number.exact):
        before, after = old.varying.get(number.name), new.varying.get(number.name)
        if before is None or after is None:
            continue
        share = tolerance.get(number.tolerance)
        if abs(after - before) > abs(before) * (WORTH_A_LINE if share is None else min(share, WORTH_A_LINE)):
            yield _change(number, before, after, gated=share is not None, allowed=share or 0.0)


def _change(number: Number, was: float | None, now: float | None, *, gated: bool, allowed: float) -> Change:
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
        words=f"{number.name} {_shown(number, was)} -> {_shown(number, now)}",
    )


def _direction(number: Number, was: float | None, now: float | None) -> str:
    if was is None or now is None or number.better is None:
        return NEUTRAL
    return BETTER if (now > was) == (number.better == "higher") else WORSE


def _shown(number: Number, value: float | None) -> str:
    return "not recorded" if value is None else number.show(value)

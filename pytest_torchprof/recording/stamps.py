"""Time stamps of a trace file, in any of their three forms, as ns."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.unreadable import StampTooLate
from pytest_torchprof.recording.bounds import LATEST_US, RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection

WHOLE, FRACTIONAL, EXACT = "whole", "fractional", "exact"
"""Time stamps are whole microseconds, or have fractions that a double holds, or have more digits than it holds."""
STAMPS = (WHOLE, FRACTIONAL, EXACT)
# The microseconds from which a double times 1000 skips nanoseconds, and from which the double itself does.
_FAR_US, _TOO_FAR_US = 2**42, 2**43
# Up to so many microseconds a double times 1000 is close to the right nanosecond, even if it is off by half of one.
_NEAR_US = 2**36


class TooFineError(Exception):
    """Time stamps with more digits than a double holds."""


def times_ns(events: list[Any], stamps: str) -> tuple[list[int], list[int]]:
    """Return starts and ends in ns."""
    if stamps == WHOLE:
        starts = [event.ts * 1000 for event in events]
        return starts, [start + event.dur * 1000 for start, event in zip(starts, events, strict=True)]
    starts, took = in_ns([event.ts for event in events], stamps), in_ns([event.dur for event in events], stamps)
    return starts, list(map(add, starts, took))


def in_ns(times: list[Any], stamps: str) -> list[int]:
    """Return times in ns; TooFineError if they need the exact types."""
    if stamps == WHOLE:
        return [us * 1000 for us in times]
    if stamps == EXACT:
        _check(times)
    elif (latest := max(times, default=0)) >= _FAR_US:
        if latest >= _TOO_FAR_US:
            raise TooFineError
        # Differences of doubles so large are exact, and small within a recording.
        earliest = min(times) // 1
        if latest - earliest < _NEAR_US:
            earliest_ns = int(earliest) * 1000
            return [earliest_ns + round((us - earliest) * 1000) for us in times]
        return [int(us // 1) * 1000 + round(us % 1 * 1000) for us in times]
    elif min(times, default=0) > -_FAR_US:
        # Doubles hold whole numbers too, and their own way of rounding takes 0.6 times as long as to ask for it.
        return list(map(float.__round__, [us * 1000.0 for us in times]))
    return list(map(round, [us * 1000 for us in times]))


def _check(stamps: Collection[Any]) -> None:
    """Refuse exact time stamps, for which msgspec knows no bounds, that are larger than any is."""
    for stamp in (min(stamps), max(stamps)) if stamps else ():
        if not -LATEST_US <= stamp <= LATEST_US:
            raise RefusedError(StampTooLate(str(stamp)[:40]))

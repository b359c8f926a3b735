"""Time stamps of a trace file, in the three forms that there are, as ns."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

from pytest_torchprof.errors import UnreadableRecording
from pytest_torchprof.recording.bounds import LATEST_US

if TYPE_CHECKING:
    from collections.abc import Iterable

WHOLE, FRACTIONAL, EXACT = "whole", "fractional", "exact"
"""Time stamps are whole microseconds; have fractions that a double holds; have more digits than it holds."""
STAMPS = (WHOLE, FRACTIONAL, EXACT)
# From here on a double does not hold every nanosecond.
_EXACT_NS = 2**53


class TooFineError(Exception):
    """Time stamps with more digits than a double holds."""


def instant_ns(stamp: Any, stamps: str) -> int:
    """Return a moment in ns; TooFineError where it needs the exact types."""
    if stamps == EXACT:
        _check((stamp,))
    moment: int = round(stamp * 1000)
    if stamps == FRACTIONAL and moment >= _EXACT_NS:
        raise TooFineError
    return moment


def times_ns(events: list[Any], stamps: str) -> tuple[list[int], list[int]]:
    """Return starts and ends in ns."""
    if stamps == WHOLE:
        return [event.ts * 1000 for event in events], [(event.ts + event.dur) * 1000 for event in events]
    if stamps == EXACT:
        _check(moment for event in events for moment in (event.ts, event.dur))
    start = [round(event.ts * 1000) for event in events]
    spent = [round(event.dur * 1000) for event in events]
    if stamps == FRACTIONAL and max(start) >= _EXACT_NS:
        raise TooFineError
    return start, list(map(add, start, spent))


def _check(stamps: Iterable[Any]) -> None:
    """Refuse exact time stamps, for which msgspec knows no bounds, that are larger than any is."""
    if (stamp := next((stamp for stamp in stamps if not -LATEST_US <= stamp <= LATEST_US), None)) is not None:
        raise UnreadableRecording(f"a time stamp is larger than any in microseconds: {str(stamp)[:40]}")

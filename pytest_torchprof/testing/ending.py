"""How the body of a test ended, and what that means for what it had measured by then."""

from __future__ import annotations

import unittest
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.reasons.errors import LimitsMissed, TorchprofError
from pytest_torchprof.report.account import BodyFailed, BodyRaisedOurs, BodySkipped, ExpectFailed
from pytest_torchprof.text import first_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_torchprof.testing.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a test ended; by default it ran to its end, so that everything it asked for is judged."""

    by_itself: BodyFailed | BodyRaisedOurs | BodySkipped | ExpectFailed | None = None
    """Why the test failed or skipped itself, where that counts and its measurements are only recorded."""
    skipped: bool = False
    """Whether it ended by a skip."""
    cut_off: bool = False
    """Whether measurements that were under way, or announced, are dropped: the test has ended in the middle."""
    asks_no_more: bool = False
    """Whether limits that were set for measurements to come are dropped with it."""


def ending_of(raised: BaseException | None, measurements: Collection[Measurement]) -> Ending:
    """Return how a test ended, by what it raised, if anything."""
    is_skip = isinstance(raised, pytest.skip.Exception | unittest.SkipTest)
    if raised is None or any(raised is measurement.explanation.raised for measurement in measurements):
        # The measurement was complete when it was repeated for an explanation: the limit that it missed is what counts.
        return Ending()
    if isinstance(raised, pytest.xfail.Exception):
        # It hides a missed limit, never a measurement that failed.
        return Ending(cut_off=True)
    if not is_skip:
        return Ending(by_itself=_failure_of(raised))
    if skipped_at_gate(measurements):
        # The test looked at a number that this run does not have; what the CPU can answer may still fail it.
        return Ending()
    if any(measurement.was_refused for measurement in measurements):
        # What was not measured counts, however the test goes on; what the skip cuts off does not.
        return Ending(cut_off=True, asks_no_more=True)
    return Ending(by_itself=BodySkipped(str(raised)), skipped=True)


def _failure_of(raised: BaseException) -> BodyFailed | BodyRaisedOurs | ExpectFailed:
    if not isinstance(raised, TorchprofError):
        return BodyFailed(type(raised).__name__)
    kind = ExpectFailed if isinstance(raised, LimitsMissed) else BodyRaisedOurs
    return kind(raised.in_one_line or first_line(str(raised)))


def skipped_at_gate(measurements: Collection[Measurement]) -> str | None:
    """Return why the rest of a test was skipped because it looked at a number that this run lacks; else None."""
    gates = (measurement.gate for measurement in measurements)
    return next((gate.reached for gate in gates if gate is not None and gate.reached is not None), None)

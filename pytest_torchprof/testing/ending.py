"""How the body of a test ended, and what that means for what it had measured by then."""

from __future__ import annotations

import traceback
import unittest
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct

from pytest_torchprof.capture.observers import is_our_file
from pytest_torchprof.limits import Verdict
from pytest_torchprof.reasons.codes import MISUSES
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured, TorchprofError
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.reasons.testing import EndedByError
from pytest_torchprof.report.account import (
    BodyFailed,
    BodyRaisedOurs,
    BodySkipped,
    ExpectFailed,
    OwnError,
    PassedUnexpectedly,
)
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.text import first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.reasons.skips import Skip
    from pytest_torchprof.testing.measurement import Measurement

ENDS: Final = (pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception)
"""By what pytest's own functions end a test."""


class Ending(Struct, frozen=True, kw_only=True):
    """How a test ended; by default it ran to its end, so that everything it asked for is judged."""

    by_itself: BodyFailed | BodyRaisedOurs | BodySkipped | ExpectFailed | PassedUnexpectedly | None = None
    """Why the test failed or skipped itself, where that counts and its measurements are only recorded."""
    outcome: Outcome = Outcome.FAILED
    """How measurements come out by that error."""
    reason: Reason | None = None
    """Why something is not measured, where the error says so."""
    raised_at: tuple[str, int] | None = None
    """The file and the line of the test's code that our error was raised to, such as that of ``expect()``."""
    skipped: bool = False
    """Whether it ended by a skip."""
    cut_off: bool = False
    """Whether measurements that were under way, or announced, are dropped: the test has ended in the middle."""
    asks_no_more: bool = False
    """Whether limits that were set for measurements to come are dropped with it."""


def ending_of(
    raised: BaseException | None, measurements: Collection[Measurement], *, in_fixture: bool = False
) -> Ending:
    """Return how a test ended, by what it raised, if anything; ``in_fixture``: in a setup or teardown of its own."""
    if raised is None or any(raised is measurement.explanation.raised for measurement in measurements):
        # The measurement was complete when it was repeated for an explanation: the limit that it missed is what counts.
        return Ending()
    if isinstance(raised, pytest.xfail.Exception):
        # It hides a missed limit, never a measurement that failed.
        return Ending(cut_off=True)
    if not is_skip(raised):
        return failed_by(raised, in_fixture=in_fixture)
    if skipped_at_gate(measurements):
        # The test looked at a number that this run does not have; what the CPU can answer may still fail it.
        return Ending()
    if any(measurement.was_refused for measurement in measurements):
        # What was not measured counts, however the test goes on; what the skip cuts off does not.
        return Ending(cut_off=True, asks_no_more=True)
    return Ending(by_itself=BodySkipped(str(raised)), skipped=True)


def is_skip(raised: BaseException) -> bool:
    """Return whether what a test raised skips it."""
    return isinstance(raised, pytest.skip.Exception | unittest.SkipTest)


def failed_by(raised: BaseException, *, in_fixture: bool) -> Ending:
    """Return how a test ended that an error has failed; pytest counts an error where it is raised in a fixture."""
    missed = Outcome.ERROR if in_fixture else Outcome.FAILED
    if not isinstance(raised, TorchprofError):
        asserted = isinstance(raised, AssertionError | pytest.fail.Exception)
        return Ending(by_itself=BodyFailed(type(raised).__name__), outcome=missed if asserted else Outcome.ERROR)
    errors, at = tuple(_as_data(raised)), _raised_at(raised)
    if isinstance(raised, LimitsMissed):
        return Ending(by_itself=ExpectFailed(errors), outcome=missed, raised_at=at)
    outcome = outcome_of(raised)
    return Ending(
        by_itself=BodyRaisedOurs(errors),
        outcome=missed if outcome is Outcome.FAILED else outcome,
        reason=portable(raised.reason),
        raised_at=at,
    )


def outcome_of(problem: TorchprofError) -> Outcome:
    """Return how a test comes out by an error of ours; what is missed counts before what could not be measured."""
    if isinstance(problem, LimitsMissed) or (isinstance(problem, NotMeasured) and problem.also_missed):
        return Outcome.FAILED
    return outcome_without(problem.reason)


def outcome_without(reason: Reason) -> Outcome:
    """Return how a test comes out that has no measurement: what it asks wrongly is an error of its own code."""
    return Outcome.ERROR if reason.code in MISUSES or isinstance(reason, EndedByError) else Outcome.NOT_MEASURED


def _raised_at(problem: TorchprofError) -> tuple[str, int] | None:
    """Return the last place outside this package in an error's traceback."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(problem.__traceback__)]
    return next((place for place in reversed(frames) if not is_our_file(place[0])), None)


def _as_data(problem: TorchprofError) -> Iterator[OwnError]:
    """Yield the data of an error, of an error made of several the data of each."""
    if parts := [part for part in problem.facts if isinstance(part, TorchprofError)]:
        for part in parts:
            yield from _as_data(part)
    elif not_held := tuple(fact for fact in problem.facts if isinstance(fact, Verdict)):
        yield OwnError(not_held=not_held)
    elif isinstance(problem, LimitsMissed):
        yield OwnError(Verbatim(error_line(problem)))  # The text of a plugin, or of the test itself.
    else:
        yield OwnError(portable(problem.reason), announced=isinstance(problem, NotMeasured) and problem.announced)


def error_line(problem: TorchprofError) -> str:
    """Return the text of an error in one line."""
    return problem.in_one_line or first_line(str(problem))


def skipped_at_gate(measurements: Collection[Measurement]) -> Skip | None:
    """Return why the rest of a test was skipped because it looked at a number that this run lacks; else None."""
    gates = (measurement.gate for measurement in measurements)
    return next((gate.reached for gate in gates if gate is not None and gate.reached is not None), None)

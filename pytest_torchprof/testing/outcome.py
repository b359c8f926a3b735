"""How a measurement came out: what does not hold, what the CPU could not answer for a GPU, and the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.ending import outcome_of, outcome_without, skipped_at_gate

if TYPE_CHECKING:
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measurement import Measurement


class CameOut(Struct, frozen=True, kw_only=True):
    """How one measurement of a test came out."""

    outcome: Outcome
    problem: LimitsMissed | NotMeasured | None
    """The error that says what does not hold."""
    warning: LimitsMissed | NotMeasured | None
    """The error of a rule that only warns."""
    unanswerable: tuple[str, ...]
    """The limits that were not judged because the CPU stood in for a missing GPU."""


def came_out(judgement: Judgement, measurements: tuple[Measurement, ...], ending: Ending, screen: Screen) -> CameOut:
    """Return how a measurement came out; ``measurements`` are all of the test, this one among them."""
    unanswerable, problem = _unanswerable(judgement, measurements), judgement.error(screen)
    warning = judgement.warning(screen)
    is_missing = judgement.profile is None and not judgement.only_warns
    measurement = judgement.measurement
    cut_off_by_skip = ending.skipped and (measurement.code_raised or measurement.is_open)
    if ending.by_itself and not ending.skipped and (not is_missing or measurement.code_raised):
        # pytest reports the error that ended the test, whatever else does not hold.
        missed = problem is not None and outcome_of(problem) is Outcome.FAILED
        outcome = Outcome.FAILED if missed and ending.outcome is Outcome.NOT_MEASURED else ending.outcome
    elif is_missing and not cut_off_by_skip:
        outcome = outcome_without(judgement.why_not)
    elif problem is not None and not ending.skipped:
        outcome = outcome_of(problem)
    elif (unanswerable and warning is None) or ending.skipped or skipped_at_gate(measurements) is not None:
        outcome = Outcome.SKIPPED
    else:
        outcome = Outcome.PASSED if warning is None else Outcome.WARNED
    return CameOut(outcome=outcome, problem=problem, warning=warning, unanswerable=unanswerable)


def _unanswerable(judgement: Judgement, measurements: tuple[Measurement, ...]) -> tuple[str, ...]:
    if not judgement.stands_in:
        return ()
    names = dict.fromkeys(name for measurement in measurements for name in measurement.unanswerable)
    nothing = ["whether anything runs"] if judgement.shows_nothing and not names else []
    return (*names, *(["baseline"] if judgement.only_elsewhere else []), *nothing)

"""The judging of what a test measured, once its body has ended: the test ends with the outcome."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.reasons.errors import LimitsMissed
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.skips import LacksGpu
from pytest_torchprof.testing.conclusion import conclude
from pytest_torchprof.testing.ending import ENDS, ending_of, skipped_at_gate
from pytest_torchprof.testing.failure import error_of
from pytest_torchprof.testing.judgement import judge_measurement
from pytest_torchprof.testing.other_ranks import with_other_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import JudgedAlone, Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.test_run import TestRun


@contextmanager
def judged_after(run: TestRun) -> Iterator[None]:
    """Around the body of a test: judge what it measured when it has passed, else record how it ended."""
    raised: BaseException | None = None
    try:
        yield
    except (Exception, *ENDS) as problem:  # noqa: BLE001 - judge() raises it
        raised = problem
    try:
        judge(run, raised)
    except (LimitsMissed, pytest.skip.Exception):
        if isinstance(raised, pytest.xfail.Exception):
            raise raised from None
        raise


def judge(run: TestRun, raised: BaseException | None = None, *, in_fixture: bool = False) -> None:
    """Judge every measurement of a test, and raise the outcome.

    LimitsMissed or NotMeasured where one does not hold, a skip where there was no GPU to ask, else the error by which
    the test ended itself (``raised``), or a miss that never reached it. What a subtest raised is reported already.
    ``in_fixture``: it ended in a setup or teardown.
    """
    raised = run.misses.lost(raised) or raised
    test, failed = run.test, raised or run.failed_part
    ending = ending_of(failed, run.measurements.values(), in_fixture=in_fixture)
    with run.judging(ending) as taken:
        judgements = _judged_together(test, taken, ending)
        conclusions = conclude(test, judgements, ending)
        if ending.by_itself and raised is not None:
            raise raised
        if (error := error_of(conclusions, test.screen)) is not None:
            raise error from None
        unanswerable = dict.fromkeys(name for conclusion in conclusions for name in conclusion.unanswerable)
        unanswerable = {name: None for name in unanswerable if not test.options.warns_of(name)}
        if unanswerable:
            pytest.skip(str(LacksGpu(tuple(unanswerable), test.why_no_gpu())))
        if (reason := skipped_at_gate([own.measurement for own in taken])) is not None:
            # The skip at that look may have been caught by the test.
            pytest.skip(str(reason))
        if raised is not None:
            raise raised


def _judged_together(test: MeasuredTest, taken: Sequence[JudgedAlone], ending: Ending) -> list[Judgement]:
    """Return the judgement of each measurement, made again where the others add something to it."""
    judgements = [_judged_among(test, own, taken, ending) for own in taken]
    ranks = (own.of_ranks for own in taken)
    return [with_other_ranks(own, of_ranks) for own, of_ranks in zip(judgements, ranks, strict=True)]


def _judged_among(test: MeasuredTest, own: JudgedAlone, taken: Sequence[JudgedAlone], ending: Ending) -> Judgement:
    measurement, former = own.measurement, own.judgement
    profiles = (other.measurement.profile for other in taken if other is not own)
    siblings = tuple(profile for profile in profiles if profile is not None)
    # The error that ended the test may be the very one that says what is not measured.
    caught = () if ending.by_itself else measurement.caught
    explanation = measurement.explanation
    if former is not None and not (siblings or explanation.repeat is not None or explanation.asked or caught):
        return former
    return judge_measurement(test, measurement, siblings=siblings, former=former, caught=caught)

"""The judgement of the measurements of one test, in which each knows the others, and the other ranks of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.testing.judgement import judge_measurement
from pytest_torchprof.testing.other_ranks import with_other_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import JudgedAlone, Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest


def judged_together(test: MeasuredTest, taken: Sequence[JudgedAlone], ending: Ending) -> list[Judgement]:
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

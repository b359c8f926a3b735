"""From judgements to results: how each measurement came out, what is kept of it, and what reports say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.report.account import BodyFailed, BodyRaisedOurs, ExpectFailed, Kept, labelled
from pytest_torchprof.report.ci import properties
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.accounts import account_of, kept_of
from pytest_torchprof.testing.baseline_outcome import BaselineOutcome, baseline_outcome
from pytest_torchprof.testing.outcome import came_out
from pytest_torchprof.testing.results import result_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.capture.rank import Rank
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.run_baselines import BaselineNote


class Conclusion(Struct, frozen=True, kw_only=True):
    """One measurement, judged and reported."""

    judgement: Judgement
    result: Result
    problem: LimitsMissed | NotMeasured | None
    """The error that says what does not hold."""
    unanswerable: tuple[str, ...]
    """The limits that were not judged because the CPU stood in for a missing GPU."""
    brief: str
    """The failure, in a few lines."""
    in_one_line: str
    below: Kept
    """The rules of the suite that reach the test, and the recordings that were kept."""
    note: BaselineNote | None
    """The run's note of its baseline; None where it is not compared."""

    @property
    def judged(self) -> bool:
        """Whether its recording was judged: a test that skipped itself judges none."""
        return self.judgement.profile is not None and self.result.outcome is not Outcome.SKIPPED

    def text(self, screen: Screen) -> str:
        """Return the text of the failure, at the length that the screen allows."""
        text = f"{self.judgement.error(screen)}{self.below.lines(screen.columns)}"
        return labelled(self.label, text, screen.columns)

    @property
    def label(self) -> str | None:
        """The measurement's."""
        return self.judgement.measurement.label


def conclude(test: MeasuredTest, judgements: Sequence[Judgement], ending: Ending) -> list[Conclusion]:
    """Return how each measurement of a test came out; the run keeps the results, and the notes of their baselines."""
    measurements = tuple(judgement.measurement for judgement in judgements)
    rank = this_rank()
    conclusions = [_conclude_one(test, judgement, measurements, ending, rank) for judgement in judgements]
    # The profiles may hold what the measured code returned: the test keeps nothing on the GPU after judging.
    for measurement in measurements:
        measurement.explanation.call_by(None)
    if rank.writes:
        test.properties.extend(entry for conclusion in conclusions for entry in properties(conclusion.result))
    for conclusion in conclusions:
        test.state.add(conclusion.result)
        if conclusion.note is not None:
            test.state.note_baseline(test.nodeid, conclusion.note)
        if conclusion.judged and (recording := conclusion.judgement.measurement.recording) is not None:
            test.state.note_judged(recording)
    return conclusions


def _conclude_one(
    test: MeasuredTest, judgement: Judgement, measurements: tuple[Measurement, ...], ending: Ending, rank: Rank
) -> Conclusion:
    concerns = _as_it_concerns(judgement.measurement, measurements, ending)
    came = came_out(judgement, measurements, ending, replace(test.screen, everything=False))
    writable = judgement.holds and not came.unanswerable
    compared = baseline_outcome(test, judgement, writable=writable) if judgement.profile else BaselineOutcome()
    result = result_of(test, judgement, came, compared, concerns)
    if not rank.alone:
        result = replace(result, rank=rank.number, ranks=rank.world)
    kept = kept_of(test, judgement, result)
    account = account_of(judgement, came, kept, concerns)
    label = judgement.measurement.label
    return Conclusion(
        judgement=judgement,
        result=replace(result, account=account, recording=kept.recording),
        problem=came.problem,
        unanswerable=came.unanswerable,
        brief=labelled(label, (came.problem and came.problem.brief) or "", test.screen.columns),
        in_one_line=labelled(label, (came.problem and came.problem.in_one_line) or ""),
        below=kept,
        note=compared.note,
    )


def _as_it_concerns(measurement: Measurement, measurements: tuple[Measurement, ...], ending: Ending) -> Ending:
    """Return how the test ended; what limits its body gave to another measurement than this one is not said of this."""
    if not isinstance(ending.by_itself, ExpectFailed | BodyRaisedOurs) or measurement.explanation.refuses:
        return ending
    others = any(other.explanation.refuses for other in measurements)
    kind = LimitsMissed if isinstance(ending.by_itself, ExpectFailed) else NotMeasured
    return replace(ending, by_itself=BodyFailed(kind.__name__), reason=None, raised_at=None) if others else ending

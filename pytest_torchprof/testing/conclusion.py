"""From judgements to results: how each measurement came out, what is kept of it, and what reports say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.limits import HOLDS, failure_of
from pytest_torchprof.reasons.catalogue import portable
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.report.account import (
    BodyFailed,
    BodyRaisedOurs,
    ExpectFailed,
    Kept,
    LimitsNotHeld,
    NotJudgedOnCpu,
    WithoutMeasurement,
    labelled,
)
from pytest_torchprof.report.ci import properties
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.allow_list import ALLOW_FILE, SETTING_OF
from pytest_torchprof.testing.baseline_outcome import BaselineOutcome, baseline_outcome
from pytest_torchprof.testing.judgement import judge_measurement
from pytest_torchprof.testing.other_ranks import with_other_ranks
from pytest_torchprof.testing.outcome import came_out
from pytest_torchprof.testing.results import result_of
from pytest_torchprof.text import counted, first_of, printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_torchprof.capture.rank import Rank
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.report.account import AnyAccount
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import JudgedAlone, Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.outcome import CameOut
    from pytest_torchprof.testing.run_baselines import BaselineNote

LEAST_LINES: Final = 12
"""Lines for each failure of a test that has several: together they may then be longer than a screen."""
MOST_NAMED: Final = 3
"""The most labels that the line on a test with several failures names."""


class Conclusion(Struct, frozen=True, kw_only=True):
    """One measurement, judged and reported."""

    judgement: Judgement
    result: Result
    problem: LimitsMissed | NotMeasured | None
    """The error that says what does not hold."""
    unanswerable: tuple[str, ...]
    """What was not judged because the CPU stood in for a missing GPU."""
    brief: str
    """What does not hold, in a few lines."""
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
        """Return what does not hold, at the length that the screen allows."""
        text = f"{self.judgement.error(screen)}{self.below.lines(screen.columns)}"
        return labelled(self.label, text, screen.columns)

    @property
    def label(self) -> str | None:
        """The measurement's."""
        return self.judgement.measurement.label


def conclude(test: MeasuredTest, taken: tuple[JudgedAlone, ...], ending: Ending) -> list[Conclusion]:
    """Judge the measurements of a test with one another, record how each came out, and return that."""
    measurements = tuple(own.measurement for own in taken)
    judgements = _judged_together(test, taken, ending)
    rank = this_rank()
    conclusions = [_conclude_one(test, judgement, measurements, ending, rank) for judgement in judgements]
    # The profiles may hold what the measured code returned: the test keeps nothing on the GPU after judging.
    for measurement in measurements:
        measurement.explanation.call_by(None)
    if rank.writes:
        test.properties.extend(entry for conclusion in conclusions for entry in properties(conclusion.result))
    for conclusion in conclusions:
        _record(test, conclusion)
    return conclusions


def _judged_together(test: MeasuredTest, taken: tuple[JudgedAlone, ...], ending: Ending) -> list[Judgement]:
    """Return the judgement of each measurement, made again where the others add something to it."""
    judgements = [_judged_among(test, own, taken, ending) for own in taken]
    ranks = (own.of_ranks for own in taken)
    return [with_other_ranks(own, of_ranks) for own, of_ranks in zip(judgements, ranks, strict=True)]


def _judged_among(test: MeasuredTest, own: JudgedAlone, taken: tuple[JudgedAlone, ...], ending: Ending) -> Judgement:
    measurement, former = own.measurement, own.judgement
    profiles = (other.measurement.profile for other in taken if other is not own)
    siblings = tuple(profile for profile in profiles if profile is not None)
    # The error that ended the test may be the very one that says what is not measured.
    caught = () if ending.by_itself else measurement.caught
    explanation = measurement.explanation
    if former is not None and not (siblings or explanation.repeat is not None or explanation.asked or caught):
        return former
    return judge_measurement(test, measurement, siblings=siblings, former=former, caught=caught)


def error_of(conclusions: Sequence[Conclusion], screen: Screen) -> LimitsMissed | NotMeasured | None:
    """Return the error with which a test ends; None where nothing fails it."""
    failures = [own for own in conclusions if own.problem is not None and own.result.outcome.is_failure]
    if not failures:
        return None
    # An expected failure hides what was missed, never what was not measured.
    text = "\n\n".join(_failure_texts(failures, screen))
    unmeasured = [failure.problem.reason for failure in failures if isinstance(failure.problem, NotMeasured)]
    error = NotMeasured(Several.of(unmeasured), screen=text) if unmeasured else LimitsMissed(text)
    error.in_columns = partial(_in_columns, failures, screen)
    error.brief = "\n".join(failure.brief for failure in failures)
    error.in_one_line = f"{failures[0].in_one_line}{_also_failing(failures[1:])}"
    return error


def _in_columns(failures: Sequence[Conclusion], screen: Screen, most: int) -> str:
    return "\n\n".join(_failure_texts(failures, screen.of_width(most)))


def _also_failing(others: Sequence[Conclusion]) -> str:
    """Return how many other measurements fail, and which, for the end of the line on the first; empty without any."""
    if not others:
        return ""
    # Only the first measurement of a test may have no label.
    named = first_of([printable_line(other.label or "") for other in others], MOST_NAMED)
    return f"; {counted(len(others), 'other measurement')} {'fails' if len(others) == 1 else 'fail'}: {named}"


def _failure_texts(failures: Sequence[Conclusion], screen: Screen) -> list[str]:
    """Return the texts for the screen, whose lines several share."""
    if len(failures) == 1:
        return [failures[0].text(screen)]
    shared = replace(screen, lines=max(screen.lines // len(failures), LEAST_LINES))
    return [failure.text(shared) for failure in failures]


def _record(test: MeasuredTest, conclusion: Conclusion) -> None:
    """Give the run the result and the notes that it keeps of a measurement."""
    test.state.add(conclusion.result)
    if conclusion.note is not None:
        test.state.note_baseline(test.nodeid, conclusion.note)
    recording = conclusion.judgement.measurement.recording
    if conclusion.judged and recording is not None:
        test.state.note_judged(recording)


def _conclude_one(
    test: MeasuredTest, judgement: Judgement, measurements: tuple[Measurement, ...], ending: Ending, rank: Rank
) -> Conclusion:
    came = came_out(judgement, measurements, ending, replace(test.screen, everything=False))
    writable = judgement.holds and not came.unanswerable
    compared = baseline_outcome(test, judgement, writable=writable) if judgement.profile else BaselineOutcome()
    concerns = _as_it_concerns(judgement.measurement, measurements, ending)
    result = result_of(test, judgement, came, compared, concerns)
    if not rank.alone:
        result = replace(result, rank=rank.number, ranks=rank.world)
    kept = _keep(test, judgement.measurement, result)
    named = _named_below(test, judgement, kept)
    label = judgement.measurement.label
    return Conclusion(
        judgement=judgement,
        result=replace(
            result,
            account=_account(judgement, came, named, concerns),
            recording=named.recording,
        ),
        problem=came.problem,
        unanswerable=came.unanswerable,
        brief=labelled(label, (came.problem and came.problem.brief) or "", test.screen.columns),
        in_one_line=labelled(label, (came.problem and came.problem.in_one_line) or ""),
        below=named,
        note=compared.note,
    )


def _keep(test: MeasuredTest, measurement: Measurement, result: Result) -> Path | None:
    recording, state = measurement.recording, test.state
    if recording is None or not recording.is_file():
        return None
    if state.options.replay is not None:
        return recording
    stacks = measurement.explanation.recording
    return state.keep(recording, result, stacks=stacks)


def _as_it_concerns(measurement: Measurement, measurements: tuple[Measurement, ...], ending: Ending) -> Ending:
    """Return how the test ended; what limits its body gave to another measurement than this one is not said of this."""
    if not isinstance(ending.by_itself, ExpectFailed | BodyRaisedOurs) or measurement.explanation.refuses:
        return ending
    others = any(other.explanation.refuses for other in measurements)
    kind = LimitsMissed if isinstance(ending.by_itself, ExpectFailed) else NotMeasured
    return replace(ending, by_itself=BodyFailed(kind.__name__), reason=None, raised_at=None) if others else ending


def _account(judgement: Judgement, came: CameOut, named: Kept, ending: Ending) -> tuple[AnyAccount, ...]:
    """Return what there is to say of how a measurement came out, first what pytest's line says."""
    ended = () if ending.by_itself is None else (ending.by_itself,)
    if came.problem is not None or came.outcome is Outcome.WARNED:
        not_held = _not_held(judgement, named, warns=came.problem is None)
        # Without a measurement, the error that ended it stands in the reason.
        return (not_held,) if ending.skipped or isinstance(not_held, WithoutMeasurement) else (*ended, not_held)
    if came.unanswerable and came.outcome is Outcome.SKIPPED:
        return (NotJudgedOnCpu(came.unanswerable),)
    return ended


def _not_held(judgement: Judgement, named: Kept, *, warns: bool) -> LimitsNotHeld | WithoutMeasurement:
    """Return what does not hold; ``warns``: of what only warns, of which nobody reads more than that."""
    profile, kept = judgement.profile, Kept() if warns else named
    if profile is None:
        why, asks_doctor = portable(judgement.why_not), judgement.measurement.ask_the_doctor
        return WithoutMeasurement(why=why, asks_doctor=asks_doctor, kept=kept)
    failed = [verdict for verdict in (judgement.warnings if warns else judgement.verdicts) if verdict.status != HOLDS]
    failure = failure_of(failed, profile) if warns else failure_of(failed, profile, profile.why_missed)
    baseline = None if warns else judgement.baseline_failure
    return LimitsNotHeld(failure=failure, judged=len(judgement.verdicts), warns=warns, baseline=baseline, kept=kept)


def _named_below(test: MeasuredTest, judgement: Judgement, kept: Path | None) -> Kept:
    """Return what stands below a failure: where the test is, the rules that reach it, and its recordings."""
    rule, shown = test.options.rule, test.state.options.shown
    excepted = any(verdict.limit in SETTING_OF and verdict.status != HOLDS for verdict in judgement.verdicts)
    beside = None if kept is None else kept.with_name(stacks_name(kept.name))
    return Kept(
        test=":".join(map(str, test.location)) if test.options.of_rule_alone else None,
        rules=() if rule is None else tuple(rule.asked_by),
        allow_file=ALLOW_FILE if rule is not None and excepted else "",
        recording=None if kept is None else shown(kept),
        with_lines=shown(beside) if beside is not None and beside.is_file() else None,
    )

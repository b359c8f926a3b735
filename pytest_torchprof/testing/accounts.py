"""The part of a measurement that is kept, and the account of how it came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.limits import HOLDS, failure_of
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.report.account import Kept, LimitsNotHeld, NotJudgedOnCpu, WithoutMeasurement
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.allow_list import ALLOW_FILE, SETTING_OF

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.report.account import AnyAccount
    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.judgement import Judgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.outcome import CameOut


def kept_of(test: MeasuredTest, judgement: Judgement, result: Result) -> Kept:
    """Keep the recordings of a measurement that came out so; return what stands below a failure.

    That is where the test is, the rules that reach it, and its recordings.
    """
    kept = _kept_recording(test, judgement.measurement, result)
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


def _kept_recording(test: MeasuredTest, measurement: Measurement, result: Result) -> Path | None:
    recording, state = measurement.recording, test.state
    if recording is None or not recording.is_file():
        return None
    if state.options.replay is not None:
        return recording
    stacks = measurement.explanation.recording
    return state.keep(recording, result, stacks=stacks)


def account_of(judgement: Judgement, came: CameOut, kept: Kept, ending: Ending) -> tuple[AnyAccount, ...]:
    """Return the accounts of a measurement's outcome, first the one in pytest's line."""
    ended = () if ending.by_itself is None else (ending.by_itself,)
    if came.problem is not None or came.outcome is Outcome.WARNED:
        not_held = _not_held(judgement, kept, warns=came.problem is None)
        # Without a measurement, the error that ended it stands in the reason.
        return (not_held,) if ending.skipped or isinstance(not_held, WithoutMeasurement) else (*ended, not_held)
    if came.unanswerable and came.outcome is Outcome.SKIPPED:
        return (NotJudgedOnCpu(came.unanswerable),)
    return ended


def _not_held(judgement: Judgement, kept: Kept, *, warns: bool) -> LimitsNotHeld | WithoutMeasurement:
    """Return the account of what does not hold; ``warns``: of what only warns, whose causes nobody reads."""
    profile, kept = judgement.profile, Kept() if warns else kept
    if profile is None:
        why, asks_doctor = portable(judgement.why_not), judgement.measurement.ask_the_doctor
        return WithoutMeasurement(why=why, asks_doctor=asks_doctor, kept=kept)
    failed = [verdict for verdict in (judgement.warnings if warns else judgement.verdicts) if verdict.status != HOLDS]
    failure = failure_of(failed, profile) if warns else failure_of(failed, profile, profile.why_missed)
    baseline = None if warns else judgement.baseline_failure
    return LimitsNotHeld(failure=failure, judged=len(judgement.verdicts), warns=warns, baseline=baseline, kept=kept)

"""Judges one measurement: its limits, then its baseline; and says what does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.errors import ASK_THE_DOCTOR, NotMeasured
from pytest_torchprof.limits import COMPILE, HOLDS, failure, missed_somewhere
from pytest_torchprof.limits import judge as judge_limits
from pytest_torchprof.limits.failure import LONGEST_REASON
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from pytest_torchprof.errors import LimitsMissed
    from pytest_torchprof.limits import Screen, Verdict
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.baseline_check import BaselineJudgement
    from pytest_torchprof.testing.measurement import MeasuredTest, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one measurement comes to."""

    measurement: Measurement
    profile: Profile | None = None
    """As reports look at it: without a gate, with what explains it; None where nothing was measured."""
    verdicts: tuple[Verdict, ...] = ()
    baseline: BaselineJudgement | None = None
    """None where it is not compared."""
    baseline_failure: tuple[str, ...] = ()
    """Why the baseline fails the test, a line each."""
    stands_in: bool = False
    """The CPU was measured only because there was no GPU."""
    only_elsewhere: bool = False
    """And its baselines are all of other devices."""

    @property
    def holds(self) -> bool:
        """Whether all limits hold; of what was not measured, none does."""
        return self.profile is not None and all(verdict.status == HOLDS for verdict in self.verdicts)

    @property
    def lacks_lines(self) -> bool:
        """Whether it fails by work of which a repeat with stacks would tell the lines."""
        if self.profile is None or self.profile.launching.origins.recorded:
            return False
        worse = self.baseline is not None and bool(self.baseline_failure) and self.baseline.has_worse_kernels
        return (worse and not self.stands_in) or missed_somewhere(self.verdicts, self.measurement.limits)

    def failure(self, screen: Screen) -> LimitsMissed | NotMeasured | None:
        """Return the error that says what does not hold, None where all does."""
        if (profile := self.profile) is not None:
            return failure(self.verdicts, profile, profile.why_missed, also=self.baseline_failure, screen=screen)
        reason = str(self.measurement.why_not or "the measured code was not run to its end")
        text = f"not measured: {printable_line(reason.removeprefix('not measured: '), LONGEST_REASON)}"
        advised = self.measurement.ask_the_doctor and not screen.one_line
        return NotMeasured(f"{text}\n  do: {ASK_THE_DOCTOR}" if advised else text)


def judge(
    test: MeasuredTest,
    measurement: Measurement,
    *,
    siblings: tuple[Profile, ...] = (),
    alone: Judgement | None = None,
) -> Judgement:
    """Judge a measurement; ``siblings`` are the profiles of the test's other ones, for findings that compare.

    ``alone`` is what it came to without them, with which nothing needs to be compared anew.
    """
    if measurement.profile is None or measurement.why_not is not None:
        return Judgement(measurement=measurement)
    check, label, repeat = test.baseline, measurement.label, measurement.explanation.repeat
    profile = measurement.profile.with_context(rules=test.state.rules, gate=None).with_others(siblings)
    profile = profile if repeat is None else profile.with_repeat(repeat)
    stands_in = test.stands_in(profile)
    only_baseline = measurement.of_body and not measurement.limits
    nothing = tuple(
        check.nothing_to_compare(label, measurement.limits, profile, only_baseline=only_baseline, stands_in=stands_in)
    )
    limits = [one for one in measurement.limits if one.limit.needs == COMPILE or not stands_in]
    verdicts = [*judge_limits(profile, limits), *(() if stands_in else check.unmeasured_times(profile)), *nothing]
    baseline = None
    if not nothing:
        baseline = alone.baseline if alone is not None else check.compare(label, profile)
        verdicts += [] if stands_in else check.lost_numbers(baseline)
    return Judgement(
        measurement=measurement,
        profile=profile,
        verdicts=tuple(verdicts),
        baseline=baseline,
        baseline_failure=tuple(check.failure_lines(baseline, profile)) if baseline is not None else (),
        stands_in=stands_in,
        only_elsewhere=stands_in and check.only_elsewhere(label, profile),
    )

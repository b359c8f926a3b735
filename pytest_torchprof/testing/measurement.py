"""One measurement of a test: its recording and profile, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_torchprof import capture, compare
from pytest_torchprof.compare import Blame
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED
from pytest_torchprof.limits import (
    COMPILE,
    GPU,
    HOLDS,
    Verdict,
    check_limits,
    error_for,
    nothing_known,
    something_ran,
)
from pytest_torchprof.limits.evidence import CaughtByTest
from pytest_torchprof.limits.failure import fit
from pytest_torchprof.limits.limit import unmeasured
from pytest_torchprof.limits.own_code import OWN
from pytest_torchprof.reasons.errors import ASK_THE_DOCTOR, NotMeasured, not_measured
from pytest_torchprof.reasons.measuring import NothingMeasured
from pytest_torchprof.reasons.testing import NotRunToEnd
from pytest_torchprof.text import reason_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.limits import Asked, FailureLine, Screen
    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.errors import LimitsMissed
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_check import BaselineCheck, BaselineJudgement
    from pytest_torchprof.testing.options import TestOptions
    from pytest_torchprof.testing.progress import ShowTestProgress
    from pytest_torchprof.testing.session import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTest:
    """A test that measures: where it stands, what it asks for, and the run that it is a part of."""

    nodeid: str
    location: tuple[str, int]
    """The test's file, relative to the root directory, and line."""
    options: TestOptions
    state: RunState
    baseline: BaselineCheck
    screen: Screen
    """How much text a failure may have."""
    progress: ShowTestProgress
    """Shows on the terminal which measurement has made how many calls of how many."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What limits that the body asks a profile for are given too: whose code counts in this test, or run."""
        marker = self.options.marker or {}
        return {**self.state.options.settings, **{name: marker[name] for name in (OWN.name,) if name in marker}}

    @property
    def own_kernels(self) -> OwnKernels:
        """What is said of kernels that no table knows: by the marker, and after it by the ini file and plugins."""
        return (self.options.own_kernels or NOTHING_DECLARED).before(self.state.own_kernels)

    def stands_in(self, profile: Profile) -> bool:
        """Whether the CPU was measured only because there was no GPU."""
        if profile.trace.device_kind.has_launches or self.options.device != "auto":
            return False
        # A recording made for the cpu as device is judged so wherever it is replayed.
        whose = profile.trace.metadata or profile.trace.adoption
        return whose is None or whose.device_asked in (None, "auto")

    def why_no_gpu(self) -> str:
        """Return what to add where something is not judged without a GPU: why there is none, if that may surprise."""
        if self.state.options.replay is not None:
            return ""
        lack = capture.no_gpu()
        return f"; torch sees none: {lack.reason}" if lack.surprising else ""

    def unanswerable(self, measurements: Iterable[Measurement]) -> list[str]:
        """Return the limits on these measurements that the CPU cannot answer for a GPU."""
        names = (one.limit.name for measurement in measurements for one in measurement.limits if one.limit.needs == GPU)
        return [*dict.fromkeys(names), *(["tolerance of time"] if self.baseline.of_times else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measurement of a test; without a profile or with a reason it is not measured."""

    label: str | None
    limits: tuple[Asked, ...]
    explanation: Explanation
    """Where its work comes from, if a limit is missed."""
    of_body: bool = False
    """Whether the whole body of the test is the measured step."""
    profile: Profile | None = None
    """As the test may look at it."""
    recording: Path | None = None
    why_not: Reason | None = None
    """Why there is no believable profile."""
    code_raised: bool = False
    """Whether that is what the measured code itself raised."""
    ask_the_doctor: bool = False
    """Whether the profiler or the device is the cause of that."""

    def doubted(self, reason: Reason) -> Self:
        """Return a copy that is not to be believed, for a reason that lies in the profiler or the device."""
        return replace(self, why_not=reason, ask_the_doctor=reason.for_the_doctor)

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and has not come to an end."""
        return self.profile is None and self.why_not is None

    @property
    def caught(self) -> tuple[Verdict, ...]:
        """What the test's body was told that it is not measured; if the test goes on, it has kept that to itself."""
        if self.profile is None:
            return ()
        read = (unmeasured(reason).on("profile", "measured") for reason in self.profile.launching.refused)
        told = dict.fromkeys((*self.explanation.unanswered, *read))
        return tuple(structs.replace(one, evidence=(*one.evidence, CaughtByTest())) for one in told)

    @property
    def was_refused(self) -> bool:
        """Whether the test's body was told that this, or what it asked of it, is not measured.

        What the measured code raised is no word of ours: a test may well skip itself then.
        """
        never = self.profile is None and self.why_not is not None
        return bool(self.caught) or (never and not self.code_raised)

    @property
    def error(self) -> NotMeasured:
        """What says why there is no believable profile."""
        return not_measured(self.why_not or NothingMeasured(), ask_the_doctor=self.ask_the_doctor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one measurement comes to."""

    measurement: Measurement
    profile: Profile | None = None
    """As reports look at it: without a gate, with what explains it; None where nothing was measured."""
    verdicts: tuple[Verdict, ...] = ()
    baseline: BaselineJudgement | None = None
    """None where it is not compared."""
    baseline_failure: tuple[FailureLine, ...] = ()
    """Why the baseline fails the test, a line each."""
    blamed: tuple[str, int] | None = None
    """The file and line by which it does, where it is known."""
    stands_in: bool = False
    """The CPU was measured only because there was no GPU."""
    only_elsewhere: bool = False
    """The CPU stands in, and all baselines of the measurement are of other devices."""
    shows_nothing: bool = False
    """The CPU stands in, nothing is known to have run on it, and nothing else was asked."""

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
        return (worse and not self.stands_in) or any(verdict.wants_lines for verdict in self.verdicts)

    def error(self, screen: Screen) -> LimitsMissed | NotMeasured | None:
        """Return the error that says what does not hold, None where all does."""
        if (profile := self.profile) is not None:
            return error_for(self.verdicts, profile, profile.why_missed, also=self.baseline_failure, screen=screen)
        reason = self.measurement.why_not or NotRunToEnd()
        brief = fit(f"not measured: {reason_line(str(reason))}", screen)
        doctor = f"\n  do: {ASK_THE_DOCTOR}" if self.measurement.ask_the_doctor else ""
        error = NotMeasured(reason, screen=f"{brief}{doctor}")
        error.brief = brief
        return error


def judge_measurement(
    test: MeasuredTest,
    measurement: Measurement,
    *,
    siblings: tuple[Profile, ...] = (),
    former: Judgement | None = None,
    caught: tuple[Verdict, ...] = (),
) -> Judgement:
    """Judge a measurement; ``siblings`` are the profiles of the test's other ones, for findings that compare.

    ``former`` is what it came to without them: its comparison with the baseline stands. ``caught`` is what the test's
    body was told that it is not measured, and kept to itself.
    """
    if measurement.profile is None or measurement.why_not is not None:
        return Judgement(measurement=measurement)
    check, label, repeat = test.baseline, measurement.label, measurement.explanation.repeat
    profile = measurement.profile.with_context(rules=test.state.rules, gate=None).with_others(siblings)
    profile = profile if repeat is None else profile.with_repeat(repeat)
    stands_in = test.stands_in(profile)
    asked = (*measurement.limits, *measurement.explanation.asked)
    unknown = nothing_known(profile, asked)
    nothing = tuple(check.not_comparable(label, profile, unknown, stands_in=stands_in)) if unknown else ()
    limits = [one for one in measurement.limits if one.limit.needs == COMPILE or not stands_in]
    limits = limits if check.judges_limits else []
    verdicts = [*check_limits(profile, limits), *(() if stands_in else check.unmeasured_times(profile)), *nothing]
    baseline = None
    if not nothing:
        baseline = (former.baseline if former is not None else None) or check.compare(label, profile)
        verdicts += [] if stands_in else check.lost_numbers(baseline, profile)
        verdicts += check.of_other_root(baseline)
        verdicts += check.unmeasured_there(baseline)
    if unknown and not asked and not nothing and not stands_in:
        verdicts.append(something_ran(unknown))
    verdicts += caught
    blame = None if baseline is None else Blame(comparison=baseline.comparison)
    if baseline is not None and baseline.comparison.verdict == "worse" and check.is_failed_by(baseline):
        blame = compare.blame(profile, baseline.new(), baseline.comparison)
        baseline = replace(baseline, comparison=blame.comparison)
    return Judgement(
        measurement=measurement,
        profile=profile,
        verdicts=tuple(verdicts),
        baseline=baseline,
        baseline_failure=tuple(check.failure_lines(baseline, blame))
        if baseline is not None and blame is not None
        else (),
        blamed=blame.first if blame is not None else None,
        stands_in=stands_in,
        only_elsewhere=stands_in and check.only_elsewhere(label, profile),
        shows_nothing=stands_in and unknown is not None and not (asked and not check.must_be_had),
    )

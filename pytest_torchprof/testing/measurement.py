"""One measurement of a test: its recording and profile, what explains a missed limit, and how it is judged."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.analysis.analysis import Repeat
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import ASK_THE_DOCTOR, NotMeasured, TorchprofError, not_measured
from pytest_torchprof.limits import (
    COMPILE,
    GPU,
    HOLDS,
    check_limits,
    error_for,
    missed_somewhere,
    nothing_known,
    something_ran,
)
from pytest_torchprof.limits.failure import LONGEST_REASON, fit
from pytest_torchprof.profiles import load_file
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path
    from typing import Self

    from pytest_torchprof.capture import Plan
    from pytest_torchprof.errors import LimitsMissed
    from pytest_torchprof.limits import Asked, Screen, Verdict
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.baseline_check import BaselineCheck, BaselineJudgement
    from pytest_torchprof.testing.options import TestOptions
    from pytest_torchprof.testing.session import RunState


def describe(problem: BaseException) -> str:
    """Return an exception as "ValueError: the first line of its text"."""
    text = str(problem).partition("\n")[0]
    return f"{type(problem).__name__}{f': {text}' if text else ''}"


@dataclass(slots=True, kw_only=True, eq=False)
class Explanation:
    """What is known of where one measurement's work comes from, and how to find it out; see ``profiles.Explainer``."""

    screen: Screen
    repeat: Repeat | None = None
    """What the repeat found, or why there is none; None before one was asked for."""
    recording: Path | None = None
    """The repeat's, beside the one that is judged."""
    again: Callable[[], None] | None = None
    """Calls the measured code once more; None where that cannot be done."""
    plan: Plan | None = None
    """How the measurement was made; None if its code was not run here and now."""
    asked: list[Asked] = field(default_factory=list)
    """The limits that the test's body has asked for."""
    running: bool = False
    """Whether the call that is under way is the repeat's."""
    raised: BaseException | None = None
    """What the measured code raised in the repeat."""

    def expected(self, asked: Iterable[Asked]) -> None:
        """Note the limits that the test's body asks for."""
        self.asked += asked

    def explained(self, profile: Profile) -> Profile:
        """Return the profile with what the repeat found; the first call makes it, if it can be made."""
        if self.repeat is None and not profile.launching.origins.recorded:
            if self.again is not None:
                self.again()
            elif self.plan is not None:
                self.fail("the code cannot be called again, its block is over")
        return profile if self.repeat is None else profile.with_repeat(self.repeat)

    def calls(self, plan: Plan, path: Path) -> Generator[None, None, None]:
        """Yield for the one call of the repeat; whatever goes wrong with it is a reason, and no failure."""
        self.running = True
        try:
            with closing(capture.once_more(plan, path)) as calls:
                for _ in calls:
                    yield
            self.read(path)
        except GeneratorExit:
            self.fail("the code could not be called again, its loop was over")
            raise
        except Exception as problem:  # noqa: BLE001 - the verdict stands, whatever happens here
            self.fail(f"the repeat with stacks failed: {problem}")
        finally:
            self.running = False

    def read(self, path: Path) -> None:
        """Take the places from a recording with stacks, unless it is known already that there are none."""
        if self.repeat is not None:
            return
        try:
            profile = load_file(path)
        except TorchprofError as problem:
            self.fail(str(problem))
            return
        self.recording = path
        if reason := profile.why_not or profile.kernels_unknown:
            self.fail(f"the repeat with stacks was not measured: {reason}")
        else:
            self.repeat = Repeat(profile)

    def call_raised(self, problem: BaseException) -> None:
        """Keep that the measured code raised when it was called once more."""
        self.raised = problem
        self.fail(f"the repeat with stacks raised {describe(problem)}")

    def fail(self, reason: str) -> None:
        """Keep why there are no places; the first reason counts."""
        if self.repeat is None:
            self.repeat = Repeat(None, reason)


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
    progress: Callable[[str, int, int], None]
    """Shows on the terminal which measurement has made how many calls of how many."""

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
    why_not: str | None = None
    """Why there is no believable profile."""
    ask_the_doctor: bool = False
    """Whether the profiler or the device is the cause of that."""

    def doubted(self, reason: str) -> Self:
        """Return a copy that is not to be believed, for a reason that lies in the profiler or the device.

        Where another profiler is in the way, it is the test that starts it: the reason says what to do.
        """
        return replace(self, why_not=reason, ask_the_doctor=not reason.startswith("another profiler"))

    @property
    def error(self) -> NotMeasured:
        """What says why there is no believable profile."""
        return not_measured(str(self.why_not), ask_the_doctor=self.ask_the_doctor)


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
        return (worse and not self.stands_in) or missed_somewhere(self.verdicts, self.measurement.limits)

    def error(self, screen: Screen) -> LimitsMissed | NotMeasured | None:
        """Return the error that says what does not hold, None where all does."""
        if (profile := self.profile) is not None:
            return error_for(self.verdicts, profile, profile.why_missed, also=self.baseline_failure, screen=screen)
        reason = self.measurement.why_not or coded("the measured code was not run to its end", Code.NOT_RUN_TO_END)
        brief = fit(f"not measured: {printable_line(reason.removeprefix('not measured: '), LONGEST_REASON)}", screen)
        error = NotMeasured(f"{brief}\n  do: {ASK_THE_DOCTOR}" if self.measurement.ask_the_doctor else brief)
        error.brief = brief
        return error


def judge_measurement(
    test: MeasuredTest,
    measurement: Measurement,
    *,
    siblings: tuple[Profile, ...] = (),
    former: Judgement | None = None,
) -> Judgement:
    """Judge a measurement; ``siblings`` are the profiles of the test's other ones, for findings that compare.

    ``former`` is what it came to without them: its comparison with the baseline stands.
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
    verdicts = [*check_limits(profile, limits), *(() if stands_in else check.unmeasured_times(profile)), *nothing]
    baseline = None
    if not nothing:
        baseline = (former.baseline if former is not None else None) or check.compare(label, profile)
        verdicts += [] if stands_in else check.lost_numbers(baseline)
        verdicts += check.of_other_root(baseline)
    if unknown and not asked and not nothing and not stands_in:
        verdicts.append(something_ran(unknown))
    return Judgement(
        measurement=measurement,
        profile=profile,
        verdicts=tuple(verdicts),
        baseline=baseline,
        baseline_failure=tuple(check.failure_lines(baseline, profile)) if baseline is not None else (),
        stands_in=stands_in,
        only_elsewhere=stands_in and check.only_elsewhere(label, profile),
        shows_nothing=stands_in and unknown is not None and not (asked and not check.must_be_had),
    )

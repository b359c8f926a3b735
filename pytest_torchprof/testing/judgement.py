"""The judgement of one measurement: the verdicts on its limits, and how it compares with its baseline."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof import compare
from pytest_torchprof.baseline import EntryFields  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare import Blame
from pytest_torchprof.limits import (
    COMPILE,
    HOLDS,
    Verdict,
    check_limits,
    error_for,
    nothing_known,
    something_ran,
)
from pytest_torchprof.reasons.error_texts import unmeasured_texts
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.testing import FixtureUnused, NotRunToEnd
from pytest_torchprof.report.baseline_failure import BaselineFailure  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.limits import Screen
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.errors import LimitsMissed
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_check import BaselineJudgement
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement


class Judgement(Struct, frozen=True, kw_only=True):
    """The verdicts on one measurement, and how it compares with its baseline."""

    measurement: Measurement
    profile: Profile | None = None
    """The profile for reports: without a gate, with what explains it; None where nothing was measured."""
    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[Verdict, ...] = ()
    """The verdicts by rules of the suite that only warn."""
    only_warns: bool = False
    """Whether nothing fails the test, not even that nothing was measured."""
    baseline: BaselineJudgement | None = None
    """None where it is not compared."""
    baseline_failure: BaselineFailure | None = None
    """How the baseline fails the test; None where it does not."""
    blamed: tuple[str, int] | None = None
    """The file and line by which the baseline fails the test, where it is known."""
    stands_in: bool = False
    """Whether the CPU was measured only because there was no GPU."""
    only_elsewhere: bool = False
    """Whether the CPU stands in, and all baselines of the measurement are of other devices."""
    entries_of_others: Mapping[int, Entry] = field(default_factory=dict)
    """The entries that the other ranks of a job would leave in the baseline, by their numbers."""
    shows_nothing: bool = False
    """Whether the CPU stands in, nothing is known to have run on it, and nothing else was asked."""

    @property
    def holds(self) -> bool:
        """Whether all limits hold; none does where nothing was measured."""
        return self.profile is not None and all(verdict.status == HOLDS for verdict in self.verdicts)

    @property
    def lacks_lines(self) -> bool:
        """Whether it fails by work of which a repeat with stacks would tell the lines."""
        if self.profile is None or self.profile.launching.origins.recorded:
            return False
        worse = self.baseline is not None and self.baseline_failure is not None and self.baseline.has_worse_kernels
        return (worse and not self.stands_in) or any(verdict.wants_lines for verdict in self.verdicts)

    def error(self, screen: Screen) -> LimitsMissed | NotMeasured | None:
        """Return the error that says what does not hold; None where everything holds."""
        if (profile := self.profile) is not None:
            worse, beside = self.baseline_failure, not self.holds
            lines = () if worse is None else worse.lines(beside_limits=beside)
            return error_for(self.verdicts, profile, profile.why_missed, also=lines, screen=screen)
        return None if self.only_warns else self._not_measured(screen)

    def warning(self, screen: Screen) -> LimitsMissed | NotMeasured | None:
        """Return the warning about rules of the suite that only warn; None where they have nothing to say."""
        if (profile := self.profile) is not None:
            # Of hundreds of warnings nobody reads why; to look for findings takes as long as to judge.
            return error_for(self.warnings, profile, lambda _: (), screen=screen)
        return self._not_measured(screen) if self.only_warns else None

    @property
    def why_not(self) -> Reason:
        """Why there is no measurement, where there is none."""
        return self.measurement.why_not or NotRunToEnd()

    def _not_measured(self, screen: Screen) -> NotMeasured:
        reason, ask = self.why_not, self.measurement.ask_the_doctor
        return NotMeasured(reason, texts=unmeasured_texts(reason, screen.columns, ask_the_doctor=ask))


class JudgedOnRank(Struct, frozen=True, kw_only=True):
    """How a measurement came out on one rank, as far as the others need to know; empty if it could not be judged."""

    entry: EntryFields | None = None
    """The entry that the rank would leave in the baseline, where one is to be written."""
    verdicts: tuple[Verdict, ...] = ()
    baseline_failure: BaselineFailure | None = None
    lacks_lines: bool = False
    """Whether it fails there by work of which a repeat with stacks would tell the lines."""


class JudgedAlone(Struct, frozen=True, kw_only=True):
    """The judgement of one measurement when it was taken, before the test's others were known."""

    measurement: Measurement
    judgement: Judgement | None = None
    """None where it could not be judged."""
    of_ranks: tuple[JudgedOnRank, ...] = ()
    """How it came out on each rank of a job, in their order; empty where this process is alone."""
    why_not: Reason | None = None
    """Why it cannot be believed after all: another rank did not get that far."""

    @property
    def is_disbelieved(self) -> bool:
        """Whether NotMeasured must be raised for it: it has no profile that can be believed."""
        return self.measurement.is_missing or self.why_not is not None

    @property
    def lacks_lines(self) -> bool:
        """Whether it fails, here or on another rank, by work of which a repeat with stacks would tell the lines."""
        own = self.judgement is not None and self.judgement.lacks_lines
        return any(rank.lacks_lines for rank in self.of_ranks) if self.of_ranks else own


def judge_alone(test: MeasuredTest, measurement: Measurement) -> JudgedAlone:
    """Return the judgement of a measurement by itself, as far as it can be judged yet."""
    if measurement.why_not is not None or measurement.profile is None or not test.state.options.enabled:
        return JudgedAlone(measurement=measurement)
    judgement = None
    # A baseline that cannot be read comes up again when the test is judged.
    with suppress(TorchprofError):
        judgement = judge_measurement(test, measurement)
    # From here on the test answers for what it asks itself, and not for what a plugin's finding asked.
    measurement.profile.launching.forget_refusals()
    return JudgedAlone(measurement=measurement, judgement=judgement)


def judge_measurement(
    test: MeasuredTest,
    measurement: Measurement,
    *,
    siblings: tuple[Profile, ...] = (),
    former: Judgement | None = None,
    caught: tuple[Verdict, ...] = (),
) -> Judgement:
    """Judge a measurement; ``siblings`` are the profiles of the test's other ones, for findings that compare.

    ``former`` is its judgement without them, whose comparison with the baseline is kept. ``caught`` are verdicts of
    *not measured* that the test's body received and kept to itself.
    """
    if measurement.profile is None or measurement.why_not is not None:
        unused = isinstance(measurement.why_not, FixtureUnused) and test.options.warns_if_unused
        return Judgement(measurement=measurement, only_warns=unused or test.options.warns_of(""))
    options, check = test.options, test.baseline
    label, repeat = measurement.label, measurement.explanation.repeat
    profile = measurement.profile.with_context(rules=test.state.rules, gate=None).with_others(siblings)
    profile = profile if repeat is None else profile.with_repeat(repeat)
    stands_in = measurement.stands_in
    asked = (*measurement.limits, *measurement.explanation.asked)
    unknown = nothing_known(profile, asked)
    only_elsewhere = stands_in and check.only_elsewhere(label, profile)
    nothing = tuple(check.not_comparable(label, profile, unknown, stands_in=stands_in)) if unknown else ()
    on_cpu = (own for own in measurement.limits if own.limit.needs == COMPILE or options.judges_on_cpu(own.limit.name))
    limits = list(on_cpu) if stands_in else measurement.limits
    limits = limits if check.judges_limits else []
    verdicts = [*check_limits(profile, limits), *(() if stands_in else check.unmeasured_times(profile)), *nothing]
    baseline = None
    if not nothing:
        baseline = (former.baseline if former is not None else None) or check.compare(label, profile)
        verdicts += [] if stands_in else check.lost_numbers(baseline, profile)
        verdicts += check.of_other_root(baseline)
        verdicts += check.unmeasured_there(baseline)
        verdicts += [] if stands_in else check.unmeasured_in_history(baseline)
    if unknown and not asked and not nothing and not stands_in:
        verdicts.append(something_ran(unknown))
    verdicts += caught
    blame = None if baseline is None else Blame(comparison=baseline.comparison)
    if baseline is not None and baseline.comparison.verdict == "worse" and check.is_failed_by(baseline):
        blame = compare.blame(profile, baseline.new(), baseline.comparison)
        baseline = replace(baseline, comparison=blame.comparison)
    verdicts = [replace(own, of_rule=options.has_from_rule(own.limit, own.range)) for own in verdicts]
    warned = [options.warns_of(own.limit, own.range) for own in verdicts]
    return Judgement(
        measurement=measurement,
        profile=profile,
        verdicts=tuple(own for own, warns in zip(verdicts, warned, strict=True) if not warns),
        warnings=tuple(own for own, warns in zip(verdicts, warned, strict=True) if warns),
        only_warns=options.warns_of(""),
        baseline=baseline,
        baseline_failure=check.failure_of(baseline, blame) if baseline is not None and blame is not None else None,
        blamed=blame.first if blame is not None else None,
        stands_in=stands_in,
        only_elsewhere=only_elsewhere,
        shows_nothing=stands_in and unknown is not None and not (asked and not check.requires_baseline),
    )

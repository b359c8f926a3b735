"""The result of a measurement with its times, compared with another commit's."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

from msgspec.structs import asdict, replace

from pytest_torchprof.against.pairs import MOST_LOST
from pytest_torchprof.compare.pace import LEAST_PAIRS, slowdown
from pytest_torchprof.compare.time_comparison import TimeChange, TimeComparison
from pytest_torchprof.reasons.composed import FurtherPairsLost, PairsLost
from pytest_torchprof.reasons.timing import BudgetForTooFewPairs, BudgetSpent, PairsUndecided, SlowdownNotConfirmed
from pytest_torchprof.report.account import TimesFail
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from pytest_torchprof.against.pairs import TimedMeasurement
    from pytest_torchprof.against.side import Side
    from pytest_torchprof.compare.pace import TimePair
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.report.result import Result


def without_times(result: Result, verdict: Literal["new", "not judged"], reason: Reason | None = None) -> Result:
    """Return the result of a measurement whose times are not taken, with the reason."""
    return replace(result, against_time=TimeComparison(verdict=verdict, tolerance=result.time_share, reason=reason))


def with_times(result: Result, measured: TimedMeasurement, side: Side, *, seed: int, budget_s: float) -> Result:
    """Return the result with the comparison of its times, which may fail it."""
    pairs, failed_before = measured.pace, result.outcome.is_failure
    if len(pairs.pairs) < LEAST_PAIRS:
        compared = TimeComparison(
            verdict="not measured",
            tolerance=result.time_share,
            reason=_why_too_few(measured, budget_s),
            fails=True,
            failed_before=failed_before,
        )
        return _failed(result, compared, side)
    compared = TimeComparison(
        verdict=pairs.verdict,
        tolerance=result.time_share,
        reason=_why_undecided(measured, budget_s) if pairs.verdict == "ambiguous" else None,
        seed=seed,
        pairs=len(pairs.all_pairs),
        confirming_pairs=len(pairs.fresh),
        step=_change_in(pairs.all_pairs),
        kernels=_change_in(measured.kernels) if len(measured.kernels) >= LEAST_PAIRS else None,
        disturbed=measured.disturbed,
        fails=pairs.verdict == "worse" or (pairs.verdict == "ambiguous" and side.ambiguous_fails),
        failed_before=failed_before,
    )
    return _failed(result, compared, side) if compared.fails else replace(result, against_time=compared)


def _failed(result: Result, compared: TimeComparison, side: Side) -> Result:
    times = TimesFail(side.reference.shown)
    if result.outcome.is_failure:
        return replace(result, against_time=compared, account=(*result.account, times))
    failed = replace(result, against_time=compared, outcome=Outcome.FAILED, account=(times,))
    if compared.step is not None:
        return failed
    return replace(failed, outcome=Outcome.NOT_MEASURED, reason=compared.reason)


def _change_in(pairs: tuple[TimePair, ...]) -> TimeChange:
    """Return the medians on both sides, in microseconds, and how they differ, in shares."""
    base_us, here_us = (statistics.median(times) for times in zip(*pairs, strict=True))
    return TimeChange(base_us=base_us, here_us=here_us, **asdict(slowdown(pairs)))


def _why_too_few(measured: TimedMeasurement, budget_s: float) -> Reason:
    pairs = len(measured.pace.pairs)
    if len(measured.lost) >= MOST_LOST:
        return PairsLost(pairs, LEAST_PAIRS, measured.lost[-1])
    return BudgetForTooFewPairs(pairs, LEAST_PAIRS, budget_s)


def _why_undecided(measured: TimedMeasurement, budget_s: float) -> Reason:
    pairs = measured.pace
    if len(measured.lost) >= MOST_LOST:
        return FurtherPairsLost(measured.lost[-1])
    if pairs.wanting:
        return BudgetSpent(budget_s)
    return SlowdownNotConfirmed(len(pairs.pairs)) if pairs.doubted else PairsUndecided(pairs.allowed)

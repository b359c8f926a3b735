"""The messages of a job's ranks about a measurement that each has judged by itself, and the joint judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.limits.evidence import OtherwiseOnRank, WorstRank
from pytest_torchprof.limits.rank_limits import ON_ALL_RANKS, furthest
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.testing.judgement import JudgedAlone, JudgedOnRank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.report.baseline_failure import BaselineFailure
    from pytest_torchprof.testing.judgement import Judgement

_MOST_LINES = 5


def agreed(judged: JudgedAlone) -> JudgedAlone:
    """Return the judgement of a measurement here and on the ranks that measure it in step.

    It cannot be believed if another rank did not get that far.
    """
    measurement = judged.measurement
    plan = measurement.explanation.plan
    if plan is None or measurement.profile is None or not plan.coordination.in_step:
        return judged
    own = _judged_here(judged.judgement)
    try:
        of_ranks = plan.coordination.exchange("the verdicts", own, JudgedOnRank)
        plan.coordination.close()
    except NotMeasured as problem:
        return JudgedAlone(measurement=measurement.doubted(problem.reason), why_not=problem.reason)
    return replace(judged, of_ranks=tuple(of_ranks))


def _judged_here(judgement: Judgement | None) -> JudgedOnRank:
    if judgement is None or judgement.profile is None:
        return JudgedOnRank()
    compared = judgement.baseline
    return JudgedOnRank(
        entry=baseline.fields_of(compared.new()) if compared is not None and compared.is_due else None,
        verdicts=tuple(
            replace(verdict, evidence=verdict.evidence[:_MOST_LINES])
            # A limit on all ranks together has the same verdict on each.
            for verdict in judgement.verdicts
            if verdict.limit not in ON_ALL_RANKS
        ),
        baseline_failure=judgement.baseline_failure,
        lacks_lines=judgement.lacks_lines,
    )


def with_other_ranks(judgement: Judgement, of_ranks: Sequence[JudgedOnRank]) -> Judgement:
    """Return the judgement in which a limit that one rank misses is missed, with the name of the worst rank."""
    if judgement.profile is None or len(of_ranks) < 2:
        return judgement
    own, verdicts = this_rank().number, {_key(verdict): verdict for verdict in judgement.verdicts}
    not_held: dict[tuple[str, str | None, str], dict[int, Verdict]] = {}
    for rank, judged in enumerate(of_ranks):
        for verdict in judged.verdicts:
            if verdict.status != HOLDS:
                not_held.setdefault(_key(verdict), {})[rank] = verdict
    for key, of_rank in not_held.items():
        verdicts[key] = _together(verdicts.get(key), of_rank, own, len(of_ranks))
    failure = judgement.baseline_failure or _baseline_of_others(of_ranks)
    return replace(
        judgement,
        verdicts=tuple(verdicts.values()),
        baseline_failure=failure,
        entries_of_others=_entries_of_others(of_ranks),
    )


def _entries_of_others(of_ranks: Sequence[JudgedOnRank]) -> dict[int, Entry]:
    """Return the entry that each rank but the first would leave in the baseline, by its number."""
    entries = {rank: judged.entry for rank, judged in enumerate(of_ranks) if rank}
    return {rank: baseline.entry_from(entry) for rank, entry in entries.items() if entry is not None}


def _key(verdict: Verdict) -> tuple[str, str | None, str]:
    return verdict.limit, verdict.range, verdict.expected


def _together(own_verdict: Verdict | None, of_rank: Mapping[int, Verdict], own: int, world: int) -> Verdict:
    worst = _worst(of_rank)
    if own_verdict is None or own_verdict.status == HOLDS:
        return replace(of_rank[worst], rank=worst)
    there = of_rank[worst]
    line = (
        (WorstRank(worst, world) if worst == own else WorstRank(worst, world, there.seen, there.in_step, there.reason))
        if own_verdict.status == there.status
        else OtherwiseOnRank(worst, there.status, there.seen, there.in_step, there.reason)
    )
    return replace(own_verdict, evidence=(line, *own_verdict.evidence))


def _worst(of_rank: Mapping[int, Verdict]) -> int:
    """Return a rank that is not measured, else the one that is furthest past its bound."""
    unmeasured = [rank for rank, verdict in of_rank.items() if verdict.status == NOT_MEASURED]
    if unmeasured:
        return unmeasured[0]
    return furthest({rank: verdict for rank, verdict in of_rank.items() if verdict.status == MISSED})


def _baseline_of_others(of_ranks: Sequence[JudgedOnRank]) -> BaselineFailure | None:
    failures = ((rank, judged.baseline_failure) for rank, judged in enumerate(of_ranks))
    return next((replace(failure, rank=rank) for rank, failure in failures if failure is not None), None)

"""Limits on the ranks of a job together; they cannot be judged by one rank's recording alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.findings.ranks import OF_JOBS, find_in_job
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.limits.asked import Asked, answered
from pytest_torchprof.limits.evidence import (
    FindingLine,
    KernelsToDeclare,
    LateRank,
    RankDiffers,
    RankKernels,
    RowsLeftOut,
)
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Limit, OnRanks, Verdict, unmeasured
from pytest_torchprof.limits.quantities import duration_us
from pytest_torchprof.limits.seen import FindingsSeen, NoFinding, RankDifferences, RankSkew, SameOnRanks
from pytest_torchprof.reasons.composed import FindingUntold, OfRank
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.job_limits import (
    AloneOfJob,
    CollectivesDiffer,
    KernelsOfRankUnknown,
    MissingRanks,
    NoCollectiveCompared,
    NoCollectiveInCommon,
    NoGroupOfTwo,
    NoOtherRank,
    SkewMayBeMore,
    SkewTooRough,
    TimesOfRankMeanNothing,
)
from pytest_torchprof.reasons.limits import ClocksLocked, FamilyUnknown, NothingRanOnRanks
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.rank_kernels import StepKernels
    from pytest_torchprof.analysis.ranks import Job, RankPart
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.reasons.reason import Reason

_MOST_ROWS = 1000
"""The most rows of evidence that a verdict keeps; a screen has fewer, and says how many it leaves out."""


def _read_same_kernels(value: object) -> str | None:
    """Return the process group whose ranks are compared with one another, None for all ranks."""
    if value is True:
        return None
    if isinstance(value, str) and value.strip():
        return value
    raise UnknownLimit.because(WrongValue(ValueForm.GROUP, repr(value)))


def _of_job(check: Callable[[Job, Any], Verdict], *, on_time: bool = False) -> Callable[[Analysis, Any], Verdict]:
    """Return a check of the analysis of one rank, for a limit on all ranks."""

    def check_analysis(analysis: Analysis, value: object) -> Verdict:
        if analysis.in_job is None:
            return unmeasured(analysis.why_alone or _why_alone(analysis))
        return _judged(analysis.in_job.job, check, value, on_time=on_time)

    return check_analysis


def _why_alone(analysis: Analysis) -> Reason:
    known = rank_and_size(analysis.trace)
    return AloneOfJob() if known is not None and known[1] > 1 else NoOtherRank(of_job=known is not None)


def _judged(job: Job, check: Callable[[Job, Any], Verdict], value: object, *, on_time: bool) -> Verdict:
    """Return the verdict on ranks that can all be believed; it cannot hold if recordings of some ranks are missing."""
    if (reason := _why_not_judged(job, on_time=on_time)) is not None:
        return unmeasured(reason)
    verdict = check(job, value)
    return _lacks_ranks(job) if verdict.status == HOLDS and job.missing else verdict


def _why_not_judged(job: Job, *, on_time: bool) -> Reason | None:
    for rank in job.ranks:
        if (reason := from_stored(rank.why_not or rank.kernels_unknown)) is not None:
            return OfRank(rank.rank, reason)
        if on_time and rank.launches_wait is not None:
            return TimesOfRankMeanNothing(rank.rank, rank.launches_wait)
        if on_time and rank.samples_hardware:
            return OfRank(rank.rank, ClocksLocked())
    return None


def divided_among_ranks(asked: Iterable[Asked]) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """Return the limits by which each rank's recording is judged, and those that concern all ranks together.

    Findings may be of either kind: ``forbid`` is divided.
    """
    each: list[Asked] = []
    together: list[Asked] = []
    for wanted in asked:
        if wanted.limit.name != "forbid":
            (together if wanted.limit.name in ON_ALL_RANKS else each).append(wanted)
            continue
        for where, codes in (
            (each, [code for code in wanted.value if code not in OF_JOBS]),
            (together, [code for code in wanted.value if code in OF_JOBS]),
        ):
            if codes:
                where.append(replace(wanted, value=tuple(codes), written=", ".join(codes)))
    return tuple(each), tuple(together)


def check_job(job: Job, together: Iterable[Asked], *, may_be_idle: bool = False) -> tuple[Verdict, ...]:
    """Return a verdict for each limit on all ranks; with ``may_be_idle`` it may hold where nothing ran."""
    return tuple(answered(_verdict(job, wanted, may_be_idle=may_be_idle), wanted) for wanted in together)


def _verdict(job: Job, wanted: Asked, *, may_be_idle: bool) -> Verdict:
    if wanted.limit.name == "forbid":
        return _judged(job, _forbidden, wanted.value, on_time=False)
    verdict = _judged(job, ON_ALL_RANKS[wanted.limit.name], wanted.value, on_time=wanted.limit.on_time)
    alike = wanted.limit.name == "same_kernels" and verdict.status == HOLDS
    if alike and not may_be_idle and not any(map(any, (part.kernels or () for part in job.ranks))):
        return unmeasured(NothingRanOnRanks())
    return verdict


def _forbidden(job: Job, codes: Sequence[str]) -> Verdict:
    findings = [finding for finding in find_in_job(job) if finding.code in codes]
    if findings:
        return Verdict(
            seen=(FindingsSeen(tuple(dict.fromkeys(finding.code for finding in findings))),),
            number=len(findings),
            status=MISSED,
            evidence=_kept([FindingLine(finding) for finding in findings]),
        )
    reasons = {code: reason for code in codes if (reason := OF_JOBS[code](job)) is not None}
    if reasons:
        code, reason = next(iter(reasons.items()))
        return unmeasured(FindingUntold(code, reason, of_ranks=True))
    return Verdict(number=0, seen=(NoFinding(),), status=HOLDS)


def _skew(job: Job, most_us: float) -> Verdict:
    if job.differences:
        return _unsure(job)
    if job.skew_us is None:
        return unmeasured(_why_nothing_in_common(job))
    sure = 0.0 if job.one_clock else job.residue_us
    seen = RankSkew(job.skew_us, len(job.collectives), None if job.one_clock else job.residue_us)
    if job.skew_us - sure > most_us:
        longest = sorted(job.collectives, key=lambda collective: -collective.skew_us)
        rows = [
            LateRank(collective.name, collective.step + 1, collective.latest, collective.skew_us)
            for collective in longest
        ]
        return Verdict(number=job.skew_us, seen=(seen,), status=MISSED, evidence=_kept(rows))
    if job.skew_us + sure > most_us:
        return replace(unmeasured(SkewTooRough()), seen=(seen,))
    if job.most_skew_us + sure > most_us:
        return _if_others_were_matched(job, seen)
    return Verdict(number=job.skew_us, seen=(seen,), status=HOLDS)


def _kept(rows: Sequence[AnyEvidence]) -> tuple[AnyEvidence, ...]:
    """Return the rows that a verdict keeps, and behind them how many there are more."""
    left_out = len(rows) - _MOST_ROWS
    return (*rows[:_MOST_ROWS], *((RowsLeftOut(left_out),) if left_out > 0 else ()))


def _unsure(job: Job) -> Verdict:
    rows = _kept([RankDiffers(difference) for difference in job.differences])
    first, *others = job.differences
    return unmeasured(CollectivesDiffer(first, len(others)), rows)


def _if_others_were_matched(job: Job, seen: RankSkew) -> Verdict:
    """Return that the limit may not hold: the skew of collectives that are not matched can be anything."""
    if names := job.may_communicate:
        return unmeasured(FamilyUnknown(tuple(names), "communication", surely=False), (KernelsToDeclare(tuple(names)),))
    return replace(unmeasured(SkewMayBeMore(job.why_unmatched)), seen=(seen,))


def _why_nothing_in_common(job: Job) -> Reason:
    if not job.why_unmatched:
        return NoCollectiveInCommon()
    return NoCollectiveCompared(job.why_unmatched)


def _same_kernels(job: Job, group: str | None) -> Verdict:
    groups = [tuple(rank.rank for rank in job.ranks)] if group is None else job.groups_called(group)
    if not any(len(ranks) > 1 for ranks in groups):
        known = ", ".join(job.group_names) or "none with a name"
        return unmeasured(NoGroupOfTwo(str(group), known))
    compared = [rank for ranks in groups for rank in ranks]
    if any(job[rank].kernels is None for rank in compared):
        return unmeasured(KernelsOfRankUnknown())
    unsure = any(rank.rank in compared for rank in job.differences)
    kernels = {rank: _kernels(job[rank], computing=unsure) for rank in compared}
    lines = [
        RankKernels(rank, first, difference)
        for first, *others in groups
        for rank in others
        for difference in kernel_differences(kernels[first], kernels[rank])
    ]
    if lines:
        seen = RankDifferences(len(lines))
        return Verdict(number=len(lines), seen=(seen,), status=MISSED, evidence=_kept(lines))
    if unsure:
        return _unsure(job)
    same = SameOnRanks(len(set(compared)), None if group is None else len(groups))
    return Verdict(number=0, seen=(same,), status=HOLDS)


def _kernels(part: RankPart, *, computing: bool) -> Sequence[StepKernels]:
    """Return the kernels of each step; ``computing``: without those that communicate."""
    if not computing:
        return part.kernels or ()
    return [
        {name: types for name, types in step.items() if decode(name).family != "communication"}
        for step in part.kernels or ()
    ]


ON_ALL_RANKS: dict[str, Callable[[Job, Any], Verdict]] = {"max_rank_skew": _skew, "same_kernels": _same_kernels}
RANK_LIMITS = (
    Limit(
        name="max_rank_skew",
        read=duration_us,
        check=_of_job(_skew, on_time=True),
        on_time=True,
        unit="us",
        located=False,
        families=(),
    ),
    Limit(name="same_kernels", read=_read_same_kernels, check=_of_job(_same_kernels), located=False, families=()),
)


def worst_of(by_rank: Mapping[int, Sequence[Verdict]], world_size: int | None = None) -> list[Verdict]:
    """Return for each limit its worst verdict; ``by_rank`` has the verdicts of each rank of the ``world_size``."""
    ranks = sorted(by_rank)
    verdicts = []
    for of_limit in zip(*(by_rank[rank] for rank in ranks), strict=True):
        of_rank = dict(zip(ranks, of_limit, strict=True))
        status = min((verdict.status for verdict in of_limit), key=(MISSED, NOT_MEASURED, HOLDS).index)
        alike = {rank: verdict for rank, verdict in of_rank.items() if verdict.status == status}
        worst = furthest(alike)
        job = world_size if world_size not in (None, len(ranks)) else None
        on_ranks = OnRanks(first=worst, others=len(alike) - 1, of=len(ranks), job=job)
        verdicts.append(replace(of_rank[worst], on_ranks=on_ranks))
    return verdicts


def furthest(alike: Mapping[int, Verdict]) -> int:
    """Return the worst of ranks with the same status: furthest past the bound, or nearest to it where all keep it."""
    past = -1 if all(verdict.status == HOLDS for verdict in alike.values()) else 1
    return max(alike, key=lambda rank: past * alike[rank].distance)


def missing_ranks(job: Job, verdicts: Iterable[Verdict] = ()) -> list[Verdict]:
    """Return a verdict that nothing is known of the ranks whose recordings are missing; empty if none are.

    Where one of the ``verdicts`` says so already, it is not said again.
    """
    if not job.missing or any(isinstance(verdict.reason, MissingRanks) for verdict in verdicts):
        return []
    return [_lacks_ranks(job).on("ranks", str(job.world_size))]


def _lacks_ranks(job: Job) -> Verdict:
    return unmeasured(MissingRanks(tuple(job.missing)))

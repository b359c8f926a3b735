"""Findings about the ranks of a job together: which rank keeps the others waiting, which does other work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable  # noqa: TC003  (the type of a field, which msgspec looks up)
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_torchprof.analysis.analysis import Analysis  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.analysis.ranks import Job  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.findings.catalogue.ranks import ExposedCommunication, OtherWorkOnRank, Straggler
from pytest_torchprof.findings.finding import Finding, Need, Rule
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.reasons.findings import CollectivesUnmatched, RanksNeeded
from pytest_torchprof.reasons.reason import Reason  # noqa: TC001  (the type of a field, which msgspec looks up)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.reasons.collectives import RankDifference

_WORTH = 0.1
"""The share of a step above which exposed communication is a finding, as it is for a single rank."""


def find_in_job(job: Job) -> tuple[Finding, ...]:
    """Return the findings that the recordings of several ranks show together, each with its rank."""
    return (*_straggler(job), *_rank_differs(job), *_exposed(job))


def cause_of(job: Job) -> str:
    """Return the cause of the time in collectives, such as "skew-bound: ranks wait for each other"."""
    return ExposedCommunication.CAUSES[job.kind]


def _of_rank(look: Callable[[Job], Iterator[Straggler | OtherWorkOnRank]]) -> Callable[[Analysis], Iterator[Finding]]:
    """Return a function that looks for the findings about the rank of an analysis."""

    def find(analysis: Analysis) -> Iterator[Finding]:
        if analysis.in_job is not None:
            yield from (finding for finding in look(analysis.in_job.job) if finding.rank == analysis.in_job.rank)

    return find


def _straggler(job: Job) -> Iterator[Straggler]:
    rank = job.straggler
    if rank is None:
        return
    caused, total = job.caused_us[rank], sum(job.caused_us.values())
    yield Straggler(
        rank=rank, caused_us=caused, share=caused / total, collectives=len(job.collectives), saves_us=caused
    )


def _rank_differs(job: Job) -> Iterator[OtherWorkOnRank]:
    first, *others = job.ranks
    for rank, names in sorted(job.alone.items()):
        yield OtherWorkOnRank(rank=rank, collectives=dict(names))
    unlike: dict[int, list[RankDifference]] = {}
    for difference in job.differences:
        unlike.setdefault(difference.rank, []).append(difference)
    for rank, differences in sorted(unlike.items()):
        yield OtherWorkOnRank(rank=rank, differences=tuple(differences))
    for other in others:
        if first.kernels is None or other.kernels is None:
            continue
        if kernels := tuple(kernel_differences(first.kernels, other.kernels)):
            yield OtherWorkOnRank(rank=other.rank, differences=kernels, against=first.rank)


def _exposed(job: Job) -> Iterator[ExposedCommunication]:
    shares = {
        part.rank: sum(step.exposed_us for step in part.steps) / span
        for part in job.ranks
        if (span := sum(step.span_us for step in part.steps)) > 0
    }
    if not shares:
        return
    rank = max(shares, key=shares.__getitem__)
    if shares[rank] < _WORTH:
        return
    exposed = next(sum(step.exposed_us for step in part.steps) for part in job.ranks if part.rank == rank)
    yield ExposedCommunication(
        rank=rank,
        time_us=exposed,
        share=shares[rank],
        saves_us=exposed,
        **_causes(job),
    )


def seen_in_job(finding: ExposedCommunication, job: Job) -> ExposedCommunication:
    """Return the finding on one rank's communication, with the causes that all ranks together show."""
    return replace(finding, **_causes(job))


def _causes(job: Job) -> dict[str, Any]:
    return {"kind": job.kind, "wait_share": job.wait_share, "waits_at_least": job.waits_at_least}


def _why_not_all(job: Job) -> Reason | None:
    from pytest_torchprof.reasons.composed import OfRank  # noqa: PLC0415 - most recordings are of no job
    from pytest_torchprof.reasons.job_limits import MissingRanks  # noqa: PLC0415 - as above

    if job.missing:
        return MissingRanks(tuple(job.missing))
    for part in job.ranks:
        if (reason := from_stored(part.why_not or part.kernels_unknown)) is not None:
            return OfRank(part.rank, reason)
    return None


def _why_no_straggler(job: Job) -> Reason | None:
    from pytest_torchprof.reasons.composed import OfRank  # noqa: PLC0415 - most recordings are of no job
    from pytest_torchprof.reasons.job_limits import TimesOfRankMeanNothing  # noqa: PLC0415 - as above
    from pytest_torchprof.reasons.limits import ClocksLocked  # noqa: PLC0415 - as above

    for part in job.ranks:
        if part.launches_wait is not None:
            return TimesOfRankMeanNothing(part.rank, part.launches_wait)
        if part.samples_hardware:
            return OfRank(part.rank, ClocksLocked())
    return _why_not_all(job) or job.why_no_straggler


def _why_not_alike(job: Job) -> Reason | None:
    if (reason := _why_not_all(job)) is not None:
        return reason
    if any(part.kernels is None for part in job.ranks):
        from pytest_torchprof.reasons.job_limits import KernelsOfRankUnknown  # noqa: PLC0415 - as above

        return KernelsOfRankUnknown()
    # If each rank has equally many of a kind, they are alike, whichever is which.
    unmatched = [part.unmatched for part in job.ranks]
    known = [calls for calls in unmatched if all(call.message_bytes is not None for call in calls)]
    names = [Counter(call.name for call in calls) for calls in unmatched]
    sizes = [Counter((call.name, call.message_bytes, call.dtype) for call in calls) for calls in known]
    is_alike = all(name == names[0] for name in names) and all(size == sizes[0] for size in sizes)
    return None if is_alike or not job.why_unmatched else CollectivesUnmatched(job.why_unmatched)


class _OfJob(Need, frozen=True, eq=False, kw_only=True):
    """A fact that the recordings of all ranks together must hold."""

    why: Callable[[Job], Reason | None]

    def why_missing(self, analysis: Analysis, *_: float) -> Reason | None:
        if analysis.in_job is None:
            return self.missing
        return self.why(analysis.in_job.job)


def _needs(why: Callable[[Job], Reason | None]) -> tuple[Need, ...]:
    return (_OfJob(missing=RanksNeeded(), there=lambda analysis: analysis.in_job is not None, why=why),)


STRAGGLER = Rule(
    code="straggler",
    find=_of_rank(_straggler),
    needs=_needs(_why_no_straggler),
    explains=("max_rank_skew", "max_exposed_communication", "min_overlap"),
)
RANK_DIFFERS = Rule(
    code="rank-differs",
    find=_of_rank(_rank_differs),
    needs=_needs(_why_not_alike),
)
RULES = (STRAGGLER, RANK_DIFFERS)
OF_JOBS: Final = {STRAGGLER.code: _why_no_straggler, RANK_DIFFERS.code: _why_not_alike}
"""The findings about all ranks together, and why a job may not allow them."""

"""Findings about the ranks of a job together: who keeps the others waiting, who does something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable  # noqa: TC003  (the type of a field, which msgspec looks up)
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_torchprof.analysis.analysis import Analysis  # noqa: TC001  (likewise)
from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.analysis.ranks import Job, show_kind
from pytest_torchprof.findings.finding import Finding, Need, Rule
from pytest_torchprof.reasons.catalogue import from_stored
from pytest_torchprof.text import counted, first_of, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORTH = 0.1
"""Of a step, from where on exposed communication is told, as of one rank alone."""
_CAUSES = {
    "skew-bound": "ranks wait for each other",
    "transfer-bound": "sending takes the time",
    "mixed": "ranks wait for each other, and sending takes time too",
    "inconclusive": "whether ranks wait or send cannot be told",
}


def find_in_job(job: Job) -> tuple[Finding, ...]:
    """Return what the recordings of several ranks show together, each with the rank that it is about."""
    looks = ((STRAGGLER, _straggler), (RANK_DIFFERS, _rank_differs))
    found = (
        replace(one, code=rule.code, title=rule.title, remedy=rule.remedy) for rule, look in looks for one in look(job)
    )
    return (*found, *_exposed(job))


def cause_of(job: Job) -> str:
    """Return what the time in collectives is spent with: "skew-bound: ranks wait for each other"."""
    return f"{show_kind(job.kind)}: {_CAUSES[job.kind]}"


def _of_rank(look: Callable[[Job], Iterator[Finding]]) -> Callable[[Analysis], Iterator[Finding]]:
    """Return what looks for the findings that are about the rank of an analysis."""

    def find(analysis: Analysis) -> Iterator[Finding]:
        if analysis.in_job is not None:
            yield from (one for one in look(analysis.in_job.job) if one.evidence["rank"] == analysis.in_job.rank)

    return find


def _straggler(job: Job) -> Iterator[Finding]:
    rank = job.straggler
    if rank is None:
        return
    caused, total = job.caused_us[rank], sum(job.caused_us.values())
    yield Finding(
        message=f"rank {rank} comes last in {show_share(caused / total)} of the waiting at collectives, "
        f"{show_us(caused)} in all",
        evidence={"rank": rank, "caused_us": caused, "share": caused / total, "collectives": len(job.collectives)},
        saves_us=caused,
    )


def _rank_differs(job: Job) -> Iterator[Finding]:
    first, *others = job.ranks
    for rank, names in sorted(job.alone.items()):
        told = ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
        message = f"rank {rank} has collectives that the other recordings of its group have not: {told}"
        yield Finding(message=message, evidence={"rank": rank, "collectives": dict(names)})
    unlike: dict[int, list[str]] = {}
    for difference in job.differences:
        unlike.setdefault(difference.rank, []).append(difference.said)
    for rank, lines in sorted(unlike.items()):
        more = f", and {counted(len(lines) - 1, 'other difference')}" if len(lines) > 1 else ""
        message = f"rank {rank} does not do the same as the others: {lines[0]}{more}"
        yield Finding(message=message, evidence={"rank": rank, "differences": lines})
    for one in others:
        if first.kernels is None or one.kernels is None:
            continue
        if lines := list(kernel_differences(first.kernels, one.kernels)):
            more = f" and {len(lines) - 1} other differences" if len(lines) > 1 else ""
            message = f"rank {one.rank} against rank {first.rank}: {lines[0]}{more}"
            yield Finding(message=message, evidence={"rank": one.rank, "differences": lines})


def _exposed(job: Job) -> Iterator[Finding]:
    shares = {
        one.rank: sum(step.exposed_us for step in one.steps) / span
        for one in job.ranks
        if (span := sum(step.span_us for step in one.steps)) > 0
    }
    if not shares:
        return
    rank = max(shares, key=lambda one: shares[one])
    if shares[rank] < _WORTH:
        return
    exposed = next(sum(step.exposed_us for step in one.steps) for one in job.ranks if one.rank == rank)
    kind = job.kind
    yield Finding(
        code="exposed-communication",
        title="Exposed communication",
        message=f"{show_us(exposed)} ({show_share(shares[rank])} of the steps) rank {rank} only communicates; "
        f"{cause_of(job)}",
        evidence={"rank": rank, "time_us": exposed, "share": shares[rank], "kind": kind, "wait_share": job.wait_share},
        remedy="find what makes the last rank late"
        if kind == "skew-bound"
        else "overlap it with computation, send less (types, buckets), or use faster links",
        saves_us=exposed,
    )


def _why_not_all(job: Job) -> str | None:
    if job.missing:
        return f"there is no recording of rank {first_of([*map(str, job.missing)])}"
    doubted = next((one for one in job.ranks if one.why_not or one.kernels_unknown), None)
    return (
        None if doubted is None else f"rank {doubted.rank}: {from_stored(doubted.why_not or doubted.kernels_unknown)}"
    )


def _why_no_straggler(job: Job) -> str | None:
    waits = next((one for one in job.ranks if one.launches_wait is not None), None)
    if waits is not None:
        return f"rank {waits.rank}: {waits.launches_wait} makes every launch wait"
    return _why_not_all(job) or job.why_no_straggler


def _why_not_alike(job: Job) -> str | None:
    if (reason := _why_not_all(job)) is not None:
        return reason
    if unknown := [one.rank for one in job.ranks if one.kernels is None]:
        return f"which kernels rank {unknown[0]} ran is not known"
    # As many of a kind on each rank are alike, whichever is which.
    names = [Counter(one.name for one in part.unmatched) for part in job.ranks]
    known = [part.unmatched for part in job.ranks if all(one.message_bytes is not None for one in part.unmatched)]
    sizes = [Counter((one.name, one.message_bytes, one.dtype) for one in ones) for ones in known]
    is_alike = all(one == names[0] for one in names) and all(one == sizes[0] for one in sizes)
    return None if is_alike else job.why_unmatched or None


class _OfJob(Need, frozen=True, eq=False, kw_only=True):
    """What the recordings of all ranks together must hold."""

    why: Callable[[Job], str | None]

    def why_missing(self, analysis: Analysis, *_: float) -> str | None:
        if analysis.in_job is None:
            return self.missing
        return self.why(analysis.in_job.job)


def _needs(why: Callable[[Job], str | None]) -> tuple[Need, ...]:
    missing = "it takes the recordings of all ranks (adopt them together, or --ranks)"
    return (_OfJob(missing=missing, there=lambda analysis: analysis.in_job is not None, why=why),)


STRAGGLER = Rule(
    code="straggler",
    title="A rank keeps the others waiting",
    find=_of_rank(_straggler),
    needs=_needs(_why_no_straggler),
    remedy="compare its steps with another rank's (torchprof diff A B): more work, a slower device, a busy CPU, "
    "data that comes late",
    explains=("max_rank_skew", "max_exposed_communication", "min_overlap"),
)
RANK_DIFFERS = Rule(
    code="rank-differs",
    title="A rank does something else",
    find=_of_rank(_rank_differs),
    needs=_needs(_why_not_alike),
    remedy="where it is not meant (in pipelines it is): a branch on the rank, or a fallback kernel on one device",
)
RULES = (STRAGGLER, RANK_DIFFERS)
OF_JOBS: Final = {STRAGGLER.code: _why_no_straggler, RANK_DIFFERS.code: _why_not_alike}
"""The findings about ranks together, and why they cannot be told of a job."""

"""Findings about the ranks of a job together: who keeps the others waiting, who does something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.findings.finding import Finding, Need, Rule
from pytest_torchprof.text import show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.ranks import Job

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
    return f"{job.kind}: {_CAUSES[job.kind]}"


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


_ALL_RANKS = Need(
    missing="it takes the recordings of all ranks (adopt them together, or --ranks)",
    there=lambda analysis: analysis.in_job is not None,
)
STRAGGLER = Rule(
    code="straggler",
    title="A rank keeps the others waiting",
    find=_of_rank(_straggler),
    needs=(_ALL_RANKS,),
    remedy="compare its steps with another rank's (torchprof diff A B): more work, a slower device, a busy CPU, "
    "data that comes late",
    explains=("max_rank_skew", "max_exposed_communication", "min_overlap"),
)
RANK_DIFFERS = Rule(
    code="rank-differs",
    title="A rank does something else",
    find=_of_rank(_rank_differs),
    needs=(_ALL_RANKS,),
    remedy="where it is not meant (in pipelines it is): a branch on the rank, or a fallback kernel on one device",
)
RULES = (STRAGGLER, RANK_DIFFERS)

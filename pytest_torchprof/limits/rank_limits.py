"""Limits on the ranks of a job together; of one rank's recording alone they cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Limit, Verdict
from pytest_torchprof.text import counted, duration_us, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.ranks import Job
    from pytest_torchprof.limits.asked import Asked

_MOST_ROWS = 10


def _alone(_analysis: Analysis, _value: object) -> Verdict:
    told = "one rank's recording cannot tell it; judge those of all ranks: torchprof check DIR --ranks"
    return Verdict(measured=coded(told, Code.ONE_RANK), status=NOT_MEASURED)


def _read_same_kernels(value: object) -> bool:
    if value is not True:
        raise UnknownLimit(f"expected True, got {value!r}")
    return True


RANK_LIMITS = (
    Limit(name="max_rank_skew", read=duration_us, check=_alone, on_time=True, located=False),
    Limit(name="same_kernels", read=_read_same_kernels, check=_alone, located=False),
)


def of_jobs(asked: Iterable[Asked]) -> tuple[Asked, ...]:
    """Return those of the limits that are on ranks together."""
    names = {limit.name for limit in RANK_LIMITS}
    return tuple(one for one in asked if one.limit.name in names)


def check_job(job: Job, asked: Iterable[Asked]) -> tuple[Verdict, ...]:
    """Return a verdict for each limit on ranks together."""
    checks: dict[str, Callable[[Job, float], Verdict]] = {"max_rank_skew": _skew, "same_kernels": _same_kernels}
    doubted = next((one for one in job.ranks if one.why_not is not None), None)
    return tuple(
        replace(
            checks[one.limit.name](job, one.value)
            if doubted is None
            else Verdict(measured=f"rank {doubted.rank}: {doubted.why_not}", status=NOT_MEASURED),
            limit=one.limit.name,
            expected=one.shown,
        )
        for one in of_jobs(asked)
    )


def _skew(job: Job, most_us: float) -> Verdict:
    if job.skew_us is None:
        told = coded("the ranks have no collective in common", Code.NO_COMMUNICATION)
        return Verdict(measured=told, status=NOT_MEASURED)
    sure = 0.0 if job.one_clock else job.residue_us
    said = f"{show_us(job.skew_us)}, the median over {counted(len(job.meetings), 'collective')}"
    if not job.one_clock:
        said += f"; clocks aligned to {show_us(job.residue_us)}"
    if job.skew_us - sure > most_us:
        longest = sorted(job.meetings, key=lambda one: -one.skew_us)[:_MOST_ROWS]
        rows = tuple(
            f"{one.name} in step {one.step + 1}: rank {one.latest} {show_us(one.skew_us)} late" for one in longest
        )
        return Verdict(number=job.skew_us, measured=said, status=MISSED, details=rows)
    if job.skew_us + sure > most_us:
        told = coded(f"{said}, which is too rough to tell", Code.NOT_RECORDED)
        return Verdict(measured=told, status=NOT_MEASURED)
    return Verdict(number=job.skew_us, measured=said, status=HOLDS)


def _same_kernels(job: Job, _: float) -> Verdict:
    first, *others = job.ranks
    if any(one.kernels is None for one in job.ranks):
        told = coded("which kernels a rank ran is not known", Code.NOT_RECORDED)
        return Verdict(measured=told, status=NOT_MEASURED)
    lines: list[str] = []
    for one in others:
        found = kernel_differences(first.kernels or (), one.kernels or ())
        lines += [f"rank {one.rank}: {line}" for line in found]
    if lines:
        which = f"{counted(len(lines), 'difference')} from rank {first.rank}"
        return Verdict(number=len(lines), measured=which, status=MISSED, details=tuple(lines[:_MOST_ROWS]))
    return Verdict(number=0, measured=f"the same on {len(job.ranks)} ranks", status=HOLDS)


def worst_of(found: Mapping[int, Sequence[Verdict]]) -> list[Verdict]:
    """Return for each limit the verdict of the rank that it came out worst on; ``found`` has those of each rank."""
    order = {MISSED: 0, NOT_MEASURED: 1, HOLDS: 2}
    ranks = sorted(found)
    told = []
    for of_limit in zip(*(found[rank] for rank in ranks), strict=True):
        worst = min(of_limit, key=lambda verdict: order[verdict.status])
        alike = [rank for rank, verdict in zip(ranks, of_limit, strict=True) if verdict.status == worst.status]
        told.append(replace(worst, measured=f"{worst.measured} {_on_ranks(alike, len(ranks))}"))
    return told


def _on_ranks(alike: Sequence[int], count: int) -> str:
    others = f", and {counted(len(alike) - 1, 'other rank')} alike" if len(alike) > 1 else ""
    return f"(rank {alike[0]} of {count}{others})"


def missing_ranks(job: Job) -> list[Verdict]:
    """Return that nothing is known of the ranks whose recordings are not there, as a verdict; none if all are."""
    if not job.missing:
        return []
    ranks = ", ".join(map(str, job.missing))
    told = coded(f"no recording of rank {ranks}: nothing is known of it", Code.NO_RANK)
    return [Verdict(limit="ranks", expected=str(job.world_size), measured=told, status=NOT_MEASURED)]

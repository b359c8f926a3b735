"""Limits on the ranks of a job together; of one rank's recording alone they cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.rank_kernels import kernel_differences
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import UnknownLimit
from pytest_torchprof.limits.limit import HOLDS, MISSED, NOT_MEASURED, Limit, Verdict
from pytest_torchprof.text import counted, duration_us, printable_line, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.ranks import Job
    from pytest_torchprof.limits.asked import Asked

_MOST_ROWS = 10


def _read_same_kernels(value: object) -> str | None:
    """Return the process group whose ranks are compared with one another, None for all ranks."""
    if value is True:
        return None
    if isinstance(value, str) and value.strip():
        return value
    raise UnknownLimit(f'expected True, or the name or description of a process group such as "tp", got {value!r}')


def _of_job(check: Callable[[Job, Any], Verdict]) -> Callable[[Analysis, Any], Verdict]:
    """Return the check of a limit on all ranks for the analysis of one of them."""

    def check_analysis(analysis: Analysis, value: object) -> Verdict:
        if analysis.in_job is None:
            told = analysis.why_alone or coded(
                "one rank's recording cannot tell it; adopt those of all ranks together (files=), or judge them: "
                "torchprof check DIR --ranks",
                Code.ONE_RANK,
            )
            return Verdict(measured=told, status=NOT_MEASURED)
        return _complete(analysis.in_job.job, check(analysis.in_job.job, value))

    return check_analysis


def _complete(job: Job, verdict: Verdict) -> Verdict:
    """Return the verdict, unless it holds on ranks beside which there are others."""
    return missing_ranks(job)[0] if verdict.status == HOLDS and job.missing else verdict


def of_jobs(asked: Iterable[Asked]) -> tuple[Asked, ...]:
    """Return those of the limits that are on ranks together."""
    return tuple(one for one in asked if one.limit.name in ON_ALL_RANKS)


def check_job(job: Job, asked: Iterable[Asked]) -> tuple[Verdict, ...]:
    """Return a verdict for each limit on ranks together."""
    doubted = next((one for one in job.ranks if one.why_not is not None), None)
    return tuple(
        replace(
            ON_ALL_RANKS[one.limit.name](job, one.value)
            if doubted is None
            else Verdict(measured=f"rank {doubted.rank}: {doubted.why_not}", status=NOT_MEASURED),
            limit=one.limit.name,
            expected=one.shown,
        )
        for one in of_jobs(asked)
    )


def _skew(job: Job, most_us: float) -> Verdict:
    if job.skew_us is None:
        return Verdict(measured=_why_nothing_in_common(job), status=NOT_MEASURED)
    sure = 0.0 if job.one_clock else job.residue_us
    said = f"{show_us(job.skew_us)}, the median over {counted(len(job.collectives), 'collective')}"
    if not job.one_clock:
        said += f"; clocks aligned to {show_us(job.residue_us)}"
    if job.skew_us - sure > most_us:
        longest = sorted(job.collectives, key=lambda one: -one.skew_us)[:_MOST_ROWS]
        rows = tuple(
            f"{one.name} in step {one.step + 1}: rank {one.latest} {show_us(one.skew_us)} late" for one in longest
        )
        return Verdict(number=job.skew_us, measured=said, status=MISSED, details=rows)
    if job.skew_us + sure > most_us:
        told = coded(f"{said}, which is too rough to tell", Code.NOT_RECORDED)
        return Verdict(measured=told, status=NOT_MEASURED)
    return Verdict(number=job.skew_us, measured=said, status=HOLDS)


def _why_nothing_in_common(job: Job) -> str:
    if not job.not_joined:
        return coded("the ranks have no collective in common", Code.NO_COMMUNICATION)
    why = "; ".join(f"{counted(number, 'collective')}: {reason}" for reason, number in job.not_joined.items())
    return coded(f"no collective is held against those of other ranks; {why}", Code.NOT_RECORDED)


def _same_kernels(job: Job, group: str | None) -> Verdict:
    groups = [tuple(one.rank for one in job.ranks)] if group is None else job.groups_called(group)
    if not any(len(ranks) > 1 for ranks in groups):
        known = ", ".join(job.group_names) or "none with a name"
        told = f'no process group "{printable_line(str(group))}" has two ranks among the recordings; there are: {known}'
        return Verdict(measured=coded(told, Code.NOT_IN_RECORDING), status=NOT_MEASURED)
    compared = [rank for ranks in groups for rank in ranks]
    if any(job[rank].kernels is None for rank in compared):
        told = coded("which kernels a rank ran is not known", Code.NOT_RECORDED)
        return Verdict(measured=told, status=NOT_MEASURED)
    lines = [
        f"rank {rank} against rank {first}: {line}"
        for first, *others in groups
        for rank in others
        for line in kernel_differences(job[first].kernels or (), job[rank].kernels or ())
    ]
    if lines:
        which = f"{counted(len(lines), 'difference')} between ranks"
        return Verdict(number=len(lines), measured=which, status=MISSED, details=tuple(lines[:_MOST_ROWS]))
    within = f" within each of {counted(len(groups), 'group')}" if group is not None else ""
    return Verdict(number=0, measured=f"the same on {len(set(compared))} ranks{within}", status=HOLDS)


ON_ALL_RANKS: dict[str, Callable[[Job, Any], Verdict]] = {"max_rank_skew": _skew, "same_kernels": _same_kernels}
RANK_LIMITS = (
    Limit(name="max_rank_skew", read=duration_us, check=_of_job(_skew), on_time=True, located=False, families=()),
    Limit(name="same_kernels", read=_read_same_kernels, check=_of_job(_same_kernels), located=False, families=()),
)


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
    told = coded(why_incomplete(job.missing), Code.NO_RANK)
    return [Verdict(limit="ranks", expected=str(job.world_size), measured=told, status=NOT_MEASURED)]


def why_incomplete(missing: Iterable[int]) -> str:
    """Return which ranks have no recording."""
    return f"no recording of rank {', '.join(map(str, missing))}: nothing is known of it"

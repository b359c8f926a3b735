"""The ranks of a job side by side: each rank's work, who waited for whom, and the step with the longest waits."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_torchprof.analysis.analysis import Analysis
from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import named_part
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.recording.reader import read
from pytest_torchprof.report.page.tables import as_table
from pytest_torchprof.report.ranks_report import (
    COLLECTIVES,
    comparing,
    heading_lines,
    headline_lines,
    rank_columns,
    rows_of,
)
from pytest_torchprof.report.row_columns import Among, page_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.ranks import Job, JoinedCollective, RankPart
    from pytest_torchprof.report.row_columns import RowColumn

_MOST_DRAWN: Final = 400
"""How many collectives of a step, the longest ones, are drawn with each rank's part."""
_SHOWN: Final = ("code", "title", "message", "remedy", "severity", "saves_us")
_RANK_IN_NAME: Final = re.compile(r"\.rank\d+of\d+(?=\.json)")


class RankOnPage(NamedTuple):
    """The part of a rank's recording that is kept, and its position on the page."""

    part: RankPart
    number: int | None
    """Which of the page's measurements it is; None if it only stands beside one of them."""


class JobOnPage(NamedTuple):
    """The ranks of a job, as the page shows them."""

    numbers: tuple[int, ...]
    """The measurements of the page that are of its ranks."""
    facts: dict[str, Any]
    job: Job | None
    """The ranks together; None where they cannot be joined."""

    def is_all_of(self, count: int) -> bool:
        """Whether a page with so many measurements is of this job alone, and of more than one of its ranks."""
        return self.job is not None and 1 < len(self.numbers) == count


def parts_beside(analysis: Analysis) -> tuple[RankPart, ...]:
    """Return the parts kept of the other ranks' recordings that a run left beside this one, if they can be read."""
    path = Path(analysis.trace.path or "")
    own = _RANK_IN_NAME.search(path.name)
    if own is None:
        return ()
    begin, end = path.name[: own.start()], path.name[own.end() :]
    others = (
        other
        for other in sorted(path.parent.iterdir())
        if other.name != path.name
        and (rank := _RANK_IN_NAME.search(other.name)) is not None
        # The same name but for the rank.
        and (other.name[: rank.start()], other.name[rank.end() :]) == (begin, end)
    )
    return tuple(part for other in others if (part := _part_in(other)) is not None)


def _part_in(path: Path) -> RankPart | None:
    try:
        return named_part(Analysis(read(path)))
    except TorchprofError:
        return None


def jobs_among(ranks: Iterable[RankOnPage]) -> list[JobOnPage]:
    """Return the jobs with several ranks on the page."""
    return [job for group in _groups(ranks) if (job := _job(group)) is not None]


def _groups(ranks: Iterable[RankOnPage]) -> Iterator[list[RankOnPage]]:
    """Yield the ranks of each run; if a rank is there twice, the ranks of each folder."""
    by_run: defaultdict[object, list[RankOnPage]] = defaultdict(list)
    for rank in ranks:
        if rank.part.world_size > 1:
            by_run[rank.part.test, rank.part.world_size, rank.part.run_id].append(rank)
    for group in by_run.values():
        if not _is_repeated(group):
            yield group
            continue
        by_folder: defaultdict[Path, list[RankOnPage]] = defaultdict(list)
        for rank in group:
            by_folder[Path(rank.part.path).parent].append(rank)
        # Recordings of one rank of many runs tell nothing of any run.
        yield from (members for members in by_folder.values() if not _is_repeated(members))


def _is_repeated(group: Sequence[RankOnPage]) -> bool:
    return max(Counter(rank.part.rank for rank in group).values()) > 1


def _job(group: Sequence[RankOnPage]) -> JobOnPage | None:
    if len(group) < 2:
        return None
    numbers = tuple(rank.number for rank in group if rank.number is not None)
    try:
        job = joined(rank.part for rank in group)
    except TorchprofError as problem:
        return JobOnPage(numbers, {"why_not": str(problem)}, None)
    return JobOnPage(numbers, _facts(job, {rank.part.rank: rank.number for rank in group}), job)


def _facts(job: Job, number_of: dict[int, int | None]) -> dict[str, Any]:
    ranks = [{**row, "number": number_of[row["rank"]]} for row in _rows(rank_columns(job), job.ranks)]
    collectives, findings = _rows(COLLECTIVES, rows_of(job)), find_in_job(job)
    return {
        "headline": list(headline_lines(job, findings)),
        "lines": list(heading_lines(job)),
        "ranks": as_table(rank_columns(job), ranks),
        "collectives": as_table(COLLECTIVES, collectives) if collectives else None,
        "findings": [
            {
                **{name: getattr(finding, name) for name in _SHOWN},
                **({"command": command} if (command := comparing(job, finding)) else {}),
            }
            for finding in findings
        ],
        "drawn": _drawing(job),
    }


def _rows(columns: Iterable[RowColumn], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows; what may be larger or smaller than it is has what stands before it beside it."""
    shown = page_columns(columns, Among())
    return [dict(cell for column in shown for cell in _cells(column, row)) for row in rows]


def _cells(column: RowColumn, row: Any) -> Iterator[tuple[str, Any]]:
    bound, value = column.bounded(row, Among())
    yield column.key, value
    if column.bound is not None:
        yield f"{column.key}_bound", bound or None


def _drawing(job: Job) -> dict[str, Any] | None:
    """Return the step in which ranks waited longest: of each collective, by rank, start, waiting and transfer in us."""
    by_step: defaultdict[int, list[JoinedCollective]] = defaultdict(list)
    for collective in job.collectives:
        by_step[collective.step].append(collective)
    if not by_step or job.differences:
        return None
    step = max(by_step, key=lambda candidate: (_waiting_us(by_step[candidate]), -candidate))
    collectives = sorted(by_step[step], key=lambda collective: -max(collective.durations_ns.values()))[:_MOST_DRAWN]
    names = sorted({collective.name for collective in collectives})
    begin = min(min(collective.starts_ns.values()) for collective in collectives)
    lanes: dict[int, list[tuple[float, float, float, int]]] = {part.rank: [] for part in job.ranks}
    for collective in sorted(collectives, key=lambda member: min(member.starts_ns.values())):
        for rank, start in collective.starts_ns.items():
            wait_us = collective.wait_us(rank)
            transfer_us = max(collective.durations_ns[rank] / 1000 - wait_us, 0.0)
            at_us = (start - begin) / 1000
            lanes[rank].append((at_us, wait_us, transfer_us, names.index(collective.name)))
    return {
        "step": step if any(len(part.steps) > 1 for part in job.ranks) else None,
        "names": names,
        "waiting_us": _waiting_us(by_step[step]),
        "total_us": max(sum(piece[:3]) for lane in lanes.values() for piece in lane),
        "lanes": [[rank, lane] for rank, lane in lanes.items()],
        "more": len(by_step[step]) - len(collectives),
    }


def _waiting_us(collectives: Iterable[JoinedCollective]) -> float:
    return sum(collective.wait_us(rank) for collective in collectives for rank in collective.starts_ns)

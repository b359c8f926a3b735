"""The ranks of a job side by side: each rank's work, who waited for whom, and the step with the longest waits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.report.page.findings import finding_on_page
from pytest_torchprof.report.page.tables import ColumnOnPage, as_table, columns_on_page
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
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.ranks import Job, JoinedCollective
    from pytest_torchprof.report.page.findings import FindingOnPage
    from pytest_torchprof.report.page.tables import Cells, Table
    from pytest_torchprof.report.row_columns import RowColumn

_MOST_DRAWN: Final = 400
"""How many collectives of a step, the longest ones, are drawn with each rank's part."""


class PieceOfLane(NamedTuple):
    """A rank's part of a collective, since the first one of the step began."""

    at_us: float
    wait_us: float
    transfer_us: float
    name: int
    """Which of the names is the collective's."""


class StepDrawn(Struct, frozen=True, kw_only=True):
    """The step in which ranks waited longest: its longest collectives, by rank."""

    step: int | None
    """None where there is only one."""
    names: Sequence[str]
    waiting_us: float
    total_us: float
    lanes: Sequence[tuple[int, Sequence[PieceOfLane]]]
    more: int
    """How many collectives are left out."""


class RanksTogether(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the recordings of a job's ranks show together."""

    headline: Sequence[str]
    lines: Sequence[str]
    ranks: Table
    collectives: Table | None
    findings: Sequence[FindingOnPage]
    drawn: StepDrawn | None
    above: bool = False
    """Whether the headline stands above the list of measurements."""


def ranks_together(job: Job, number_of: Mapping[int, int | None]) -> RanksTogether:
    """Return the facts that a job's ranks show together; ``number_of``: the measurement of the page by rank."""
    columns, findings, collectives = rank_columns(job), find_in_job(job), rows_of(job)
    ranks = [[*_cells(columns, part), number_of[part.rank]] for part in job.ranks]
    return RanksTogether(
        headline=[*headline_lines(job, findings)],
        lines=[*heading_lines(job)],
        ranks=as_table([*_heads(columns), ColumnOnPage(key="number")], ranks),
        collectives=as_table(_heads(COLLECTIVES), [_cells(COLLECTIVES, row) for row in collectives])
        if collectives
        else None,
        findings=[finding_on_page(finding, command=comparing(job, finding)) for finding in findings],
        drawn=_drawing(job),
    )


def _heads(columns: Iterable[RowColumn]) -> list[ColumnOnPage]:
    """Return the columns; what may be larger or smaller than it is has one beside it, of what stands before it."""
    heads = []
    for column in page_columns(columns, Among()):
        heads += columns_on_page([column])
        if column.bound is not None:
            heads.append(ColumnOnPage(key=f"{column.key}_bound"))
    return heads


def _cells(columns: Iterable[RowColumn], row: Any) -> Cells:
    cells: list[Any] = []
    for column in page_columns(columns, Among()):
        bound, value = column.bounded(row, Among())
        cells += [value] if column.bound is None else [value, bound or None]
    return cells


def _drawing(job: Job) -> StepDrawn | None:
    """Return the step in which ranks waited longest; None if there are no collectives, or ranks do not do the same."""
    by_step: defaultdict[int, list[JoinedCollective]] = defaultdict(list)
    for collective in job.collectives:
        by_step[collective.step].append(collective)
    if not by_step or job.differences:
        return None
    step = max(by_step, key=lambda candidate: (_waiting_us(by_step[candidate]), -candidate))
    collectives = sorted(by_step[step], key=lambda collective: -max(collective.durations_ns.values()))[:_MOST_DRAWN]
    names = sorted({collective.name for collective in collectives})
    begin = min(min(collective.starts_ns.values()) for collective in collectives)
    lanes: dict[int, list[PieceOfLane]] = {part.rank: [] for part in job.ranks}
    for collective in sorted(collectives, key=lambda member: min(member.starts_ns.values())):
        for rank, start in collective.starts_ns.items():
            wait_us = collective.wait_us(rank)
            transfer_us = max(collective.durations_ns[rank] / 1000 - wait_us, 0.0)
            at_us = (start - begin) / 1000
            lanes[rank].append(PieceOfLane(at_us, wait_us, transfer_us, names.index(collective.name)))
    return StepDrawn(
        step=step if any(len(part.steps) > 1 for part in job.ranks) else None,
        names=names,
        waiting_us=_waiting_us(by_step[step]),
        total_us=max(sum(piece[:3]) for lane in lanes.values() for piece in lane),
        lanes=[*lanes.items()],
        more=len(by_step[step]) - len(collectives),
    )


def _waiting_us(collectives: Iterable[JoinedCollective]) -> float:
    return sum(collective.wait_us(rank) for collective in collectives for rank in collective.starts_ns)

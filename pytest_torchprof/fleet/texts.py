"""A run on a terminal: how far it is, and what all of its records say."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.fleet.rows import GPU, RULE, TORCH
from pytest_torchprof.text import and_more, counted, first_of, printable, printable_line
from pytest_torchprof.text.cutting import cut_inside
from pytest_torchprof.text.tables import Column, headed, table_lines
from pytest_torchprof.text.units import show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_torchprof.fleet.jobs import JobsSummary
    from pytest_torchprof.fleet.report import DividedGroup, FleetReport, GroupRow, NotJudged, WorstFile
    from pytest_torchprof.fleet.status import FleetStatus
    from pytest_torchprof.fleet.summary import FleetSummary

LONGEST: Final = 500
"""The most characters of a line that holds what others have written."""
_TITLES: Final = {GPU: "GPU", TORCH: "torch"}
_NOT_KNOWN: Final = "not known"
_UNKNOWN: Final = {RULE: "no rule"}
"""What stands for a value that a file does not have; of all others it is not known."""


def census_lines(summary: FleetSummary, left: int = 0) -> list[str]:
    """Return the outcome of the files, in numbers that add up; ``left``: how many of them have no record yet."""
    listed = (
        f"{counted(summary.listed, 'file')} listed: {summary.judged:,} judged, {summary.not_measured:,} not measured, "
        f"{summary.quarantined:,} quarantined{f', {left:,} left' if left else ''}"
    )
    judged = (
        f"{summary.judged:,} judged: {summary.hold:,} hold, {summary.missed:,} missed, {summary.without_limits:,} "
        "without limits"
    )
    return [listed, judged]


def jobs_line(jobs: JobsSummary) -> str:
    """Return the outcome of the jobs, in numbers that add up."""
    return (
        f"{counted(jobs.listed, 'job')} of several ranks: {jobs.hold:,} hold, {jobs.missed:,} missed, "
        f"{jobs.not_measured:,} not measured, {jobs.without_limits:,} without limits on all ranks"
    )


def left_line(left: int, of: int) -> str:
    """Return that files have no record yet, and what to do."""
    return f"without a record so far: {left:,} of {counted(of, 'file')}; torchprof fleet run judges them"


def divided_line(group: DividedGroup) -> str:
    """Return which group has no kernels that most of its files launch, and how many different ones it has."""
    parts = [
        f"model {_known(group.model)}",
        f"GPU {_known(group.gpu)}",
        f"torch {_known(group.torch)}",
        *([] if group.rule is None else [f"rule {printable_line(group.rule)}"]),
        *([] if group.rank is None else [f"rank {group.rank}"]),
    ]
    return f"{', '.join(parts)}: {counted(group.files, 'file')}, {counted(group.structures, 'structure')}"


def _known(value: str | None) -> str:
    return _NOT_KNOWN if value is None else printable_line(value)


def status_lines(status: FleetStatus, width: int) -> Iterator[str]:
    """Yield how far a run is, and each of its shards."""
    files = status.files
    yield from wrapped(
        f"{counted(files.listed, 'file')} listed: {files.judged:,} judged, {files.not_measured:,} not measured, "
        f"{files.quarantined:,} quarantined, {files.left:,} left",
        "  ",
        width=width,
    )
    yield f"{files.judged:,} judged: {files.missed:,} missed a limit"
    if status.jobs.listed:
        yield from wrapped(jobs_line(status.jobs), "  ", width=width)
    if status.shards:
        yield ""
        yield from table_lines(status.shards, _SHARD_COLUMNS, width)


_SHARD_COLUMNS: Final = (
    Column("shard", lambda row: f"{row.shard} of {row.among}", "left"),
    Column("listed", lambda row: f"{row.listed:,}", leaves=1),
    Column("judged", lambda row: f"{row.judged:,}", leaves=3),
    Column("missed", lambda row: f"{row.missed:,}", leaves=2),
    Column("not\nmeasured", lambda row: f"{row.not_measured:,}", leaves=4),
    Column("quarantined", lambda row: f"{row.quarantined:,}", leaves=5),
    Column("left", lambda row: f"{row.left:,}"),
)


def report_lines(report: FleetReport, top: int, width: int) -> Iterator[str]:
    """Yield the report on all records, with ``top`` rows of each table."""
    head = census_lines(report.summary, report.left)
    if report.left:
        head.append(left_line(report.left, report.summary.listed))
    yield from chain.from_iterable(wrapped(line, "  ", width=width) for line in head)
    for key, rows in report.groups.items():
        heading = f"by {_TITLES.get(key, printable(key))}: {counted(len(rows), 'group')}"
        yield from _table(rows, _group_columns(key), heading, top, width)
    if report.findings:
        yield from _table(report.findings, _FINDING_COLUMNS, "findings: what they could save at most", top, width)
    if report.summary.limits_missed:
        limits = sorted(report.summary.limits_missed.items(), key=lambda row: (-row[1], row[0]))
        yield from _table(limits, _LIMIT_COLUMNS, "limits missed", top, width)
    yield from _others(report, top, width)
    if report.worst:
        yield from _heading("the worst: those that miss most limits, then those where most time could be saved", width)
        yield from chain.from_iterable(_worst(file, width) for file in report.worst[:top])
    if report.jobs:
        yield from _table(report.jobs, _JOB_COLUMNS, f"jobs of several ranks: {len(report.jobs):,}", top, width)
    if report.not_judged:
        yield from _heading(f"not judged: {len(report.not_judged):,}", width)
        yield from chain.from_iterable(_not_judged(file, width) for file in report.not_judged[:top])
        yield from _more(len(report.not_judged), top)


def _table(rows: Sequence[object], columns: Sequence[Column], heading: str, top: int, width: int) -> Iterator[str]:
    yield ""
    yield headed(rows[:top], columns, heading, more=len(rows) - top, width=width)


def _group_columns(key: str) -> list[Column]:
    title = _TITLES.get(key, printable_line(key))
    unknown = _UNKNOWN.get(key, _NOT_KNOWN)
    return [
        Column(title, lambda row: unknown if row.value is None else printable_line(row.value), "left"),
        Column("files", lambda row: f"{row.listed:,}"),
        Column("hold", lambda row: f"{row.hold:,}", leaves=6),
        Column("missed", lambda row: f"{row.missed:,}"),
        Column("without\nlimits", lambda row: f"{row.without_limits:,}", leaves=4),
        Column("not\njudged", lambda row: f"{row.not_measured + row.quarantined:,}"),
        *(
            Column(f"{BY_NAME[number].title}\n{_QUANTILES[quantile]}", _quantile(number, quantile), leaves=leaves)
            for number, quantile, leaves in _SHOWN
        ),
        Column("most frequent\nfinding", _most_frequent, "left", leaves=1),
    ]


_QUANTILES: Final = {"median": "median", "p90": "90 %"}
_SHOWN: Final = (
    ("gpu_busy_us", "median", 7),
    ("gpu_busy_us", "p90", 3),
    ("kernels", "median", 5),
    ("gpu_utilization", "median", 2),
)
"""Which quantiles stand in tables, and which of them leave a narrow screen first."""


def _quantile(number: str, quantile: str) -> Callable[[GroupRow], str]:
    def show(row: GroupRow) -> str:
        known = row.numbers.get(number)
        return BY_NAME[number].show(None if known is None else getattr(known, quantile))

    return show


def _most_frequent(row: GroupRow) -> str:
    return next((f"{code} ({count:,})" for code, count in row.findings.items()), "-")


_FINDING_COLUMNS: Final = (
    Column("finding", lambda row: row.code, "left"),
    Column("files", lambda row: f"{row.files:,}"),
    Column("median", lambda row: _saved(row.saves_us.median), leaves=2),
    Column("90 %", lambda row: _saved(row.saves_us.p90), leaves=1),
    Column("most", lambda row: _saved(row.saves_us.highest)),
    Column("in", lambda row: cut_inside(printable(row.worst), _MOST_OF_NAME), "left", leaves=3),
)


def _saved(us: float) -> str:
    return show_us(us) if us else "-"


_LIMIT_COLUMNS: Final = (
    Column("limit", lambda row: printable_line(row[0]), "left"),
    Column("files", lambda row: f"{row[1]:,}"),
)
_JOB_COLUMNS: Final = (
    Column("job", lambda row: printable(row.name), "left"),
    Column("outcome", lambda row: row.outcome, "left"),
    Column("ranks", lambda row: f"{row.ranks:,}", leaves=3),
    Column("missing", lambda row: first_of(list(map(str, row.missing)), 3) or "-", "left"),
    Column("late\nrank", lambda row: "-" if row.late is None else str(row.late), leaves=4),
    Column("skew", lambda row: show_us(row.skew_us), leaves=2),
    Column("limits missed", lambda row: printable_line(", ".join(row.limits_missed), 60) or "-", "left", leaves=1),
)
_MOST_OF_NAME: Final = 60


def _others(report: FleetReport, top: int, width: int) -> Iterator[str]:
    others = report.other_structures
    if report.divided:
        heading = "groups in which no more than half of the files launch the same kernels in the same order"
        yield from _heading(f"{heading}: {len(report.divided):,}", width)
    for group in report.divided[:top]:
        yield from wrapped(divided_line(group), " " * 4, first="  ", width=width)
    yield from _more(len(report.divided), top)
    if others:
        heading = "other kernels, or in another order, than most files of the same model, GPU and torch"
        yield from _heading(f"{heading}: {len(others):,}", width)
    for other in others[:top]:
        yield f"  {printable_line(other.name, LONGEST)}"
        yield from wrapped(
            f"{other.majority:,} of {other.group:,} are like {other.of_majority}", " " * 6, first=" " * 4, width=width
        )
        yield f"    {printable_line(other.command, LONGEST)}"
    yield from _more(len(others), top)


def _heading(words: str, width: int) -> Iterator[str]:
    yield ""
    yield from wrapped(words, "  ", width=width)


def _worst(file: WorstFile, width: int) -> Iterator[str]:
    yield f"  {printable_line(file.name, LONGEST)}"
    why = [f"missed {', '.join(file.limits_missed)}"] if file.limits_missed else []
    why += [f"{file.finding}, up to {show_us(file.saves_us)}"] if file.finding is not None else []
    yield from wrapped(printable("; ".join(why)), " " * 6, first=" " * 4, width=width)
    yield f"    {printable_line(file.command, LONGEST)}"


def _not_judged(file: NotJudged, width: int) -> Iterator[str]:
    yield f"  {printable_line(file.name, LONGEST)}"
    kind = "quarantined" if file.quarantined else "not measured"
    yield from wrapped(printable(f"{kind}: {file.why}"), " " * 6, first=" " * 4, width=width)


def _more(count: int, top: int) -> Iterator[str]:
    if count > top:
        yield f"  ...{and_more(count - top)} (--top {count})"

"""The ranks of a job together, as text, and the columns of their tables, for ``torchprof analyze DIR --ranks``."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pytest_torchprof.analysis.ranks import Kind, wait_share
from pytest_torchprof.findings.catalogue.ranks import OtherWorkOnRank, Straggler
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.decoding import from_stored
from pytest_torchprof.report.findings_text import FIRST_FINDINGS, first_findings, in_the_list, next_text
from pytest_torchprof.report.row_columns import Among, RowColumn, terminal_columns
from pytest_torchprof.text import counted, first_of, path_from_here, printable
from pytest_torchprof.text.tables import headed
from pytest_torchprof.text.units import show_share, show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.ranks import Job, JoinedCollective, RankPart
    from pytest_torchprof.findings import Finding


class JoinedRow(NamedTuple):
    """The collectives of one kind and size of message."""

    name: str
    message_bytes: int | None
    calls: int
    transfer_us: float
    wait_share: float | None
    skew_us: float
    """The median."""
    last: str
    """The rank that most often came last, and how often."""
    kind: Kind
    bus_gb_per_s: float | None
    """The median."""
    is_of_all: bool
    """Whether the recordings of all ranks are there; if not, more of it may be waiting."""


def rows_of(job: Job) -> list[JoinedRow]:
    """Return the collectives that ranks had in common in rows, the longest time first."""
    by_size: dict[tuple[str, int | None], list[JoinedCollective]] = defaultdict(list)
    for collective in job.collectives:
        by_size[collective.name, collective.message_bytes].append(collective)
    rows = [_row(job, name, size, members) for (name, size), members in by_size.items()]
    spent = {
        row: sum(sum(member.durations_ns.values()) for member in by_size[row.name, row.message_bytes]) for row in rows
    }
    return sorted(rows, key=lambda row: -spent[row])


def _row(job: Job, name: str, size: int | None, members: Sequence[JoinedCollective]) -> JoinedRow:
    (last, times), *_ = Counter(member.latest for member in members).most_common(1)
    speeds = [member.bus_gb_per_s for member in members if member.bus_gb_per_s is not None]
    return JoinedRow(
        name=name,
        message_bytes=size,
        calls=len(members),
        transfer_us=sum(member.transfer_us for member in members),
        wait_share=wait_share(members),
        skew_us=median([member.skew_us for member in members]),
        last=f"{last} ({times} of {len(members)})" if any(member.skew_us for member in members) else "-",
        kind=job.kind_of(members),
        bus_gb_per_s=median(speeds) if speeds else None,
        is_of_all=job.has_all(members),
    )


def named_ranks(job: Job) -> list[int]:
    """Return the ranks, a few at most, that the findings about all ranks together name, in their order."""
    named = (getattr(finding, "rank", None) for finding in find_in_job(job))
    return [*dict.fromkeys(rank for rank in named if rank is not None)][:FIRST_FINDINGS]


def text(job: Job, own: Mapping[int, Finding], *, folder: str, width: int, top: int = 20) -> str:
    """Return the job whose recordings are in a folder as text, ending in a line break.

    ``own``: by rank, what stands out in its own recording.
    """
    rows, findings = rows_of(job), find_in_job(job)
    parts = [
        _summary(job, findings, own, width),
        "\n".join(line for text in _recorded_lines(job) for line in wrapped(text, "  ", width=width)),
        headed(job.ranks, terminal_columns(rank_columns(job), job.ranks, Among()), "ranks", width=width),
    ]
    if rows:
        shown = rows[:top]
        columns = terminal_columns(COLLECTIVES, shown, Among())
        heading = "collectives of all ranks together"
        parts.append(headed(shown, columns, heading, more=len(rows) - len(shown), width=width))
    lines = []
    for finding in findings:
        lines += wrapped(f"{finding.title}: {printable(finding.message)}", "  ", first="- ", width=width)
        lines += wrapped(printable(finding.remedy), "    ", first="  -> ", width=width)
    parts.append("\n".join(["what stands out", *lines]) if lines else "nothing stands out")
    parts.append(_next_actions(job, findings, folder, width))
    return "\n\n".join(parts) + "\n"


def _summary(job: Job, findings: Sequence[Finding], own: Mapping[int, Finding], width: int) -> str:
    """Return the headline of the job, and what stands out, in all ranks together and in those that this names."""
    lines = [line for text in headline_lines(job, findings) for line in wrapped(text, "  ", width=width)]
    alone = (f"Rank {rank} by itself: {in_the_list(finding)}" for rank, finding in own.items())
    by_themselves = [line for text in alone for line in wrapped(printable(text), "  ", width=width)]
    return "\n".join([*lines, *first_findings(findings, len(findings), width), *by_themselves])


def headline_lines(job: Job, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the headline of a job with these findings: known facts first, uncertain ones last."""
    yield from (f"Not measured: rank {rank}: {why}" for rank, why in _unmeasured(job).items())
    yield from (finding.headline for finding in findings if isinstance(finding, Straggler))
    for line in [*_wait_lines(job)] or ["the ranks had no collective in common"]:
        yield f"{line[0].upper()}{line[1:]}"


def _next_actions(job: Job, findings: Sequence[Finding], folder: str, width: int) -> str:
    """Return the next actions: about the first finding, to see it, and to keep it from coming back."""
    place = printable(shlex.quote(path_from_here(folder)))
    reasons = [from_stored(rank.why_not) for rank in job.ranks if rank.why_not is not None]
    codes = dict.fromkeys(reason.code or Code.NOT_MEASURED for reason in reasons if reason is not None)
    lines = [f"torchprof explain {code} says more" for code in codes]
    lines += [f"{finding.title}: {finding.remedy}" for finding in findings[:1]]
    lines += [f"compare them: {command}" for finding in findings[:1] if (command := comparing(job, finding))]
    lines.append(f"see it: torchprof report {place} -o page.html")
    lines += [
        f"keep it from coming back: torchprof check NEW-FOLDER --ranks --limit forbid={finding.code}"
        for finding in findings[:1]
        if isinstance(finding, Straggler)
    ]
    return next_text(lines, width)


def comparing(job: Job, finding: Finding) -> str:
    """Return the command that compares a rank that does not do as the others with one that does; else an empty text."""
    if not isinstance(finding, Straggler | OtherWorkOnRank):
        return ""
    waiting = {part.rank: job.matched_wait_us(part.rank) or 0.0 for part in job.ranks if part.rank != finding.rank}
    known = finding.against if isinstance(finding, OtherWorkOnRank) else None
    other = max(waiting, key=lambda rank: waiting[rank]) if known is None else known
    files = (shlex.quote(path_from_here(job[rank].path)) for rank in (other, finding.rank))
    return f"torchprof diff {' '.join(files)}"


def heading_lines(job: Job) -> Iterator[str]:
    """Yield the job's recorded ranks, the clock by which it is compared, and the causes of its time in collectives."""
    yield from _recorded_lines(job)
    yield from (f"rank {rank} is NOT MEASURED: {why}" for rank, why in _unmeasured(job).items())
    yield from _wait_lines(job)


def _unmeasured(job: Job) -> dict[int, str]:
    """Return by rank why it is not measured."""
    return {rank.rank: printable(str(from_stored(rank.why_not))) for rank in job.ranks if rank.why_not is not None}


def _recorded_lines(job: Job) -> Iterator[str]:
    there = len(job.ranks)
    yield f"a job of {counted(job.world_size, 'rank')}, {counted(there, 'recording')}"
    if job.missing:
        shown = first_of([*map(str, job.missing)])
        yield f"no recording of {'rank' if len(job.missing) == 1 else 'ranks'} {shown}: what they did is not known"
    if job.one_clock:
        yield f"all on {printable(job.ranks[0].host or 'one host')}: starts are compared by its clock"
    elif job.collectives:
        aligned = f"clocks are aligned by the ends of collectives, to {show_us(job.residue_us)}"
        yield f"hosts differ, or are not recorded: {aligned}"


def _show_kind(kind: Kind) -> str:
    """Return the kind as a person reads it: what is mixed is named."""
    return "mixed (waiting, transfer)" if kind == "mixed" else kind


def _wait_lines(job: Job) -> Iterator[str]:
    share = job.wait_share
    if share is not None:
        least, later = ("", "") if job.has_all(job.collectives) else ("at least ", "; others may have come later still")
        of_all = f"{least}{show_share(share)} of the time in {counted(len(job.collectives), 'collective')}"
        # A number is known, whether it is of one kind or of another.
        waiting = f"{of_all} is waiting{later}"
        if job.waits_at_least is not None:
            yield waiting
        elif job.kind == "inconclusive":
            yield f"{waiting} ({_show_kind(job.kind)})"
        else:
            yield f"{_show_kind(job.kind)}: {waiting}"
    if job.why_unsure is not None:
        yield f"how long ranks wait is not known: {printable(job.why_unsure.text)}"
    for why, count in job.not_joined.items():
        yield f"{counted(count, 'collective')} not compared with those of other ranks: {why}"


def rank_columns(job: Job) -> tuple[RowColumn, ...]:
    """Return the columns of the job's ranks."""
    return (
        RowColumn(key="rank", unit="count", title="rank", page="rank"),
        RowColumn(key="path"),
        RowColumn(key="host", title="host", leaves=1, page="host"),
        RowColumn(key="device", title="device", leaves=2, page="device"),
        RowColumn(key="why_not", of=lambda rank, _: rank.why_not and str(from_stored(rank.why_not))),
        RowColumn(key="steps", unit="count", of=lambda rank, _: len(rank.steps), title="steps", leaves=3, page="steps"),
        RowColumn(
            key="collectives",
            unit="count",
            of=lambda rank, _: len(rank.collectives),
            title="collectives",
            leaves=4,
            page="collectives",
        ),
        RowColumn(
            key="communication_us",
            unit="us",
            of=lambda rank, _: sum(step.time_us for step in rank.steps),
            title="communication",
            leaves=6,
            page="communication",
        ),
        RowColumn(key="exposed_us", unit="us", of=lambda rank, _: sum(step.exposed_us for step in rank.steps)),
        RowColumn(key="overlap", unit="share", title="overlap", leaves=7, page="overlap"),
        RowColumn(key="matched"),
        RowColumn(key="unmatched", unit="count", of=lambda rank, _: len(rank.unmatched)),
        RowColumn(key="wait_us", unit="us", of=lambda rank, _: job.wait_us(rank.rank)),
        RowColumn(
            key="matched_wait_us",
            unit="us",
            of=lambda rank, _: job.matched_wait_us(rank.rank),
            title="waits",
            page="waits",
            bound=lambda rank, _: ">=" if rank.unmatched else "",
        ),
        RowColumn(
            key="caused_us",
            unit="us",
            of=lambda rank, _: _caused_us(job, rank) if job.is_matched else None,
            title="keeps waiting",
            page="keeps waiting",
            bound=lambda *_: "" if job.is_matched else ">=",
        ),
    )


def _caused_us(job: Job, rank: RankPart) -> float | None:
    return job.caused_us[rank.rank] if rank.matched else None


COLLECTIVES: Final = (
    RowColumn(key="name", title="collective", page="collective"),
    RowColumn(key="message_bytes", unit="bytes", title="message", leaves=4, page="message"),
    RowColumn(key="calls", unit="count", title="calls", page="calls"),
    RowColumn(
        key="transfer_us",
        unit="us",
        title="transfer",
        # If ranks are missing, more of it may be waiting.
        bound=lambda row, _: "" if row.is_of_all else "<=",
        leaves=6,
        page="transfer",
    ),
    RowColumn(
        key="wait_share",
        unit="share",
        title="waiting",
        bound=lambda row, _: "" if row.is_of_all else ">=",
        page="waiting",
    ),
    RowColumn(key="skew_us", unit="us", title="skew", leaves=5, page="skew"),
    RowColumn(key="bus_gb_per_s", unit="rate", title="bus GB/s", leaves=3, page="bus GB/s"),
    RowColumn(key="last", title="last", leaves=2, page="last"),
    RowColumn(key="kind", of=lambda row, _: _show_kind(row.kind), title="kind", leaves=1, page="kind"),
)
"""The columns of the collectives that ranks had in common."""


_COMPARED: dict[str, Callable[[Any], str]] = {
    "skew_us": show_us,
    "wait_share": show_share,
    "kind": _show_kind,
    "straggler": lambda rank: f"rank {rank}",
}


class JobsDifference(Struct, frozen=True, kw_only=True):
    """What the ranks of two jobs came to together, of each job; nothing where clocks were locked."""

    skew_us: tuple[float | None, float | None] = (None, None)
    wait_share: tuple[float | None, float | None] = (None, None)
    kind: tuple[Kind | None, Kind | None] = (None, None)
    straggler: tuple[int | None, int | None] = (None, None)
    """The rank that keeps the others waiting."""


def differences(before: Job, after: Job) -> tuple[JobsDifference, list[str]]:
    """Return how the ranks of two jobs differ, as pairs of values and as lines."""
    if any(rank.samples_hardware for job in (before, after) for rank in job.ranks):
        return JobsDifference(), [
            "times are not compared: the GPU's units were sampled (PM sampling), at locked clocks"
        ]
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in _COMPARED}
    lines = [
        f"{name.removesuffix('_us').replace('_', ' ')}: "
        + " -> ".join("none" if value is None else show(value) for value in pairs[name])
        for name, show in _COMPARED.items()
    ]
    return JobsDifference(**pairs), lines

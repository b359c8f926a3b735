"""What the records of a run tell together: groups with their quantiles, files unlike their group, the worst ones."""

from __future__ import annotations

import heapq
import shlex
from array import array
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.fleet.folder import FleetSummary, FleetTally, judged
from pytest_torchprof.fleet.jobs import GatheredJobs, JobsSummary
from pytest_torchprof.fleet.names import MODEL, model_of, names_of
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.fleet.folder import FrozenList, Records
    from pytest_torchprof.fleet.jobs import JobRecord
    from pytest_torchprof.fleet.judging import FileRecord
    from pytest_torchprof.report.result import Result

SCHEMA: Final = 1
GPU: Final = "gpu"
TORCH: Final = "torch"
RULE: Final = "rule"
USUAL: Final = (MODEL, GPU, TORCH)
"""What files are grouped by if nothing else is asked for."""
NUMBERS: Final = (
    *("kernels", "launches", "memcpys", "syncs"),
    *("gpu_busy_us", "cpu_time_us", "gpu_utilization", "peak_memory_bytes"),
)
"""The numbers whose quantiles are told."""


class Quantiles(Struct, frozen=True, kw_only=True):
    """How a number lies over files."""

    count: int
    """Of so many files it is known."""
    p10: float
    median: float
    p90: float
    highest: float


class GroupRow(Struct, frozen=True, kw_only=True):
    """The files that have one thing in common."""

    value: str | None
    """What they have in common; None: it is not known of them."""
    listed: int
    judged: int
    hold: int
    missed: int
    without_limits: int
    not_measured: int
    quarantined: int
    numbers: dict[str, Quantiles]
    findings: dict[str, int]
    """How many files have each finding, the most frequent first."""


class FindingRow(Struct, frozen=True, kw_only=True):
    """One finding over all files."""

    code: str
    title: str
    severity: str
    files: int
    saves_us: Quantiles
    """The most that could be saved in a file."""
    worst: str
    """The name of the file where that is most."""


class OtherStructure(Struct, frozen=True, kw_only=True):
    """A file that launches other kernels, or in another order, than most files of its group."""

    name: str
    url: str
    member: str | None
    model: str | None
    gpu: str | None
    torch: str | None
    structure: str
    of_majority: str
    """A file with the structure that most files of the group have."""
    majority: int
    """How many have it."""
    group: int
    """How many files the group has."""
    command: str
    """What shows how it differs."""


class WorstFile(Struct, frozen=True, kw_only=True):
    """A file to be looked at first."""

    name: str
    url: str
    member: str | None
    outcome: str
    limits_missed: tuple[str, ...]
    finding: str | None
    """The code of the finding by which most time could be saved; None where there is none."""
    saves_us: float
    command: str
    """What opens it."""


class NotJudged(Struct, frozen=True, kw_only=True):
    """A file that is not measured or quarantined."""

    name: str
    url: str
    member: str | None
    quarantined: bool
    code: str
    why: str


class JobRow(Struct, frozen=True, kw_only=True):
    """A job whose ranks are among the files."""

    name: str
    ranks: int
    files: int
    """How many ranks have a recording."""
    missing: tuple[int, ...]
    """The ranks that have none."""
    outcome: str
    limits_missed: tuple[str, ...]
    findings: tuple[str, ...]
    skew_us: float | None
    """The median over its collectives from the first rank's start to the last one's."""
    late: int | None
    """The rank that keeps the others waiting."""
    why: str
    """Why it is not judged; empty if it is."""


class FleetReport(Struct, frozen=True, kw_only=True):
    """What all records of a run tell together."""

    schema: int = SCHEMA
    left: int
    """How many files have no record yet."""
    summary: FleetSummary
    """Of the files that have one."""
    groups: dict[str, tuple[GroupRow, ...]]
    """By what they have in common: model, gpu, torch, or what a manifest says."""
    findings: tuple[FindingRow, ...]
    other_structures: tuple[OtherStructure, ...]
    without_majority: int
    """How many groups have several structures, none of which more than half of their files have."""
    worst: tuple[WorstFile, ...]
    not_judged: tuple[NotJudged, ...]
    jobs: tuple[JobRow, ...]
    """Those whose ranks are among the files; none while files are left."""


class FleetRow(Struct, frozen=True, kw_only=True):
    """A file as a row for tools that read tables: no field depends on what others hold."""

    name: str
    url: str
    member: str | None
    model: str | None
    gpu: str | None
    torch: str | None
    rule: str | None
    outcome: str
    code: str | None
    """Why it is not measured or quarantined."""
    structure: str | None
    rank: int | None
    kernels: float | None
    launches: float | None
    memcpys: float | None
    syncs: float | None
    gpu_busy_us: float | None
    cpu_time_us: float | None
    gpu_utilization: float | None
    peak_memory_bytes: int | None
    limits_missed: tuple[str, ...]
    findings: tuple[str, ...]


def row_of(record: FileRecord, name: str) -> FleetRow:
    """Return a file as a row."""
    result = record.result
    reason = record.quarantined if result is None else result.reason
    summary = None if result is None else result.summary
    values: dict[str, Any] = {key: value_of(record, name, key) for key in (*USUAL, RULE)}
    values |= {number: None if summary is None else getattr(summary, number) for number in NUMBERS}
    return FleetRow(
        name=name,
        url=record.url,
        member=record.member,
        **values,
        outcome="quarantined" if result is None else str(result.outcome),
        code=None if reason is None else str(reason.code or Code.NOT_MEASURED),
        structure=None if result is None else result.structure,
        rank=None if result is None else result.rank,
        limits_missed=() if result is None else _missed(result),
        findings=() if result is None else tuple(dict.fromkeys(finding.code for finding in result.findings)),
    )


def value_of(record: FileRecord, name: str, key: str) -> str | None:
    """Return what a file has as ``key``: model, gpu, torch, rule, or what a manifest says; None if it is not known."""
    if key == MODEL:
        return model_of(record.metadata, name)
    if key == RULE:
        return record.rule
    if key in record.metadata:
        return record.metadata[key]
    environment = None if record.result is None else record.result.environment
    return None if environment is None or key not in (GPU, TORCH) else getattr(environment, key)


class Overview:
    """Goes through the records of a run once; of each, it keeps a few numbers."""

    def __init__(self, frozen: FrozenList, by: Sequence[str], most: int) -> None:
        """Group by these keys; name as many of the worst files as ``most``."""
        self._frozen, self._most = frozen, most
        self._all = FleetTally(frozen.version)
        self._groups: dict[str, dict[str | None, _Group]] = {key: {} for key in by}
        self._findings: dict[str, _Finding] = {}
        self._alike: dict[tuple[Any, ...], _Alike] = {}
        self._worst: list[tuple[tuple[Any, ...], WorstFile]] = []
        self._not_judged: list[NotJudged] = []
        self._left = 0
        self._jobs: list[JobRow] = []
        self._of_jobs = JobsSummary()

    def through(self, records: Records) -> Iterator[tuple[FileRecord, str]]:
        """Go through the records, and yield each with the name of its file; jobs are judged once all files are."""
        names = names_of(self._frozen.files, self._frozen.sources)
        keys = [task.key for task in self._frozen.tasks()]
        there = [key for key in keys if key in records.places]
        self._left = len(keys) - len(there)
        jobs = GatheredJobs()
        each = records.each(there, lambda _: None)
        for record in each if self._left else jobs.gather(each, self._frozen.tasks()):
            name = names[record.url, record.member]
            self._see(record, name)
            yield record, name
        self._of_jobs = judged(jobs, records, lambda job: self._jobs.append(_job_row(job)))

    def _see(self, record: FileRecord, name: str) -> None:
        self._all.see(record)
        for key, groups in self._groups.items():
            value = value_of(record, name, key)
            groups.setdefault(value, _Group(self._all.version)).see(record)
        result = record.result
        if result is None or result.outcome is Outcome.NOT_MEASURED:
            self._not_judged.append(_not_judged(record, name))
        if result is None:
            return
        for finding in result.findings:
            self._findings.setdefault(finding.code, _Finding(finding)).see(finding, name)
        if result.outcome is not Outcome.NOT_MEASURED:
            self._see_structure(record, result, name)
            self._see_worst(record, result, name)

    def _see_structure(self, record: FileRecord, result: Result, name: str) -> None:
        if result.structure is not None:
            values = tuple(value_of(record, name, key) for key in USUAL)
            alike = self._alike.setdefault((values, record.rule, result.device, result.rank), _Alike(values))
            alike.members.setdefault(result.structure, []).append((name, record.url, record.member))

    def _see_worst(self, record: FileRecord, result: Result, name: str) -> None:
        missed = _missed(result)
        finding = max(
            (finding for finding in result.findings if finding.SEVERITY == "warning"),
            key=lambda finding: finding.saves_us,
            default=None,
        )
        if not missed and finding is None:
            return
        saves_us = 0.0 if finding is None else finding.saves_us
        # The heap loses its smallest: of two that are as bad the name that comes later in the alphabet.
        order = (len(missed), saves_us, tuple(-ord(character) for character in name))
        worst = WorstFile(
            name=name,
            url=record.url,
            member=record.member,
            outcome=str(result.outcome),
            limits_missed=missed,
            finding=None if finding is None else finding.code,
            saves_us=saves_us,
            command=opening("open", (record.url, record.member)),
        )
        push = heapq.heappush if len(self._worst) < self._most else heapq.heappushpop
        push(self._worst, (order, worst))

    def report(self) -> FleetReport:
        """Return what the records tell that were gone through."""
        return FleetReport(
            left=self._left,
            summary=replace(self._all.summary(), jobs=self._of_jobs),
            groups={key: _rows(groups) for key, groups in self._groups.items()},
            findings=tuple(
                sorted((own.row() for own in self._findings.values()), key=lambda row: (-row.files, row.code))
            ),
            other_structures=tuple(other for alike in self._alike.values() for other in alike.others()),
            without_majority=sum(alike.is_divided for alike in self._alike.values()),
            worst=tuple(file for _, file in sorted(self._worst, reverse=True, key=lambda row: row[0])),
            not_judged=tuple(self._not_judged),
            jobs=tuple(self._jobs),
        )


def opening(command: str, *files: tuple[str, str | None]) -> str:
    """Return the line for a shell that opens files with a command; what lies in an archive is unpacked before."""
    unpacked = [f"unzip -j {shlex.quote(url)} {shlex.quote(member)}" for url, member in files if member is not None]
    paths = [shlex.quote(url if member is None else member.rpartition("/")[2]) for url, member in files]
    return " && ".join([*unpacked, f"torchprof {command} {' '.join(paths)}"])


class _Group:
    """The files of one group."""

    def __init__(self, version: str) -> None:
        self._tally = FleetTally(version)
        self._numbers = {number: array("d") for number in NUMBERS}

    def see(self, record: FileRecord) -> None:
        self._tally.see(record)
        result = record.result
        if result is None or result.outcome is Outcome.NOT_MEASURED or result.summary is None:
            return
        for number, values in self._numbers.items():
            if (value := getattr(result.summary, number)) is not None:
                values.append(value)

    def row(self, value: str | None) -> GroupRow:
        summary = self._tally.summary()
        return GroupRow(
            value=value,
            **{name: getattr(summary, name) for name in _COUNTS},
            numbers={number: quantiles(values) for number, values in self._numbers.items() if values},
            findings=dict(sorted(summary.findings.items(), key=lambda row: (-row[1], row[0]))),
        )


_COUNTS: Final = ("listed", "judged", "hold", "missed", "without_limits", "not_measured", "quarantined")


class _Finding:
    """One finding over the files."""

    def __init__(self, finding: Finding) -> None:
        self._kind = type(finding)
        self._code = finding.code
        self._saves_us = array("d")
        self._worst = (-1.0, "")

    def see(self, finding: Finding, name: str) -> None:
        self._saves_us.append(finding.saves_us)
        if finding.saves_us > self._worst[0]:
            self._worst = finding.saves_us, name

    def row(self) -> FindingRow:
        return FindingRow(
            code=self._code,
            title=self._kind.TITLE,
            severity=self._kind.SEVERITY,
            files=len(self._saves_us),
            saves_us=quantiles(self._saves_us),
            worst=self._worst[1],
        )


class _Alike(Struct):
    """Files that should launch the same kernels: of one model, GPU and torch, of which the same is asked."""

    values: tuple[str | None, ...]
    members: dict[str, list[tuple[str, str, str | None]]] = field(default_factory=dict)
    """Name, path and member by structure."""

    @property
    def majority(self) -> str | None:
        """The structure of more than half of the files; None where there is none."""
        structure = max(self.members, key=lambda structure: len(self.members[structure]))
        return structure if 2 * len(self.members[structure]) > self.count else None

    @property
    def count(self) -> int:
        """How many files there are."""
        return sum(map(len, self.members.values()))

    @property
    def is_divided(self) -> bool:
        """Whether there are several structures, and no majority."""
        return len(self.members) > 1 and self.majority is None

    def others(self) -> Iterable[OtherStructure]:
        """Yield the files that are not of the majority."""
        if len(self.members) == 1 or (majority := self.majority) is None:
            return
        usual, usual_url, usual_member = self.members[majority][0]
        for structure, files in self.members.items():
            for name, url, member in files if structure != majority else ():
                yield OtherStructure(
                    name=name,
                    url=url,
                    member=member,
                    **dict(zip(USUAL, self.values, strict=True)),
                    structure=structure,
                    of_majority=usual,
                    majority=len(self.members[majority]),
                    group=self.count,
                    command=opening("diff", (usual_url, usual_member), (url, member)),
                )


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the quantiles of at least one value: each a value that is there, or midway between two."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return Quantiles(count=len(ordered), p10=at(0.1), median=at(0.5), p90=at(0.9), highest=ordered[-1])


def _rows(groups: Mapping[str | None, _Group]) -> tuple[GroupRow, ...]:
    """Return the groups, those that missed most limits first."""
    rows = [group.row(value) for value, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.missed, -row.listed, row.value is None, row.value or "")))


def _job_row(job: JobRecord) -> JobRow:
    return JobRow(
        name=str(job.job),
        ranks=job.job.ranks,
        files=job.files,
        missing=job.missing,
        outcome=str(job.outcome),
        limits_missed=tuple(verdict.name for verdict in job.limits if verdict.status == MISSED),
        findings=tuple(finding.code for finding in job.findings),
        skew_us=job.skew_us,
        late=job.late,
        why="" if job.reason is None else str(job.reason),
    )


def _missed(result: Result) -> tuple[str, ...]:
    return tuple(verdict.name for verdict in result.limits if verdict.status == MISSED)


def _not_judged(record: FileRecord, name: str) -> NotJudged:
    reason = record.quarantined if record.result is None else record.result.reason
    return NotJudged(
        name=name,
        url=record.url,
        member=record.member,
        quarantined=record.result is None,
        code=str(Code.NOT_MEASURED if reason is None or reason.code is None else reason.code),
        why="" if reason is None else str(reason),
    )

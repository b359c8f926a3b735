"""Reads what a run has left, and reports it together: groups, files unlike their group, the worst files."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_torchprof.fleet.groups import Alike, FileGroup, FindingOfFiles, group_rows
from pytest_torchprof.fleet.jobs import GatheredJobs, JobsSummary, judged
from pytest_torchprof.fleet.names import names_of
from pytest_torchprof.fleet.report import FleetReport, JobRow, NotJudged, WorstFile, opening
from pytest_torchprof.fleet.rows import USUAL, missed_limits, value_of
from pytest_torchprof.fleet.summary import FleetTally
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.report.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.fleet.folder import FrozenList
    from pytest_torchprof.fleet.jobs import JobRecord
    from pytest_torchprof.fleet.judging import FileRecord
    from pytest_torchprof.fleet.records import Records
    from pytest_torchprof.report.result import Result


class Overview:
    """Goes through the records of a run once; of each, it keeps a few numbers."""

    def __init__(self, frozen: FrozenList, by: Sequence[str], most: int) -> None:
        """Group by these keys; name as many of the worst files as ``most``."""
        self._frozen, self._most = frozen, most
        self._all = FleetTally(frozen.version)
        self._groups: dict[str, dict[str | None, FileGroup]] = {key: {} for key in by}
        self._findings: dict[str, FindingOfFiles] = {}
        self._alike: dict[tuple[Any, ...], Alike] = {}
        self._worst: list[tuple[tuple[Any, ...], WorstFile]] = []
        self._not_judged: list[NotJudged] = []
        self._left = 0
        self._jobs: list[JobRow] = []
        self._of_jobs = JobsSummary()

    def through(self, records: Records) -> Iterator[tuple[FileRecord, str]]:
        """Go through the records, and yield each with the name of its file; jobs are judged once all files are."""
        names = names_of(self._frozen.files, self._frozen.sources)
        keys = [task.key for task in self._frozen.tasks()]
        there = [key for key in keys if key in records.spans]
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
            groups.setdefault(value, FileGroup(self._all.version)).see(record)
        result = record.result
        if result is None or result.outcome is Outcome.NOT_MEASURED:
            self._not_judged.append(_not_judged(record, name))
        if result is None:
            return
        for finding in result.findings:
            self._findings.setdefault(finding.code, FindingOfFiles(finding)).see(finding, name)
        if result.outcome is not Outcome.NOT_MEASURED:
            self._see_structure(record, result, name)
            self._see_worst(record, result, name)

    def _see_structure(self, record: FileRecord, result: Result, name: str) -> None:
        if result.structure is not None:
            values = tuple(value_of(record, name, key) for key in USUAL)
            key = (values, record.rule, result.device, result.rank)
            alike = self._alike.setdefault(key, Alike(values, record.rule, result.rank))
            alike.see(result.structure, name, record.url, record.member)

    def _see_worst(self, record: FileRecord, result: Result, name: str) -> None:
        missed = missed_limits(result)
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
        """Return the report of the records that ``through`` has read."""
        summary = self._all.summary()
        divided = [alike.divided() for alike in self._alike.values() if alike.is_divided]
        return FleetReport(
            left=self._left,
            summary=replace(summary, listed=summary.listed + self._left, jobs=self._of_jobs),
            groups={key: group_rows(groups) for key, groups in self._groups.items()},
            findings=tuple(
                sorted((own.row() for own in self._findings.values()), key=lambda row: (-row.files, row.code))
            ),
            other_structures=tuple(other for alike in self._alike.values() for other in alike.others()),
            without_majority=len(divided),
            divided=tuple(sorted(divided, key=lambda group: -group.files)),
            worst=tuple(file for _, file in sorted(self._worst, reverse=True, key=lambda row: row[0])),
            not_judged=tuple(self._not_judged),
            jobs=tuple(self._jobs),
        )


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
        reason=job.reason,
    )


def _not_judged(record: FileRecord, name: str) -> NotJudged:
    reason = record.quarantined if record.result is None else record.result.reason
    return NotJudged(
        name=name,
        url=record.url,
        member=record.member,
        quarantined=record.result is None,
        code=str(Code.NOT_MEASURED if reason is None or reason.code is None else reason.code),
        why="" if reason is None else str(reason),
        reason=reason,
    )

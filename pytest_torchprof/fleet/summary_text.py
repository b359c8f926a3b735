"""The outcome of a run on a terminal: its files in numbers, and the first ones of each kind."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from pytest_torchprof.fleet.folder import JOBS, RECORDS
from pytest_torchprof.fleet.texts import LONGEST, census_lines, jobs_line
from pytest_torchprof.limits import HOLDS, MISSED
from pytest_torchprof.limits.evidence import FindingLine
from pytest_torchprof.limits.limit_line import limit_in_one_line
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.text import and_more, counted, first_of, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.findings.catalogue import AnyFinding
    from pytest_torchprof.fleet.folder import FleetFolder
    from pytest_torchprof.fleet.jobs import JobRecord
    from pytest_torchprof.fleet.judging import FileRecord
    from pytest_torchprof.fleet.summary import FleetSummary
    from pytest_torchprof.limits import Verdict

_MOST_SHOWN: Final = 5
"""How many files of each kind are named."""


class Examples:
    """The first files of each kind, to be named."""

    def __init__(self) -> None:
        self.missed: list[list[str]] = []
        self.not_measured: list[list[str]] = []
        self.quarantined: list[list[str]] = []
        self.jobs: dict[str, list[list[str]]] = defaultdict(list)

    def see(self, record: FileRecord) -> None:
        """Note a file that is to be named."""
        result = record.result
        if result is None:
            self._note(self.quarantined, record, [str(record.quarantined)])
        elif result.outcome is Outcome.FAILED:
            self._note(
                self.missed,
                record,
                [line for limit in result.limits if limit.status == MISSED for line in _limit_lines(limit)],
            )
        elif result.outcome is Outcome.NOT_MEASURED:
            self._note(self.not_measured, record, [str(result.reason)])

    def see_job(self, job: JobRecord) -> None:
        """Note a job of which there is something to say."""
        lines, blocks = list(_job_lines(job)), self.jobs[job.outcome]
        if (lines or job.missing) and len(blocks) < _MOST_SHOWN:
            below = [f"    {printable_line(line, LONGEST)}" for line in lines]
            blocks.append([f"  {printable_line(str(job.job), LONGEST)}: {_ranks_text(job)}", *below])

    def _note(self, blocks: list[list[str]], record: FileRecord, why: list[str]) -> None:
        if len(blocks) < _MOST_SHOWN:
            below = [f"    {printable_line(line, LONGEST)}" for line in why]
            blocks.append([f"  {printable_line(record.name, LONGEST)}", *below])


def summary_lines(folder: FleetFolder, summary: FleetSummary, shown: Examples) -> Iterator[str]:
    """Yield the outcome of a run, and the first files of each kind with their reasons."""
    yield from census_lines(summary)
    for title, count, blocks in (
        ("missed", summary.missed, shown.missed),
        ("not measured", summary.not_measured, shown.not_measured),
        ("quarantined", summary.quarantined, shown.quarantined),
    ):
        if count:
            yield f"\n{title}: {count:,}"
            yield from chain.from_iterable(blocks)
            if count > len(blocks):
                yield f"  ...{and_more(count - len(blocks))}: {folder.file(RECORDS)}"
    jobs = summary.jobs
    if jobs.listed:
        yield f"\n{jobs_line(jobs)}"
        for outcome in (Outcome.FAILED, Outcome.NOT_MEASURED, Outcome.PASSED, Outcome.RECORDED):
            yield from chain.from_iterable(shown.jobs[outcome])
        yield f"  all of them: {folder.file(JOBS)}"


def _job_lines(job: JobRecord) -> Iterator[str]:
    """Yield why a job is not judged, the limits that do not hold, and what its ranks show together."""
    if job.reason is not None and not job.limits:
        yield str(job.reason)
    asked = [verdict for verdict in job.limits if verdict.status != HOLDS]
    yield from chain.from_iterable(map(_limit_lines, asked))
    forbidden = {finding.code for verdict in asked for finding in _forbidden(verdict)}
    others = [finding for finding in job.findings if finding.code not in forbidden]
    yield from (f"{finding.code}: {finding.message}" for finding in others[:_MOST_SHOWN])


def _limit_lines(verdict: Verdict) -> Iterator[str]:
    """Yield a limit and what was seen: of findings that are forbidden, what each kind says first."""
    kinds: dict[str, list[AnyFinding]] = {}
    for finding in _forbidden(verdict):
        kinds.setdefault(finding.code, []).append(finding)
    if not kinds:
        yield limit_in_one_line(verdict)
    for code, (first, *others) in islice(kinds.items(), _MOST_SHOWN):
        yield f"{code} (forbidden): {first.message}{and_more(len(others))}"
    if len(kinds) > _MOST_SHOWN:
        yield f"...{and_more(len(kinds) - _MOST_SHOWN)} (forbidden)"


def _forbidden(verdict: Verdict) -> list[AnyFinding]:
    return [line.finding for line in verdict.evidence if isinstance(line, FindingLine)]


def _ranks_text(job: JobRecord) -> str:
    ranks, there = counted(job.job.ranks, "rank"), job.job.ranks - len(job.missing)
    text = f"{there:,} of {ranks}" if job.missing else ranks
    if job.files != there:
        text += f", in {counted(job.files, 'file')}"
    if not job.missing:
        return text
    missing = first_of(list(map(str, job.missing)), _MOST_SHOWN)
    return f"{text}; ranks {missing} are missing" if len(job.missing) > 1 else f"{text}; rank {missing} is missing"

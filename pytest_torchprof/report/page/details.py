"""The details of a measurement on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.compare.change import TWO_FILES
from pytest_torchprof.findings.catalogue.headlines import GpuCommunicated, NotMeasuredHeadline
from pytest_torchprof.findings.catalogue.ranks import ExposedCommunication
from pytest_torchprof.findings.ranks import seen_in_job
from pytest_torchprof.report.page.changes import changes_between, changes_in
from pytest_torchprof.report.page.findings import finding_on_page, headline_on_page
from pytest_torchprof.report.page.tables import table_of_calls, tables_of, time_breakdown
from pytest_torchprof.report.result import known_of
from pytest_torchprof.report.verdicts import evidence_lines, measured_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.ranks import Job
    from pytest_torchprof.compare.change import Sides
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.findings.catalogue.headlines import Headline
    from pytest_torchprof.limits import Verdict
    from pytest_torchprof.report.page.changes import Changes, NotCompared
    from pytest_torchprof.report.page.findings import FindingOnPage, HeadlineOnPage
    from pytest_torchprof.report.page.marks import Marks
    from pytest_torchprof.report.page.measured import Measured
    from pytest_torchprof.report.page.tables import Table, TimeBreakdown
    from pytest_torchprof.report.result import Result


class LimitOnPage(Struct, frozen=True, kw_only=True):
    """A limit: what was asked for, and what was seen."""

    name: str
    status: str
    range: str | None
    """The user's range within which it was asked for."""
    expected: str
    measured: float | str | None
    message: str
    details: Sequence[str]
    """Facts to act on, a line each."""


class NumberOnPage(Struct, frozen=True, array_like=True):
    """A number that the device has; a value that was not measured is None."""

    title: str
    unit: str
    better: str | None
    median: float | None
    worst: float | None
    before: float | None
    scope: str
    """Whether it is of each "step" or of the "window" of all steps."""


class EarlierSide(Struct, frozen=True, kw_only=True):
    """The circumstances of the measurement that this one is compared with."""

    environment: Mapping[str, object]
    recording: str | None


class RankOfJob(Struct, frozen=True, kw_only=True):
    """A rank, and how many there are."""

    rank: int
    of: int


class Details(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The details below the list of verdicts once the measurement is chosen; unknown ones are left out."""

    name: str
    outcome: str
    message: str = ""
    changes: tuple[str, ...] = ()
    """The differences that no failure shows, a line each."""
    limits: tuple[LimitOnPage, ...] = ()
    environment: Mapping[str, object] = {}
    """Settings and versions, by their names."""
    recording: str | None = None
    numbers: Sequence[NumberOnPage]
    """Empty if neither side has a summary."""
    before: EarlierSide | None = None
    compared: Changes | NotCompared | None = None
    pace: str = ""
    """How the time compares with another commit's."""
    headline: HeadlineOnPage | None = None
    findings: Sequence[FindingOnPage]
    tables: Mapping[str, Table] | None = None
    missing: str = ""
    """Why nothing is drawn."""
    drawn: tuple[str, ...] = ()
    """The payloads of its recording and of the earlier one."""
    job: str = ""
    """The payload of its job, if that is on the page."""

    # What only a recording tells:
    doubt: str | None = None
    """Why kernels are not known."""
    time: TimeBreakdown | None = None
    time_before: TimeBreakdown | None = None
    steps: int | None = None
    is_whole: bool | None = None
    """Whether no steps are marked."""
    events: int | None = None
    rank: RankOfJob | None = None
    devices: Sequence[str] | None = None
    orphans: int | None = None
    """How many GPU operations are in no step."""
    with_stacks: bool | None = None
    unlinked: bool | None = None
    """Whether launches and kernels are not linked."""


def details_of(measured: Measured, marks: Marks | None = None, sides: Sides = TWO_FILES) -> Details:
    """Return the details of a measurement.

    ``marks`` belong to its recording, if that is drawn; ``sides`` are the names of the measurement before and this one,
    where two are compared.
    """
    result, analysis, before = measured.result, measured.analysis, measured.before
    details = Details(
        name=measured.name,
        outcome=measured.verdict,
        message="" if _is_headline(result.message, analysis, marks) else result.message,
        changes=result.change_lines,
        limits=tuple(map(_limit, result.limits)),
        environment=known_of(result.environment),
        recording=result.recording,
        numbers=_numbers(measured),
        before=None if before is None else _earlier(before.result),
        compared=_compared(measured, sides),
        pace="" if result.against_time is None else result.against_time.words,
        headline=None if marks is None else headline_on_page(marks.headline),
        findings=_findings(result.findings, marks),
    )
    if analysis is not None:
        return _with_recording(details, analysis, None if before is None else before.analysis)
    tables = {"kernel": table_of_calls(result.kernels)} if result.kernels else None
    return structs.replace(details, tables=tables, missing=measured.missing)


def in_job(details: Details, findings: Sequence[Finding], headline: Headline | None, job: Job) -> Details:
    """Return a rank's details where its job is on the page too: what one rank suggests, all of them together show."""
    rows = [
        finding_on_page(seen_in_job(finding, job), mark=row.mark, in_job=True)
        if isinstance(finding, ExposedCommunication)
        else row
        for row, finding in zip(details.findings, findings, strict=True)
    ]
    shown = details.headline
    if job.straggler is not None and isinstance(headline, GpuCommunicated) and shown is not None:
        shown = structs.replace(shown, what=headline.without_guess.what)
    return structs.replace(details, headline=shown, findings=rows)


def _is_headline(message: str, analysis: Analysis | None, marks: Marks | None) -> bool:
    """Whether the headline says the same as the message."""
    is_unmeasured = marks is not None and isinstance(marks.headline, NotMeasuredHeadline)
    return is_unmeasured and analysis is not None and message == analysis.why_not


def _compared(measured: Measured, sides: Sides) -> Changes | NotCompared | None:
    """Return the changes against the earlier recording, else against the baseline, if there are any."""
    result, analysis, before = measured.result, measured.analysis, measured.before
    if analysis is not None and before is not None and before.analysis is not None:
        return changes_between(analysis, before.analysis, sides)
    comparison = result.comparison
    # An entry of another device is no baseline.
    if comparison is None or comparison.verdict == "new" or not comparison.lines:
        return None
    return changes_in(comparison, measured.device, str(result.baseline))


def _earlier(result: Result) -> EarlierSide:
    return EarlierSide(environment=known_of(result.environment), recording=result.recording)


def _limit(verdict: Verdict) -> LimitOnPage:
    return LimitOnPage(
        name=verdict.limit,
        status=verdict.status,
        range=verdict.range,
        expected=verdict.expected,
        measured=measured_of(verdict),
        message=verdict.text,
        details=evidence_lines(verdict),
    )


def _numbers(measured: Measured) -> list[NumberOnPage]:
    """Return the numbers that the device has; none if neither side has a summary."""
    sides = [side for side in (measured, measured.before) if side is not None and side.result.summary is not None]
    return [
        NumberOnPage(
            number.title_on(gpu=measured.device.has_launches),
            number.unit,
            number.better,
            measured.number(number.name),
            measured.worst(number.name),
            measured.before.number(number.name) if measured.before is not None else None,
            number.scope,
        )
        for number in TABLE
        if sides and not number.detail and number.needs not in measured.device.lacks
    ]


def _with_recording(details: Details, analysis: Analysis, before: Analysis | None) -> Details:
    trace = analysis.trace
    rank, ranks = rank_and_size(trace) or (0, 1)
    return structs.replace(
        details,
        doubt=None if analysis.kernels_unknown is None else str(analysis.kernels_unknown),
        tables=tables_of(analysis, before),
        time=time_breakdown(analysis),
        time_before=None if before is None else time_breakdown(before),
        steps=len(analysis.steps) if trace.has_step_ranges else 0,
        is_whole=not trace.has_step_ranges,
        events=trace.events,
        rank=RankOfJob(rank=rank, of=ranks) if ranks > 1 else None,
        devices=[device.name or "GPU without a name" for device in trace.devices],
        orphans=trace.orphans,
        with_stacks=len(trace.frames) > 0,
        unlinked=trace.attribution == "time" and len(trace.gpu) > 0,
    )


def _findings(findings: Sequence[Finding], marks: Marks | None) -> list[FindingOnPage]:
    """Return the findings, each with its mark: that of the headline is the first one."""
    return [
        finding_on_page(finding, mark=number if marks is not None and marks.events[number] is not None else None)
        for number, finding in enumerate(findings, 1)
    ]

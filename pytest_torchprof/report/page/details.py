"""The details of a measurement on the page, as plain data."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.analysis.rank_parts import rank_and_size
from pytest_torchprof.compare.change import TWO_FILES
from pytest_torchprof.findings.catalogue.headlines import GpuCommunicated, Headline, NotMeasuredHeadline
from pytest_torchprof.findings.catalogue.ranks import ExposedCommunication
from pytest_torchprof.findings.ranks import seen_in_job
from pytest_torchprof.report.page.changes import changes_between, changes_in
from pytest_torchprof.report.page.tables import table_of_calls, tables_of, time_breakdown
from pytest_torchprof.report.result import as_reported, known_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.ranks import Job
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.compare.change import Sides
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.report.page.marks import Marks
    from pytest_torchprof.report.page.measured import Measured
    from pytest_torchprof.report.result import Result

_SHOWN: Final = ("message", "changes", "limits", "environment", "recording")


def details_of(measured: Measured, marks: Marks | None = None, sides: Sides = TWO_FILES) -> dict[str, Any]:
    """Return the details that stand below the list of verdicts once the measurement is chosen.

    ``marks`` belong to its recording, if that is drawn; ``sides`` are the names of the measurement before and this one,
    where two are compared.
    """
    result, analysis, before = measured.result, measured.analysis, measured.before
    plain = as_reported(result)
    earlier = before.analysis if before is not None else None
    details: dict[str, Any] = {
        "name": measured.name,
        "outcome": measured.verdict,
        **{name: plain[name] for name in _SHOWN if plain[name]},
        "numbers": _numbers(measured),
    }
    if before is not None:
        environment = known_of(before.result.environment)
        details["before"] = {"environment": environment, "recording": before.result.recording}
    if analysis is not None:
        details |= _analysis_details(analysis, earlier)
        if earlier is not None:
            details["compared"] = changes_between(analysis, earlier, sides)
    elif result.kernels:
        details["tables"] = {"kernel": table_of_calls(result.kernels)}
    if "compared" not in details and (comparison := _with_differences(result)) is not None:
        details["compared"] = {"verdict": str(result.baseline), **changes_in(comparison, measured.device)}
    if result.against_time is not None:
        details["pace"] = result.against_time.words
    if marks is not None:
        details["headline"] = _headline(marks.headline)
        if (
            isinstance(marks.headline, NotMeasuredHeadline)
            and analysis is not None
            and result.message == analysis.why_not
        ):
            details.pop("message", None)  # The headline says it.
    return {**details, "findings": _findings(result.findings, marks)}


def in_job(details: dict[str, Any], findings: Sequence[Finding], headline: Headline | None, job: Job) -> dict[str, Any]:
    """Return a rank's details where its job is on the page too: what one rank suggests, all of them together show."""
    rows = [
        {**row, **_words(seen_in_job(finding, job)), "in_job": True}
        if isinstance(finding, ExposedCommunication)
        else row
        for row, finding in zip(details["findings"], findings, strict=True)
    ]
    if job.straggler is not None and isinstance(headline, GpuCommunicated):
        details = {**details, "headline": {**details["headline"], "what": headline.without_guess.what}}
    return {**details, "findings": rows}


def _with_differences(result: Result) -> Comparison | None:
    """Return the comparison with the baseline if there are differences; an entry of another device is no baseline."""
    comparison = result.comparison
    return comparison if comparison is not None and comparison.verdict != "new" and comparison.lines else None


def as_json(value: object) -> bytes:
    """Return plain data as JSON in ASCII; a number that is not finite is null."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _numbers(measured: Measured) -> list[list[Any]]:
    """Return a row for each number that the device has: title, unit, which way is better, median, worst step, before.

    The last column says whether the number is of each "step" or of the "window" of all steps. A number that was not
    measured is None; there are no rows if neither side has a summary.
    """
    sides = [side for side in (measured, measured.before) if side is not None and side.result.summary is not None]
    return [
        [
            number.title_on(gpu=measured.device.has_launches),
            number.unit,
            number.better,
            measured.number(number.name),
            measured.worst(number.name),
            measured.before.number(number.name) if measured.before is not None else None,
            number.scope,
        ]
        for number in TABLE
        if sides and not number.detail and number.needs not in measured.device.lacks
    ]


def _analysis_details(analysis: Analysis, before: Analysis | None) -> dict[str, Any]:
    trace = analysis.trace
    rank, ranks = rank_and_size(trace) or (0, 1)
    return {
        "doubt": analysis.kernels_unknown and str(analysis.kernels_unknown),
        "tables": tables_of(analysis, before),
        "time": time_breakdown(analysis),
        "time_before": time_breakdown(before) if before is not None else None,
        "steps": len(analysis.steps) if trace.has_step_ranges else 0,
        "is_whole": not trace.has_step_ranges,
        "events": trace.events,
        "rank": {"rank": rank, "of": ranks} if ranks > 1 else None,
        "devices": [device.name or "GPU without a name" for device in trace.devices],
        "orphans": trace.orphans,
        "with_stacks": len(trace.frames) > 0,
        "unlinked": trace.attribution == "time" and len(trace.gpu) > 0,
    }


def _findings(findings: Sequence[Finding], marks: Marks | None) -> list[dict[str, Any]]:
    """Return the findings, each with the index of its events among the marks of the recording, if it has events."""
    rows = []
    for number, finding in enumerate(findings, 1):
        marked = marks is not None and marks.events[number] is not None
        rows.append({**_words(finding), "source": finding.source, **({"mark": number} if marked else {})})
    return rows


def _words(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in ("code", "title", "message", "remedy", "severity", "saves_us")}


def _headline(headline: Headline) -> dict[str, Any]:
    mark = {"mark": 0} if headline.events is not None else {}
    of_all = not isinstance(headline, NotMeasuredHeadline)
    return {"what": headline.what, "where": headline.where, "of_all": of_all, **mark}

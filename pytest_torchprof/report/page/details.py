"""All that the page shows of a measurement, as plain data."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.page.changes import changes_between, changes_in
from pytest_torchprof.report.page.tables import kernel_names, table_of_calls, tables_of, time_breakdown
from pytest_torchprof.report.result import as_reported, known_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.report.page.measured import Measured
    from pytest_torchprof.report.page.tables import Table
    from pytest_torchprof.report.result import Result

_SHOWN: Final = ("message", "changes", "limits", "environment", "recording")


def details_of(measured: Measured) -> dict[str, Any]:
    """Return what stands below the list of verdicts when the measurement is chosen there."""
    result, analysis, before = measured.result, measured.analysis, measured.before
    plain = as_reported(result)
    earlier = before.analysis if before is not None else None
    details: dict[str, Any] = {
        "name": measured.name,
        "outcome": measured.outcome,
        **{name: plain[name] for name in _SHOWN if plain[name]},
        "numbers": _numbers(measured),
    }
    if before is not None:
        environment = known_of(before.result.environment)
        details["before"] = {"environment": environment, "recording": before.result.recording}
    if analysis is not None:
        details |= _of_analysis(analysis, earlier)
        if earlier is not None:
            details["compared"] = changes_between(analysis, earlier)
    elif result.kernels:
        details["tables"] = {"kernel": table_of_calls(result.kernels)}
    if "compared" not in details and (comparison := _with_differences(result)) is not None:
        details["compared"] = {"verdict": str(result.baseline), **changes_in(comparison, measured.device)}
    if result.against_time is not None:
        details["pace"] = result.against_time.words
    kernels = details.get("tables", {}).get("kernel")
    return {**details, "findings": _findings(result.findings, kernels, linked=analysis is not None)}


def _with_differences(result: Result) -> Comparison | None:
    """Return the comparison with the baseline where it has found any; an entry of another device is none."""
    comparison = result.comparison
    return comparison if comparison is not None and comparison.verdict != "new" and comparison.lines else None


def as_json(value: object) -> bytes:
    """Return plain data as JSON in ASCII; what is no finite number is null."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _numbers(measured: Measured) -> list[list[Any]]:
    """Return a row for each number: title, unit, which way is better, median, worst step, median before."""
    before = measured.before
    return [
        [
            number.title_on(gpu=measured.device.has_launches),
            number.unit,
            number.better,
            measured.number(number.name),
            measured.worst(number.name),
            before.number(number.name) if before is not None else None,
        ]
        for number in TABLE
        if not number.detail
        and any(side is not None and side.number(number.name) is not None for side in (measured, before))
    ]


def _of_analysis(analysis: Analysis, before: Analysis | None) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "doubt": analysis.kernels_unknown and str(analysis.kernels_unknown),
        "tables": tables_of(analysis, before),
        "time": time_breakdown(analysis),
        "time_before": time_breakdown(before) if before is not None else None,
        "steps": len(analysis.steps),
        "events": trace.events,
        "devices": [device.name or "GPU without a name" for device in trace.devices],
        "orphans": trace.orphans,
        "unlinked": trace.attribution == "time" and len(trace.gpu) > 0,
    }


def _findings(findings: Sequence[Finding], kernels: Table | None, *, linked: bool) -> list[dict[str, Any]]:
    """Return the findings; where the page has the recording, each with the names of the events that it means."""
    names = kernel_names(kernels) if linked and findings and kernels else {}
    rows = []
    for finding in findings:
        shown = {name: getattr(finding, name) for name in ("code", "title", "message", "remedy", "severity")}
        events = _events(finding.evidence, names) if linked else {}
        rows.append({**shown, "source": finding.evidence.get("source"), **({"events": events} if events else {})})
    return rows


def _events(evidence: Mapping[str, Any], names: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return by what the timeline finds the events that a finding's evidence is of; empty where it names none."""
    words = [*_listed(evidence, "kernels"), *_listed(evidence, "collectives_us")]
    meant = sorted({raw for word in words for raw in names.get(word, ())})
    if meant:
        # A kernel's own name is more exact than the operator that launched it.
        return {"names": meant}
    before = evidence.get("longest_before")
    ops = [*_listed(evidence, "ops"), *([before] if isinstance(before, str) else [])]
    steps = _listed(evidence, "steps")
    return {**({"ops": ops} if ops else {}), **({"step": steps[0]} if steps else {})}


def _listed(evidence: Mapping[str, Any], key: str) -> list[str]:
    named = evidence.get(key)
    return [str(name) for name in named if name] if isinstance(named, list | tuple | dict) else []

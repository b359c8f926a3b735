"""All that the page tells of one measurement, as plain data."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.page.changes import changes_between, changes_since_baseline
from pytest_torchprof.report.page.tables import WAYS, kernel_names, tables_of, time_breakdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.report.page.measured import Measured
    from pytest_torchprof.report.page.tables import Table

_TOLD: Final = ("message", "changes", "limits", "environment", "recording", "time")


def details_of(measured: Measured, ways: Sequence[str] = WAYS) -> dict[str, Any]:
    """Return what stands below the list of verdicts when the measurement is chosen there, tables in these ways."""
    told, analysis, before = measured.told, measured.analysis, measured.before
    earlier = before.analysis if before is not None else None
    found: dict[str, Any] = {
        "name": measured.name,
        "outcome": measured.outcome,
        **{name: told[name] for name in _TOLD if told.get(name)},
        "numbers": _numbers(measured),
    }
    if before is not None:
        found["before"] = {name: before.told.get(name) for name in ("environment", "recording")}
    if analysis is not None:
        found |= _of_analysis(analysis, earlier, ways)
        if earlier is not None:
            found["compared"] = changes_between(analysis, earlier)
    elif told.get("kernels"):
        found["tables"] = {"kernel": _kernels_told(told["kernels"])}
    if "compared" not in found and told.get("comparison"):
        found["compared"] = changes_since_baseline(told["comparison"], str(told.get("baseline")), measured.device)
    if pace := (told.get("against_time") or {}).get("words"):
        found["pace"] = pace
    return {**found, "findings": _findings(told, found.get("tables", {}).get("kernel"), linked=analysis is not None)}


def as_json(value: object) -> bytes:
    """Return plain data as JSON in ASCII; what is no finite number is null."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _numbers(measured: Measured) -> list[list[Any]]:
    """Return a row for each number: title, unit, which way is better, median, worst step, median before."""
    before = measured.before
    return [
        [
            number.title_on(measured.device),
            number.unit,
            number.better,
            measured.number(number.name),
            measured.worst(number.name),
            before.number(number.name) if before is not None else None,
        ]
        for number in TABLE
        if not number.detail
        and any(one is not None and one.number(number.name) is not None for one in (measured, before))
    ]


def _of_analysis(analysis: Analysis, before: Analysis | None, ways: Sequence[str]) -> dict[str, Any]:
    trace = analysis.trace
    return {
        "doubt": analysis.kernels_unknown and str(analysis.kernels_unknown),
        "tables": tables_of(analysis, before, ways),
        "time": time_breakdown(analysis),
        "time_before": time_breakdown(before) if before is not None else None,
        "steps": len(analysis.steps),
        "events": trace.events,
        "devices": [device.name or "GPU without a name" for device in trace.devices],
        "orphans": trace.orphans,
        "unlinked": trace.attribution == "time" and len(trace.gpu) > 0,
    }


def _findings(told: Mapping[str, Any], kernels: Table | None, *, linked: bool) -> list[dict[str, Any]]:
    """Return the findings; where the page has the recording, each with the names of the events that it means."""
    found = [dict(one) for one in told.get("findings") or ()]
    names = kernel_names(kernels) if linked and found and kernels else {}
    for one in found:
        evidence = one.pop("evidence", None) or {}
        one["source"] = evidence.get("source")
        if linked and (events := _events(evidence, names)):
            one["events"] = events
    return found


def _events(evidence: Mapping[str, Any], names: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return by what the timeline finds the events that a finding's evidence is of; empty where it names none."""
    words = [*_listed(evidence, "kernels"), *_listed(evidence, "collectives_us")]
    meant = sorted({raw for word in words for raw in names.get(word, ())})
    if meant:
        # A kernel is said more exactly by its own name than by who launched it.
        return {"names": meant}
    before, constants = evidence.get("longest_before"), _listed(evidence, "constants")
    ops = [*_listed(evidence, "ops"), *(constant.partition("(")[0] for constant in constants)]
    ops += [before] if isinstance(before, str) else []
    steps = _listed(evidence, "steps")
    return {**({"ops": ops} if ops else {}), **({"step": steps[0]} if steps else {})}


def _listed(evidence: Mapping[str, Any], key: str) -> list[str]:
    named = evidence.get(key)
    return [str(one) for one in named if one] if isinstance(named, list | tuple | dict) else []


def _kernels_told(kernels: Any) -> Table:
    """Return the kernels that a run keeps of a measurement without its recording: those of one step."""
    columns = ["name", "short", "calls", "time_us", "mean_us", "min_us", "max_us", "op"]
    rows = [
        [
            *(one["name"], one["name"], one["count"], one["time_us"], one["time_us"] / (one["count"] or 1)),
            *(one["min_us"], one["max_us"], ", ".join(one["ops"]) or None),
        ]
        for one in kernels
    ]
    return {"columns": columns, "rows": rows, "more": 0, "of_step": True}

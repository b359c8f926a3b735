"""The run's results as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_torchprof.report.results import Disuse

if TYPE_CHECKING:
    from pytest_torchprof.report.results import RunResults

SCHEMA = 1


def render(run: RunResults) -> str:
    """Return ``{"schema", "environment", "results"}`` and the unused entries of baselines as indented JSON."""
    results = [
        {
            "nodeid": result.nodeid,
            "label": result.label,
            "outcome": result.outcome,
            "message": result.message,
            "baseline": result.baseline,
            "changes": list(result.changes),
            "limits": list(result.limits),
            "summary": dict(result.summary),
            "findings": list(result.findings),
            "recording": result.recording,
            "time": dict(result.time) or None,
        }
        for result in run.results
    ]
    unused: dict[str, dict[str, list[str]]] = {str(why): {} for why in Disuse}
    for entries in run.unused:
        unused[entries.why][entries.file] = list(entries.keys)
    report = {"schema": SCHEMA, "environment": dict(run.environment), "results": results, **unused}
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS = {".json": render}

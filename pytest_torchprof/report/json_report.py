"""The run's results as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_torchprof.report.results import Disuse

if TYPE_CHECKING:
    from pytest_torchprof.report.results import RunResults

SCHEMA = 1
_FIELDS = ["nodeid", "label", "outcome", "message", "baseline", "changes", "limits", "summary", "findings", "recording"]


def render(run: RunResults) -> str:
    """Return ``{"schema", "environment", "results"}`` and the unused entries of baselines as indented JSON."""
    results = [
        {**{name: getattr(result, name) for name in _FIELDS}, "time": result.time or None} for result in run.results
    ]
    unused: dict[str, dict[str, list[str]]] = {str(why): {} for why in Disuse}
    for entries in run.unused:
        unused[entries.why][entries.file] = list(entries.keys)
    report = {"schema": SCHEMA, "environment": run.environment, "results": results, **unused}
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS = {".json": render}

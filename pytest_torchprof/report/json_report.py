"""The run's results as JSON: all of them, with all that is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from pytest_torchprof.report import Disuse
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.report.result import as_reported, known_of
from pytest_torchprof.text import json_text

if TYPE_CHECKING:
    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

SCHEMA: Final = 1
JUDGED: Final = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.ERROR, Outcome.XFAILED, Outcome.WARNED})
"""The outcomes of measurements whose numbers stand in a history."""


def render(run: RunResults) -> str:
    """Return ``{"schema", "environment", "results"}`` and the unused entries of baselines as indented JSON."""
    unused: dict[str, dict[str, list[str]]] = {str(why): {} for why in Disuse}
    for entries in run.unused:
        unused[entries.why][entries.file] = list(entries.keys)
    against = {} if run.against is None else {"against": asdict(run.against) | {"gone": list(run.gone)}}
    environment = known_of(run.environment)
    report = {
        "schema": SCHEMA,
        "environment": environment,
        **against,
        "results": [as_reported(result) for result in run.results],
        **unused,
    }
    return json_text(without_point(report))


def without_point(value: Any) -> Any:
    """Return JSON values in which a whole number is written as one: whoever reads a record has 5.0 for a count of 5."""
    if isinstance(value, dict):
        return {name: without_point(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [without_point(held) for held in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def reported_value(result: Result, number: Number) -> float | None:
    """Return a number of a measurement: counts and sizes of the worst step, which are gated; others as the median."""
    return None if result.summary is None else result.summary.decisive(number)


FORMATS = {".json": render}

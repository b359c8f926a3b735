"""The run's results as JSON: all of them, and the numbers in the forms of tools that draw their history.

A history has only measurements on the device that was asked for, so that no chart jumps when a runner had no GPU.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report import Disuse
from pytest_torchprof.report.result import Outcome, as_reported, known_of
from pytest_torchprof.text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline.entry import Times
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

SCHEMA: Final = 1
JUDGED: Final = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.XFAILED, Outcome.WARNED})
"""The outcomes of measurements whose numbers stand in a history."""
# For all of them smaller is better. Times are medians; the others are those of the worst step, as they are gated.
_SHOWN: Final = tuple(number for number in TABLE if number.headline)
_OF_WORST: Final = ("count", "bytes")
_LONGEST_NAME: Final = 1024


def render(run: RunResults) -> str:
    """Return ``{"schema", "environment", "results"}`` and the unused entries of baselines as indented JSON."""
    unused: dict[str, dict[str, list[str]]] = {str(why): {} for why in Disuse}
    for entries in run.unused:
        unused[entries.why][entries.file] = list(entries.keys)
    against = {} if run.against is None else {"against": asdict(run.against) | {"gone": list(run.gone)}}
    environment = known_of(run.environment)
    return json_text(
        {
            "schema": SCHEMA,
            "environment": environment,
            **against,
            "results": [as_reported(result) for result in run.results],
            **unused,
        }
    )


def benchmark(run: RunResults) -> str:
    """Return the JSON that github-action-benchmark reads as ``customSmallerIsBetter``: name, unit, value, range."""
    rows = []
    for result in judged_results(run):
        for name, unit, value in _headline_values(result):
            rows.append({"name": f"{result.name}: {name}", "unit": unit, "value": value})
        if result.time is not None:
            low, middle, high = _quartiles(result.time)
            spread = f"± {max(high - middle, middle - low):.4g}"
            rows.append({"name": f"{result.name}: time", "unit": "us", "value": middle, "range": spread})
    return json_text(rows)


def bmf(run: RunResults) -> str:
    """Return Bencher Metric Format: benchmark -> measure -> value; untraced times as its ``latency``, in ns."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for result in judged_results(run):
        measures = {name.replace("_", "-"): {"value": value} for name, _, value in _headline_values(result)}
        if result.time is not None:
            low, middle, high = (time_us * 1000 for time_us in _quartiles(result.time))
            measures["latency"] = {"value": middle, "lower_value": low, "upper_value": high}
        benchmarks[_shorten_name(result.name)] = measures
    return json_text(benchmarks)


def judged_results(run: RunResults) -> Iterator[Result]:
    """Yield the results that were measured on the device that was asked for."""
    return (result for result in run.results if result.outcome in JUDGED and result.summary is not None)


def reported_value(result: Result, number: Number) -> float | None:
    """Return a number of a measurement: counts and sizes of the worst step, which are gated; others as the median."""
    if result.summary is None:
        return None
    value: float | None = getattr(result.summary.worst if number.unit in _OF_WORST else result.summary, number.name)
    return value


def _headline_values(result: Result) -> Iterator[tuple[str, str, float]]:
    for number in _SHOWN:
        value = reported_value(result, number)
        if value is not None:
            yield number.name, number.title if number.unit == "count" else number.unit, value


def _quartiles(time: Times) -> tuple[float, float, float]:
    quantiles = time.quantiles_us
    return quantiles[len(quantiles) // 4], time.median_us, quantiles[-1 - len(quantiles) // 4]


def _shorten_name(name: str) -> str:
    """Return a name that is short enough for Bencher, and still unique."""
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}-{digest}"


FORMATS = {".json": render, ".benchmark.json": benchmark, ".bmf.json": bmf}

"""The run's numbers in the forms of tools that draw their history, with nothing of ours on their side.

Only what was measured on the device that was asked for: a chart must not jump because a runner had no GPU.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.results import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report.results import Result, RunResults

# All of them are better the smaller they are. Times are medians; the others are the worst step's, as they are gated.
_SHOWN: Final = tuple(number for number in TABLE if number.headline)
_LONGEST_NAME: Final = 1024


def benchmark(run: RunResults) -> str:
    """Return what github-action-benchmark reads as ``customSmallerIsBetter``: name, unit, value, range."""
    rows = []
    for result in _measured(run):
        rows += [
            {"name": f"{result.name}: {name}", "unit": unit, "value": value} for name, unit, value in _numbers(result)
        ]
        if result.time:
            low, middle, high = _quartiles(result)
            spread = f"± {max(high - middle, middle - low):.4g}"
            rows.append({"name": f"{result.name}: time", "unit": "us", "value": middle, "range": spread})
    return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def bmf(run: RunResults) -> str:
    """Return Bencher Metric Format: benchmark -> measure -> value; untraced times as its ``latency``, in ns."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for result in _measured(run):
        measures = {name.replace("_", "-"): {"value": value} for name, _, value in _numbers(result)}
        if result.time:
            low, middle, high = (time_us * 1000 for time_us in _quartiles(result))
            measures["latency"] = {"value": middle, "lower_value": low, "upper_value": high}
        benchmarks[_short(result.name)] = measures
    return json.dumps(benchmarks, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measured(run: RunResults) -> Iterator[Result]:
    judged = (Outcome.PASSED, Outcome.FAILED, Outcome.XFAILED)
    return (result for result in run.results if result.outcome in judged and result.summary)


def _numbers(result: Result) -> Iterator[tuple[str, str, float]]:
    for number in _SHOWN:
        value = (result.summary if number.unit == "us" else result.summary["worst"]).get(number.name)
        if value is not None:
            yield number.name, number.title if number.unit == "count" else number.unit, value


def _quartiles(result: Result) -> tuple[float, float, float]:
    quantiles = result.time["quantiles_us"]
    return quantiles[len(quantiles) // 4], result.time["median_us"], quantiles[-1 - len(quantiles) // 4]


def _short(name: str) -> str:
    """Return a name no longer than Bencher takes, and still unlike any other."""
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}-{digest}"


FORMATS = {".benchmark.json": benchmark, ".bmf.json": bmf}

"""Measurements for a history: a line or a row for each, and the forms of tools that draw their history.

Those tools get only measurements on the device that was asked for, so that no chart jumps when a runner had no GPU.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.exported import FACTS, NUMBERS, TIME, VERSIONS, exported
from pytest_torchprof.text import json_text, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_torchprof.baseline.entry import Times
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.exported import Exported

SCHEMA: Final = 1
_BENCHMARK: Final = "pytest-torchprof"
# For all of them smaller is better. Times are medians; the others are those of the worst step, as they are gated.
_SHOWN: Final = tuple(number for number in TABLE if number.headline)
_LONGEST_NAME: Final = 1024


def json_lines(rows: Iterable[Exported]) -> Iterator[str]:
    """Yield a JSON object per measurement, one a line, so that the files of many runs can be concatenated."""
    for row in rows:
        numbers = {name: of(row) for name, of in NUMBERS.items() if row.numbers or name == TIME}
        yield json.dumps({"schema": SCHEMA, **{name: of(row) for name, of in FACTS.items()}, "numbers": numbers}) + "\n"


def table(rows: Iterable[Exported]) -> Iterator[str]:
    """Yield comma-separated values with a heading: the data of ``json_lines``, with a column for each number."""
    columns = {**FACTS, **NUMBERS}
    yield _csv_line(columns)
    for row in rows:
        yield _csv_line(_cell(of(row)) for of in columns.values())


def pytorch(rows: Iterable[Exported]) -> Iterator[str]:
    """Yield the records of PyTorch's benchmark database, version 3: one per measurement and headline number.

    The fields are those of the table ``oss_ci_benchmark_v3`` in pytorch/test-infra; the uploader adds the commit, the
    job and the machine. Measurements on a CPU that stood in for a GPU are left out.
    """
    yield json_text([record for row in _judged(rows) for record in _records(row)])


def benchmark(rows: Iterable[Exported]) -> Iterator[str]:
    """Yield the JSON that github-action-benchmark reads as ``customSmallerIsBetter``: name, unit, value, range."""
    shown = []
    for row in _judged(rows):
        for name, unit, value in _headline_values(row):
            shown.append({"name": f"{row.name}: {name}", "unit": unit, "value": value})
        if row.time is not None:
            low, middle, high = _quartiles(row.time)
            spread = f"± {max(high - middle, middle - low):.4g}"
            shown.append({"name": f"{row.name}: time", "unit": "us", "value": middle, "range": spread})
    yield json_text(shown)


def bmf(rows: Iterable[Exported]) -> Iterator[str]:
    """Yield Bencher Metric Format: benchmark -> measure -> value; untraced times as its ``latency``, in ns."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for row in _judged(rows):
        measures = {name.replace("_", "-"): {"value": value} for name, _, value in _headline_values(row)}
        if row.time is not None:
            low, middle, high = (time_us * 1000 for time_us in _quartiles(row.time))
            measures["latency"] = {"value": middle, "lower_value": low, "upper_value": high}
        benchmarks[_shorten_name(row.name)] = measures
    yield json_text(benchmarks)


def _judged(rows: Iterable[Exported]) -> Iterator[Exported]:
    return (row for row in rows if row.judged)


def _csv_line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a value for a row: one line, which no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _records(row: Exported) -> Iterator[dict[str, Any]]:
    known = {"device": row.device, "structure": row.structure, "baseline": row.baseline}
    extra = {name: str(value) for name, value in known.items() if value is not None}
    shared = {
        "benchmark": {"name": _BENCHMARK, "extra_info": {**extra, "verdict": row.verdict}},
        "model": {"name": row.name, "type": "test"},
        "dependencies": {
            name: {"version": version} for name in VERSIONS if (version := getattr(row.environment, name))
        },
    }
    values = [(number.name, number.unit, row.numbers.get(number.name)) for number in _SHOWN]
    for name, unit, value in (*values, (TIME, "us", row.time_us)):
        # The database takes 32-bit floats, and its readers no NaN.
        if value is not None and math.isfinite(value):
            yield {**shared, "metric": {"name": name, "benchmark_values": [float(value)], "extra_info": {"unit": unit}}}


def _headline_values(row: Exported) -> Iterator[tuple[str, str, float]]:
    for number in _SHOWN:
        value = row.numbers.get(number.name)
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


OF_MANY_RUNS: Final[Mapping[str, Callable[[Iterable[Exported]], Iterator[str]]]] = {".jsonl": json_lines, ".csv": table}
"""Forms whose rows name their run: measurements of any number of runs stand in one file."""
OF_ONE_RUN: Final[Mapping[str, Callable[[Iterable[Exported]], Iterator[str]]]] = {
    ".benchmark.json": benchmark,
    ".bmf.json": bmf,
    ".pytorch.json": pytorch,
}
"""Forms that tell the measurements of one run."""


def _exported_text(write: Callable[[Iterable[Exported]], Iterator[str]], run: RunResults) -> str:
    return "".join(write(exported(run)))


FORMATS = {suffix: partial(_exported_text, write) for suffix, write in {**OF_MANY_RUNS, **OF_ONE_RUN}.items()}

"""The results of a run for a history: a line or a row per measurement, and PyTorch's own benchmark format."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.report.json_report import judged_results, reported_value
from pytest_torchprof.text import json_text, printable
from pytest_torchprof.trace.metadata import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.result import Result

SCHEMA: Final = 1
_VERSIONS: Final = ("torch", "cuda", "rocm", "triton", "python")
_TIME: Final = "time_us"
_BENCHMARK: Final = "pytest-torchprof"


def json_lines(run: RunResults) -> str:
    """Return a JSON object per measurement, one a line, so that the files of many runs can be concatenated."""
    return "".join(json.dumps({"schema": SCHEMA, **row}) + "\n" for row in _rows(run))


def table(run: RunResults) -> str:
    """Return comma-separated values with a heading: the data of ``json_lines``, with a column for each number."""
    text = io.StringIO()
    names = ("commit", "branch", "dirty", "test", "label", "device", *_VERSIONS, "verdict", "baseline", "structure")
    columns = (*names, *(number.name for number in TABLE), _TIME)
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in _rows(run):
        known = {**row, **row["numbers"]}
        writer.writerow({name: _cell(known[name]) for name in columns if known.get(name) is not None})
    return text.getvalue()


def pytorch(run: RunResults) -> str:
    """Return the records of PyTorch's benchmark database, version 3: one per measurement and headline number.

    The fields are those of the table ``oss_ci_benchmark_v3`` in pytorch/test-infra; the uploader adds the commit, the
    job and the machine. Measurements on a CPU that stood in for a GPU are left out.
    """
    return json_text([record for result in judged_results(run) for record in _records(result)])


def _rows(run: RunResults) -> Iterator[dict[str, Any]]:
    commit = run.commit
    of_commit = {
        "commit": commit and commit.sha,
        "branch": commit and commit.branch,
        "dirty": commit and commit.dirty,
    }
    for result in run.results:
        numbers = {number.name: reported_value(result, number) for number in TABLE} if result.summary else {}
        environment = result.environment or Environment()
        yield {
            **of_commit,
            "test": result.nodeid,
            "label": result.label,
            "device": environment.gpu or environment.cpu,
            **{name: getattr(environment, name) for name in _VERSIONS},
            "verdict": str(result.outcome),
            "baseline": result.baseline_state and str(result.baseline_state),
            "structure": result.structure,
            "numbers": {**numbers, _TIME: _median_us(result)},
        }


def _median_us(result: Result) -> float | None:
    return None if result.time is None else result.time.median_us


def _cell(value: object) -> object:
    """Return a value for a row: one line, which no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _records(result: Result) -> Iterator[dict[str, Any]]:
    environment = result.environment or Environment()
    device = environment.gpu or environment.cpu
    known = {"device": device, "structure": result.structure, "baseline": result.baseline_state}
    extra = {name: str(value) for name, value in known.items() if value is not None}
    shared = {
        "benchmark": {"name": _BENCHMARK, "extra_info": {**extra, "verdict": str(result.outcome)}},
        "model": {"name": result.name, "type": "test"},
        "dependencies": {name: {"version": version} for name in _VERSIONS if (version := getattr(environment, name))},
    }
    values = [(number.name, number.unit, reported_value(result, number)) for number in TABLE if number.headline]
    for name, unit, value in (*values, (_TIME, "us", _median_us(result))):
        # The database takes 32-bit floats, and its readers no NaN.
        if value is not None and math.isfinite(value):
            yield {**shared, "metric": {"name": name, "benchmark_values": [float(value)], "extra_info": {"unit": unit}}}


FORMATS = {".jsonl": json_lines, ".csv": table, ".pytorch.json": pytorch}

"""The JSON report of a run, read back; a report that another tool has damaged is refused in one sentence."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.result import Result, as_reported, from_report
from pytest_torchprof.trace.metadata import Environment  # noqa: TC001 - msgspec reads the annotation

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = 1
_PEEK: Final = 65536


class _ReportFile(Struct, kw_only=True):
    results: tuple[Result, ...]
    environment: Environment | None = None


def is_report(path: Path) -> bool:
    """Distinguish a report from a recording by its beginning: both are JSON objects."""
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except OSError:
        return False  # Reading it as a recording says why.
    return b'"results"' in head and b'"schema"' in head and b'"traceEvents"' not in head


def _finite(text: str) -> float:
    """Return a JSON number; ValueError for anything else, such as NaN, which is neither above nor below any bound."""
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number


def read_report(path: Path) -> tuple[tuple[Result, ...], Environment | None]:
    """Return the results and the environment of the run; TorchprofError if they are not what this version writes."""
    try:
        document = json.loads(path.read_bytes(), parse_float=_finite, parse_constant=_finite)
    except OSError as problem:
        from pytest_torchprof.reasons.files_asked import FileNotRead  # noqa: PLC0415 - a report that can be read needs none

        is_missing = isinstance(problem, FileNotFoundError)
        raise TorchprofError.because(FileNotRead(str(path), problem.strerror or str(problem), is_missing)) from None
    except (ValueError, RecursionError) as problem:
        from pytest_torchprof.reasons.reports import NoReport  # noqa: PLC0415 - a report that can be read needs none of these

        raise TorchprofError.because(NoReport(str(path), str(problem))) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        from pytest_torchprof.reasons.reports import NewerReport  # noqa: PLC0415 - as above

        raise TorchprofError.because(NewerReport(str(path), schema, SCHEMA))
    try:
        if isinstance(document, dict) and isinstance(results := document.get("results"), list):
            document["results"] = [from_report(entry) if isinstance(entry, dict) else entry for entry in results]
        report = msgspec.convert(document, _ReportFile)
        for result in report.results:
            as_reported(result)  # This version may have no words for facts of the right type.
    except (LookupError, ValueError) as problem:  # msgspec's ValidationError is a ValueError.
        from pytest_torchprof.reasons.reports import OtherReportForm  # noqa: PLC0415 - as above

        raise TorchprofError.because(OtherReportForm(str(path), str(problem))) from None
    if not all(verdict.limit for result in report.results for verdict in result.limits):
        from pytest_torchprof.reasons.reports import EarlierReport  # noqa: PLC0415 - as above

        raise TorchprofError.because(EarlierReport(str(path)))
    results = (
        entry if entry.environment else replace(entry, environment=report.environment) for entry in report.results
    )
    return tuple(results), report.environment

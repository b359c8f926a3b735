"""The reports of a rank: pytest's own, handed over as a worker of pytest-xdist hands over its reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.testing.pytest_report import line_of
from pytest_torchprof.testing.workers import BRIEF, CODE
from pytest_torchprof.text import first_line
from pytest_torchprof.text.of_pytest import why_skipped

if TYPE_CHECKING:
    from collections.abc import Iterable


def to_line(report: pytest.TestReport, config: pytest.Config) -> str:
    """Return a report as a line of JSON."""
    # Python's own writer: a test's properties and output may hold NaN, lone surrogates and objects of any kind.
    return json.dumps(config.hook.pytest_report_to_serializable(config=config, report=report), default=str)


def from_line(line: bytes, config: pytest.Config) -> pytest.TestReport:
    """Return the report of which ``to_line`` made this line."""
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=json.loads(line))
    if isinstance(report.longrepr, list):  # pytest keeps the place of a skip as a tuple, and JSON has none.
        report.longrepr = tuple(report.longrepr)
    return report


def failure(when: str, text: str = "", line: str = "", *, ended_s: float = 0.0) -> pytest.TestReport:
    """Return a report of why a test could not run on a rank: the text, and the same in one line."""
    brief: Any = {BRIEF: ("", line)}
    return pytest.TestReport("", ("", None, ""), {}, "failed", text, when, stop=ended_s, **brief)  # type: ignore[arg-type]


def text_of(report: pytest.TestReport) -> str:
    """Return the whole text of why a phase failed or was skipped."""
    longrepr: Any = report.longrepr
    return why_skipped(longrepr[2]) if isinstance(longrepr, tuple) else report.longreprtext


def short_of(report: pytest.TestReport) -> str:
    """Return the text that the terminal shows of it with ``-q``; empty where that is the whole text."""
    return str(getattr(report, BRIEF, ("", ""))[0])


def brief_of(report: pytest.TestReport) -> str:
    """Return why a phase failed or was skipped, in one line."""
    if getattr(report.longrepr, "reprcrash", None) is not None:
        return line_of(report)
    return first_line(str(getattr(report, BRIEF, ("", ""))[1])) or line_of(report)


def code_of(report: pytest.TestReport) -> str | None:
    """Return the code of our error by which a phase failed; None if it was no error of ours."""
    return getattr(report, CODE, None)


def expected_of(report: pytest.TestReport) -> str | None:
    """Return the reason of an expected failure; None where the test was to pass."""
    return getattr(report, "wasxfail", None)


def place_of(report: pytest.TestReport) -> tuple[str, int] | None:
    """Return the file and the line where a test was skipped; None if it was not."""
    longrepr: Any = report.longrepr
    return (str(longrepr[0]), int(longrepr[1])) if isinstance(longrepr, tuple) else None


def has_failed(reports: Iterable[pytest.TestReport], code: str | None = None) -> bool:
    """Return whether a phase has failed, by the error of this code where one is given."""
    return any(report.outcome == "failed" and code in (None, code_of(report)) for report in reports)

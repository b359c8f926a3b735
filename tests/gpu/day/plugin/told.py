"""A plugin of pytest, `-p told`: what each test says is in the file DAY_TOLD at once, whatever becomes of the run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    _tell(collected=[item.nodeid for item in session.items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        _tell(test=report.nodeid, when="collection", **_outcome(report))


def pytest_runtest_logstart(nodeid: str) -> None:
    _tell(test=nodeid, when="start")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    facts = [[name, str(value)] for name, value in report.user_properties if not name.startswith("torchprof.")]
    _tell(test=report.nodeid, when=report.when, duration_s=report.duration, facts=facts, **_outcome(report))


def _outcome(report: pytest.CollectReport | pytest.TestReport) -> dict[str, str]:
    """Return the outcome; of what did not pass what its error or its skip says, and the whole report."""
    if isinstance(report.longrepr, tuple):
        return {"outcome": report.outcome, "said": report.longrepr[2]}
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext
    return {"outcome": report.outcome, "said": str(getattr(crash, "message", None) or text), "report": text}


def _tell(**what: Any) -> None:
    with Path(os.environ["DAY_TOLD"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")

"""The test that stands for one of several ranks: what it runs is a job, and what it reports is what came of that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.testing.phases import BRIEF
from pytest_torchprof.testing.ranks.launch import run_job
from pytest_torchprof.testing.ranks.verdict import merged_state, verdict_of

if TYPE_CHECKING:
    from pytest_torchprof.testing.ranks.launch import JobPlan
    from pytest_torchprof.testing.ranks.verdict import JobVerdict
    from pytest_torchprof.testing.session import RunState


class RankFailed(TorchprofError):
    """A rank has failed; the report of the test says by what."""


class JobItem(pytest.Item):
    """Stands in the place of a test function that ranks call: the same node id and marks, and no fixtures here."""

    def __init__(self, *, function: pytest.Function, state: RunState, plan: JobPlan, **more: Any) -> None:
        super().__init__(**more)
        self._state = state
        self._plan = plan
        self._place = function.reportinfo()
        self._verdict: JobVerdict | None = None
        self.own_markers = function.own_markers
        self.keywords.update(function.keywords)
        # Where other plugins look for what a test is of.
        self.obj, self.function, self.cls, self.module = function.obj, function.function, function.cls, function.module

    def reportinfo(self) -> Any:
        """Return where the function stands."""
        return self._place

    def runtest(self) -> None:
        """Run the job."""
        self._verdict = None
        self._state.forget(self._plan.task.nodeid)
        verdict = verdict_of(run_job(self._plan))
        self._state.merge(merged_state(self._plan.task.nodeid, verdict))
        self.user_properties[:] = verdict.properties
        if self.config.option.capture == "no":
            sys.stdout.writelines(f"{name}:\n{text}" for name, text in verdict.sections)
        self._verdict = verdict
        if verdict.outcome == "failed":
            raise RankFailed(verdict.line)

    def tell(self, report: pytest.TestReport) -> None:
        """Make the report of the call that of the ranks; what ended the job before they came to theirs stays."""
        verdict = self._verdict
        if verdict is None or report.when != "call":
            return
        phase = verdict.first.phase
        vars(report).pop("wasxfail", None)
        if verdict.expected is not None and verdict.outcome != "failed":
            report.wasxfail = verdict.expected
        report.longrepr = None
        report.outcome = "passed"
        if verdict.outcome == "failed":
            report.outcome, report.longrepr = "failed", verdict.text()
            if phase.short and self.config.get_verbosity() < 0:
                setattr(report, BRIEF, [verdict.text(short=True), verdict.line])
        elif verdict.outcome != "passed":
            file, line = phase.place or (str(self.path), self._place[1] or 0)
            report.outcome, report.longrepr = "skipped", (file, line, f"Skipped: {verdict.line}")
        report.sections += verdict.sections

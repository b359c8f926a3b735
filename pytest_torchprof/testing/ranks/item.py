"""Tests that stand for others: what each runs is a job of ranks, or a process with its own compile caches."""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_torchprof.capture.cache_phase import CachePhase
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.testing.ranks.reports import place_of, short_of
from pytest_torchprof.testing.ranks.task import Turn
from pytest_torchprof.testing.ranks.verdict import merged_state, verdict_of
from pytest_torchprof.testing.workers import BRIEF, COLUMNS, nodeid_of
from pytest_torchprof.text.of_pytest import as_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.testing.ranks.job import Jobs
    from pytest_torchprof.testing.ranks.launch import JobEnd, JobPlan
    from pytest_torchprof.testing.ranks.verdict import JobVerdict
    from pytest_torchprof.testing.session import RunState


class RankFailed(TorchprofError):
    """A rank has failed; the report of the test says why."""


class JobItem(pytest.Item):
    """Stands in the place of a test function that ranks call: the same node id and marks, and no fixtures here."""

    def __init__(
        self, *, function: pytest.Function, state: RunState, plan: JobPlan, jobs: Jobs, test_id: str, **more: Any
    ) -> None:
        super().__init__(**more)
        self._state = state
        self.plan = plan
        """How its job runs; tests of the same plan may share one."""
        self._jobs = jobs
        self.test_id = test_id
        """The node id by which the ranks know it."""
        self.following: pytest.Item | None = None
        """The test that pytest runs after it."""
        self._place = function.reportinfo()
        self._verdict: JobVerdict | None = None
        self.own_markers = function.own_markers
        self.keywords.update(function.keywords)
        # Other plugins look here for the module and class of a test.
        self.obj, self.function, self.cls, self.module = function.obj, function.function, function.cls, function.module

    def precede(self, following: pytest.Item | None) -> None:
        """Take the test that pytest runs after it."""
        self.following = following

    def reportinfo(self) -> Any:
        """Return where the function is defined."""
        return self._place

    def runtest(self) -> None:
        """Run the job."""
        self._verdict = None
        self._state.forget(self.test_id)
        # As a fixture of the module would.
        module = next(node for node in self.listchain() if isinstance(node, pytest.File))
        module.addfinalizer(self._jobs.close)
        verdict = verdict_of(self._job_end())
        self._state.merge(merged_state(self.test_id, verdict))
        self.user_properties[:] = verdict.properties
        if self.config.option.capture == "no":
            sys.stdout.writelines(f"{name}:\n{text}" for name, text in verdict.sections)
        self._verdict = verdict
        if verdict.outcome == "failed":
            raise RankFailed(verdict.line)

    def _job_end(self) -> JobEnd:
        return self._jobs.run(self.plan, self._of_same_job(), self._turn())

    def _turn(self) -> Turn:
        stays = self._state.options.ranks_scope == "file" and self.following is not None
        following = self.following if self.following is not None and self.following.path == self.path else None
        if not stays or following is None or not self._has_successor():
            return Turn(nodeid=self.test_id, last=True)
        return Turn(nodeid=self.test_id, following=nodeid_of(following))

    def _of_same_job(self) -> list[str]:
        if self._state.options.ranks_scope != "file":
            return [self.test_id]
        return [item.test_id for item in self.session.items if isinstance(item, JobItem) and item.plan == self.plan]

    def _has_successor(self) -> bool:
        """Return whether the file's next test of ranks fits this item's job; a worker of xdist may not run it."""
        for item in self._after():
            if isinstance(item, JobItem):
                return item.plan == self.plan
        return False

    def _after(self) -> Iterator[pytest.Item]:
        items = iter(self.session.items)
        is_behind = any(item is self for item in items)
        return (item for item in items if is_behind and item.path == self.path)

    def fill(self, report: pytest.TestReport) -> None:
        """Make the report of the call that of the ranks; an error that ended the job earlier is kept."""
        verdict = self._verdict
        if verdict is None or report.when != "call":
            return
        first = verdict.first.report
        vars(report).pop("wasxfail", None)
        if verdict.expected is not None and verdict.outcome != "failed":
            report.wasxfail = verdict.expected
        report.longrepr = None
        report.outcome = "passed"
        if verdict.outcome == "failed":
            columns = self.config.stash.get(COLUMNS, None)
            report.outcome, report.longrepr = "failed", verdict.text(columns=columns)
            if short_of(first) and self.config.get_verbosity() < 0:
                setattr(report, BRIEF, [verdict.text(short=True, columns=columns), verdict.line])
        elif verdict.outcome != "passed":
            file, line = place_of(first) or (str(self.path), self._place[1] or 0)
            report.outcome, report.longrepr = "skipped", (file, line, as_skip(verdict.line))
        report.sections += verdict.sections


class CachedItem(JobItem):
    """Runs a test in a process of its own; for warm caches twice, and the second outcome counts."""

    def _job_end(self) -> JobEnd:
        with tempfile.TemporaryDirectory(prefix="torchprof-caches-", ignore_cleanup_errors=True) as folder:
            if self.plan.compile_cache == "warm":
                end = self._in_process(CachePhase(name="cold", folder=folder, fills=True))
                if end.lost:
                    return end
                return self._in_process(CachePhase(name="warm", folder=folder))
            return self._in_process(CachePhase(name="cold", folder=folder))

    def _in_process(self, phase: CachePhase) -> JobEnd:
        variables = {**self.plan.variables, **phase.variables}
        plan = replace(self.plan, phase=phase, variables=variables)
        return self._jobs.run(plan, [self.test_id], Turn(nodeid=self.test_id, last=True))

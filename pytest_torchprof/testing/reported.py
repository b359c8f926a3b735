"""The reports of pytest on a phase that failed, in the results: they agree with its counts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.reasons.errors import is_of_the_code
from pytest_torchprof.report.account import PassedUnexpectedly
from pytest_torchprof.report.ci import properties
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.testing.ending import ENDS, Ending, failed_by
from pytest_torchprof.testing.judging import judge
from pytest_torchprof.testing.results import below_root

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.report.result import Result
    from pytest_torchprof.testing.test_run import TestRun


def agree_with_report(run: TestRun, report: pytest.TestReport, problem: BaseException | None) -> None:
    """Let no measurement of a test pass in whose phases or subtests pytest counts a failure or an error."""
    if problem is None:
        if is_unexpected_pass(report):
            _end_all(run, Ending(by_itself=PassedUnexpectedly(), outcome=Outcome.FAILED))
        return
    if run.in_call:
        # A subtest has a report of its own, and its test goes on: it is judged at its end.
        run.fail_part(problem)
        return
    in_fixture = report.when != "call"
    is_unmeasured = is_of_the_code(problem) and _ended_unmeasured(run)
    if is_unmeasured:
        # It has a row of its own, as pytest counts it: "no test was measured" would hide that it should have been.
        run.add(None)
    if run.measurements and is_of_the_code(problem):
        # They were taken before or after the body, at whose end a test is judged; pytest reports the error already.
        with suppress(Exception, *ENDS):
            judge(run, problem, in_fixture=in_fixture)
    _end_all(run, failed_by(problem, in_fixture=in_fixture), whatever_failed=is_unmeasured)


def agree_with_expected(run: TestRun, problem: BaseException | None) -> None:
    """Give a test that failed as it was expected to, before it measured anything, a row, as pytest counts it."""
    if problem is not None and is_of_the_code(problem) and _ended_unmeasured(run):
        run.add(None)
        with suppress(Exception, *ENDS):
            # `pytest.xfail()` cuts off what is announced; here the row is to stay.
            judge(run, pytest.fail.Exception(str(problem)), in_fixture=False)
        _end_all(run, failed_by(problem, in_fixture=False), whatever_failed=True)
    run.test.state.expect_failure(run.test.nodeid)


def _ended_unmeasured(run: TestRun) -> bool:
    """Return whether a marked test that runs in this process has neither a measurement nor a result yet."""
    test = run.test
    is_asked = test.state.options.enabled and test.options.marker is not None and test.options.ranks is None
    return is_asked and not run.measurements and not test.state.results_of(test.nodeid)


def is_unexpected_pass(report: pytest.TestReport) -> bool:
    """Return whether pytest fails a test because it was strictly expected to fail."""
    return str(report.longrepr or "").startswith("[XPASS(strict)]")


def _end_all(run: TestRun, ended: Ending, *, whatever_failed: bool = False) -> None:
    """Give all measurements of a test its own end, where none of them failed by itself, or ``whatever_failed``."""
    test = run.test
    failed = any(result.outcome.is_failure for result in test.state.results_of(test.nodeid))
    if ended.by_itself is None or (failed and not whatever_failed):
        return
    more = {"reason": ended.reason, "culprit": below_root(test, [ended.raised_at])}
    test.state.overrule(test.nodeid, ended.outcome, ended.by_itself, **more)


def renew_properties(report: pytest.TestReport, item: pytest.Item, results: Iterable[Result]) -> None:
    """Let JUnit's properties of a test say how it came out at last: by its report, or on another rank."""
    renewed = {name: value for result in results for name, value in properties(result)}
    item.user_properties[:] = [(name, renewed.get(name, value)) for name, value in item.user_properties]
    report.user_properties = list(item.user_properties)

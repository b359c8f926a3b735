"""Tests that are expected to fail: what an expectation may hide, and what becomes of it when nothing is judged."""

from __future__ import annotations

import inspect
import unittest
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.errors import of_ours_in
from pytest_torchprof.testing.judging import judged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from pytest_torchprof.testing.measure import TestRun


def called(run: TestRun, item: pytest.Item) -> AbstractContextManager[None]:
    """Return what is to be around the call of a test: its body is measured, and judged when it has passed.

    unittest decides inside of its own call whether a failure was expected, so a method of it is judged there.
    """
    again = run.body_is_step and inspect.iscoroutinefunction(getattr(item, "obj", None))
    inside = _is_unittests(item) and not again
    return run.body(item, partial(_inside, run, item)) if inside else _outside(run, item)


@contextmanager
def _outside(run: TestRun, item: pytest.Item) -> Iterator[None]:
    with judged(run), run.body(item):
        yield


@contextmanager
def _inside(run: TestRun, item: pytest.Item) -> Iterator[None]:
    try:
        with judged(run):
            yield
    except pytest.skip.Exception as skipped:
        # It knows no other skip: this one would be the failure that was expected.
        raise unittest.SkipTest(str(skipped)) from None
    if (reason := _unjudged(run)) and _expects_failure(item):
        raise unittest.SkipTest(reason)


def _is_unittests(item: pytest.Item) -> bool:
    kind = getattr(item, "cls", None)
    return isinstance(kind, type) and issubclass(kind, unittest.TestCase)


def _expects_failure(item: pytest.Item) -> bool:
    return any(getattr(one, "__unittest_expecting_failure__", False) for one in (item.obj, item.cls))  # type: ignore[attr-defined]


def _unjudged(run: TestRun) -> str | None:
    """Return why the limits of a test were not judged by the run's own choice; None if they were, or it has none."""
    if run.state.settings.enabled:
        return None
    limits = [*run.options.limits, *(asked for measured in run.measured for asked in measured.limits)]
    names = ", ".join(dict.fromkeys(asked.limit.name for asked in limits))
    return f"body passed; measuring is off (--torchprof=off), not judged: {names}" if names else None


def corrected(report: pytest.TestReport, raised: BaseException | None, run: TestRun, item: pytest.Item) -> None:
    """Take back what an expected failure does to a report where nothing was measured, or nothing judged."""
    expected = hasattr(report, "wasxfail")
    hidden = of_ours_in(raised) or of_ours_in(run.failure if report.when == "call" else None)
    if hidden is not None and report.outcome == "skipped" and expected:
        # What is expected is a failure; that nothing was measured, or asked for in a way that cannot be, is none.
        report.outcome = "failed"
        report.longrepr = str(hidden)
        del report.wasxfail
        expected = False
    passed = report.outcome == "passed" or (report.outcome == "failed" and isinstance(report.longrepr, str))
    is_unexpected = expected or str(report.longrepr or "").startswith("[XPASS(strict)]")
    if report.when == "call" and passed and is_unexpected and (reason := _unjudged(run)):
        # It may well fail by its limits only: that it has passed without them says nothing.
        report.outcome = "skipped"
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, f"Skipped: {reason}")
        if expected:
            del report.wasxfail

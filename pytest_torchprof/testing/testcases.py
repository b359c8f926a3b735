"""Tests of unittest: how they get the fixture, and the advice for those that cannot."""

from __future__ import annotations

import unittest
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.testing.fixture import Torchprof
    from pytest_torchprof.testing.test_run import TestRun

ATTRIBUTE = "torchprof"


def is_unittests(item: pytest.Item) -> bool:
    """Return whether a test is a method of a unittest.TestCase."""
    kind = getattr(item, "cls", None)
    return isinstance(kind, type) and issubclass(kind, unittest.TestCase)


@contextmanager
def judged_in_unittest(run: TestRun, item: pytest.Item) -> Iterator[None]:
    """Around the body of a method, which is judged here: unittest decides inside its own call what was expected."""
    from pytest_torchprof.testing.judging import judged_after  # noqa: PLC0415 - a plain TestCase does without

    try:
        with judged_after(run):
            yield
    except pytest.skip.Exception as skipped:
        # It knows no other skip: this one would be the failure that was expected.
        raise unittest.SkipTest(str(skipped)) from None
    marked: tuple[Any, ...] = (item.obj, item.cls)  # type: ignore[attr-defined]
    is_expected = any(getattr(holder, "__unittest_expecting_failure__", False) for holder in marked)
    if is_expected and (reason := run.why_unjudged):
        raise unittest.SkipTest(str(reason))


def hand_over(fixture: Torchprof, instance: object) -> Torchprof:
    """Make the fixture ``self.torchprof`` of a unittest.TestCase, whose methods take no arguments; return it."""
    if isinstance(instance, unittest.TestCase):
        setattr(instance, ATTRIBUTE, fixture)
    return fixture


def advise(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Add advice to the failure of a TestCase that has no ``self.torchprof``."""
    problem = excinfo.value
    advice = _advice(problem) if isinstance(problem, AttributeError) and problem.name == ATTRIBUTE else None
    if advice is None:
        return
    # An error of setUpClass is raised again for each test of the class.
    if advice not in getattr(problem, "__notes__", ()):
        problem.add_note(advice)
    report.longrepr = item.repr_failure(excinfo)


def _advice(problem: AttributeError) -> str | None:
    if isinstance(problem.obj, type) and issubclass(problem.obj, unittest.TestCase):
        from pytest_torchprof.reasons.unittests import NoFixtureOfClass  # noqa: PLC0415  (for what fails alone)

        return str(NoFixtureOfClass())
    if isinstance(problem.obj, unittest.TestCase):
        from pytest_torchprof.reasons.unittests import NoFixtureInTestCase  # noqa: PLC0415  (as above)

        return str(NoFixtureInTestCase())
    return None

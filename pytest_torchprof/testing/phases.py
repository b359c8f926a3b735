"""What the plugin does in the phases of a test: calls its body as the measured step, and judges what was measured."""

from __future__ import annotations

import inspect
import unittest
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.capture import torch_compile
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured, find_own_error
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.conclusion import Ending, conclude
from pytest_torchprof.testing.measured_calls import measure_function
from pytest_torchprof.testing.testcases import is_unittests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pytest_torchprof.limits import Screen
    from pytest_torchprof.testing.conclusion import Conclusion
    from pytest_torchprof.testing.test_run import TestRun

LEAST_LINES = 12
"""For each failure of a test that has several: together they may then be longer than a screen."""


@contextmanager
def around_call(run: TestRun, item: pytest.Item) -> Iterator[None]:
    """Around the call of a test: its body is measured, and judged when it has passed.

    unittest decides inside of its own call whether a failure was expected, so a method of it is judged there.
    """
    calls_coroutine_again = run.body_is_step and inspect.iscoroutinefunction(getattr(item, "obj", None))
    if is_unittests(item) and not calls_coroutine_again:
        with _measured_body(run, item, partial(_conclude_in_unittest, run, item)):
            yield
    else:
        with _conclude_after(run), _measured_body(run, item):
            yield


@contextmanager
def around_teardown(run: TestRun) -> Iterator[None]:
    """Judge what fixtures, and unittest's ``tearDown``, measure after the test."""
    if not run.judged:
        # The setup's, where it failed or skipped: a test that did not run is not judged.
        run.forget()
    with closing(run.compiled):
        yield
    if run.measurements or run.announced or run.unused_limits:
        _raise_failures(run)


@contextmanager
def without_trace_records() -> Iterator[None]:
    """Take pytest's handlers off the logger of torch's trace for a phase of a test.

    Since version 9.1 pytest listens to the loggers that keep their records to themselves, too. The records of this one
    have no message: each compilation would leave hundreds of empty lines in front of the failure's own text, and torch
    would take the time to make them. A handler that the user asked for (``TORCH_TRACE``) stays.
    """
    logger = torch_compile.trace_logger()
    if logger is None:
        yield
        return
    removed = [handler for handler in logger.handlers if type(handler).__module__ == "_pytest.logging"]
    for handler in removed:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for handler in removed:
            logger.addHandler(handler)


@contextmanager
def _conclude_in_unittest(run: TestRun, item: pytest.Item) -> Iterator[None]:
    try:
        with _conclude_after(run):
            yield
    except pytest.skip.Exception as skipped:
        # It knows no other skip: this one would be the failure that was expected.
        raise unittest.SkipTest(str(skipped)) from None
    marked: tuple[Any, ...] = (item.obj, item.cls)  # type: ignore[attr-defined]
    is_expected = any(getattr(holder, "__unittest_expecting_failure__", False) for holder in marked)
    if is_expected and (reason := run.why_unjudged):
        raise unittest.SkipTest(reason)


@contextmanager
def _measured_body(
    run: TestRun, item: pytest.Item, around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Around the call of the test: where the body is the step, call it as often as it takes.

    ``around`` is what is done around the body itself, inside of all that the test's framework does.
    """
    # Every item that a marker measures has one.
    original = item.obj  # type: ignore[attr-defined]

    # unittest looks at what a method is marked with, such as an expected failure.
    @wraps(original)
    def body(*args: Any, **kwargs: Any) -> Any:
        with around():
            if not run.body_is_step:
                return original(*args, **kwargs)
            return measure_function(run, run.start_body(), partial(original, *args, **kwargs))

    @wraps(original)
    async def async_body(*args: Any, **kwargs: Any) -> Any:
        with around():
            return await original(*args, **kwargs)

    # unittest looks a coroutine method up by itself.
    looked_up = around is not nullcontext and inspect.iscoroutinefunction(original)
    if looked_up:
        setattr(original.__self__, item.name, async_body)
    elif run.body_is_step or around is not nullcontext:
        item.obj = body  # type: ignore[attr-defined]
    try:
        yield
    finally:
        item.obj = original  # type: ignore[attr-defined]
        if looked_up:
            delattr(original.__self__, item.name)


@contextmanager
def _conclude_after(run: TestRun) -> Iterator[None]:
    """Around the body of a test: judge what it measured when it has passed, else record how it ended."""
    raised: BaseException | None = None
    try:
        yield
    except pytest.xfail.Exception:
        _raise_unmeasured(run)
        raise
    except (Exception, pytest.skip.Exception) as problem:
        if any(problem is measurement.explanation.raised for measurement in run.measurements.values()):
            # The measurement stood when it was repeated for an explanation: what counts is the limit it missed.
            raised = problem
        elif not isinstance(problem, pytest.skip.Exception | unittest.SkipTest):
            run.fail(find_own_error(problem))
            _record(run, Ending(f"the test itself failed: {type(problem).__name__}", skipped=False))
            raise
        elif run.gated:
            # The test looked at what is not to be had here; what the CPU can answer may still fail it.
            _raise_failures(run)
            raise
        elif any(measurement.was_refused for measurement in run.measurements.values()):
            # What it was told counts, however it goes on; what is cut off by the skip does not.
            run.drop_unfinished()
            run.drop_unused_limits()
            _raise_failures(run)
            raise
        else:
            _record(run, Ending(f"the test skipped itself: {problem}", skipped=True))
            raise
    _raise_failures(run)
    if raised is not None:
        raise raised


def _raise_unmeasured(run: TestRun) -> None:
    """Judge a test that called ``pytest.xfail()``: that hides what is missed, and no measurement that shows nothing."""
    run.drop_unfinished()
    if run.measurements:
        with suppress(LimitsMissed, pytest.skip.Exception):
            _raise_failures(run)


def _record(run: TestRun, ending: Ending) -> None:
    """Record the measurements of a test that failed or skipped itself before they were to be judged."""
    if run.test.state.options.enabled:
        conclude(run, ending)


def _raise_failures(run: TestRun) -> None:
    """Judge every measurement of a test; raise LimitsMissed, NotMeasured, or skip where there was no GPU to ask."""
    if not run.test.state.options.enabled:
        return
    run.add_unstarted()
    conclusions = conclude(run)
    failures = [conclusion for conclusion in conclusions if conclusion.result.outcome.is_failure]
    if failures:
        # An expected failure hides what was missed, never what was not measured.
        text = "\n\n".join(_failure_texts(failures, run.test.screen))
        unmeasured = [failure.problem.reason for failure in failures if isinstance(failure.problem, NotMeasured)]
        error = NotMeasured(Several.of(unmeasured), screen=text) if unmeasured else LimitsMissed(text)
        error.brief = "\n".join(failure.brief for failure in failures)
        run.fail(error)
        raise error from None
    unanswerable = dict.fromkeys(name for conclusion in conclusions for name in conclusion.unanswerable)
    if unanswerable:
        pytest.skip(f"body passed; not judged without a GPU: {', '.join(unanswerable)}{run.test.why_no_gpu()}")
    if run.gated:
        # The skip at that look may have been caught by the test.
        pytest.skip(run.gated)


def _failure_texts(failures: Sequence[Conclusion], screen: Screen) -> list[str]:
    """Return what the screen is to show: as reports have it, unless it says everything or several share its lines."""
    if len(failures) == 1 and not screen.everything:
        return [failures[0].result.message]
    shared = replace(screen, lines=max(screen.lines // len(failures), LEAST_LINES))
    return [failure.text(shared) for failure in failures]

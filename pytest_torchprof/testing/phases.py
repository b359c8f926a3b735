"""What the plugin does in the phases of a test: calls its body as the measured step, judges, mends its reports."""

from __future__ import annotations

import inspect
import unittest
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.capture import torch_compile
from pytest_torchprof.reasons.composed import Several
from pytest_torchprof.reasons.errors import LimitsMissed, NotMeasured, TorchprofError, find_own_error, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.testing import BodyUnrepeatable
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
_MACHINERY = frozenset({"pytest_torchprof", "_pytest", "pluggy", "unittest", "asyncio", "contextlib.py", "torch"})


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
    if (reason := _unjudged(run)) and any(getattr(one, "__unittest_expecting_failure__", False) for one in marked):
        raise unittest.SkipTest(reason)


def _why_no_step(test: Callable[..., Any]) -> str | None:
    """Return why the body of a test cannot be a step, None where it can."""
    if inspect.iscoroutinefunction(test):
        return "is async, and its body cannot be called again and again"
    if getattr(test, "is_hypothesis_test", False):
        return "is a test of hypothesis (@given), which runs other and more examples at each call: it cannot be called"
    return None


@contextmanager
def _measured_body(
    run: TestRun, item: pytest.Item, around: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Around the call of the test: where the body is the step, call it as often as it takes.

    ``around`` is what is done around the body itself, inside of all that the test's framework does.
    """
    # Every item that a marker measures has one.
    original = item.obj  # type: ignore[attr-defined]
    if run.body_is_step and (trait := _why_no_step(original)):
        if not run.test.state.options.enabled:
            yield
            return
        raise not_measured(BodyUnrepeatable(run.test.nodeid, trait))

    # unittest looks at what a method is marked with, such as an expected failure.
    @wraps(original)
    def body(*args: Any, **kwargs: Any) -> Any:
        with around():
            if not run.body_is_step:
                return original(*args, **kwargs)
            return measure_function(run, run.start(None, {}), partial(original, *args, **kwargs))

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
        if any(problem is one.explanation.raised for one in run.measurements.values()):
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
        elif any(one.was_refused for one in run.measurements.values()):
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
        unmeasured = [one.problem.reason for one in failures if isinstance(one.problem, NotMeasured)]
        error = NotMeasured(Several.of(unmeasured), screen=text) if unmeasured else LimitsMissed(text)
        error.brief = "\n".join(one.brief for one in failures)
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
    return [one.text(shared) for one in failures]


def mend_report(report: pytest.TestReport, call: pytest.CallInfo[None], run: TestRun, item: pytest.Item) -> None:
    """Make the report of a phase say what the plugin knows of it: expected failures, our errors without our frames."""
    excinfo = call.excinfo
    _mend_expectation(report, excinfo.value if excinfo else None, run, item)
    if excinfo is not None and report.outcome == "failed" and (own := find_own_error(excinfo.value)) is not None:
        setattr(report, CODE, own.code and str(own.code))
    if excinfo is not None and report.outcome == "failed" and _is_ours_alone(excinfo):
        report.longrepr = excinfo.getrepr(style="value")
    if report.outcome == "failed" and excinfo is not None and item.config.get_verbosity() < 0:
        keep_brief(report, excinfo, item)
    if report.when == "call" and report.skipped and hasattr(report, "wasxfail"):
        run.test.state.expect_failure(run.test.nodeid)
    if report.failed:
        run.test.state.drop_stale(run.test.nodeid)


CODE = "torchprof_code"
"""The attribute of a report with the code of the error of ours that a test failed by."""
BRIEF = "torchprof_brief"
"""The attribute of a report with what the terminal shows of a failure with ``-q``, and what the error itself says."""


def keep_brief(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Keep a failure's short form beside the whole one, which other reports of the run (JUnit) hold."""
    problem = excinfo.value
    if not isinstance(problem, TorchprofError) or problem.brief is None:
        return
    if _is_ours_alone(excinfo):
        setattr(report, BRIEF, [problem.brief, problem.brief])
        return
    whole, problem.args = problem.args, (problem.brief,)
    setattr(report, BRIEF, [str(item.repr_failure(excinfo)), problem.brief])
    problem.args = whole


@dataclass(frozen=True, slots=True)
class BriefFailure:
    """A failure in its short form, in place of what pytest makes of an exception."""

    text: str
    reprcrash: Any
    """Where it was raised, and what the last lines of the run say of it."""

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def toterminal(self, tw: Any) -> None:
        """Write the text, as pytest asks its own failures to do."""
        tw.line(self.text)


def shorten(report: pytest.TestReport) -> None:
    """Leave the short form of a failure for the terminal, once all other reports have the whole one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text, brief = getattr(report, BRIEF)
    if crash is not None:
        crash = replace(crash, message=f"{crash.message.partition(':')[0]}: {brief}")
    report.longrepr = BriefFailure(text, crash)  # type: ignore[assignment]


def _mend_expectation(report: pytest.TestReport, raised: BaseException | None, run: TestRun, item: pytest.Item) -> None:
    """Take back what an expected failure does to a report where nothing was measured, or nothing judged."""
    expected = hasattr(report, "wasxfail")
    hidden = find_own_error(raised) or find_own_error(run.error if report.when == "call" else None)
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


def _is_ours_alone(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether an error is ours and its traceback has no line of the user's, as of a limit judged after the test."""
    is_machinery = (bool(_MACHINERY.intersection(Path(entry.path).parts)) for entry in excinfo.traceback)
    return isinstance(excinfo.value, TorchprofError) and all(is_machinery)


def _unjudged(run: TestRun) -> str | None:
    """Return why the limits of a test were not judged by the run's own choice; None if they were, or it has none."""
    if run.test.state.options.enabled:
        return None
    limits = [*run.test.options.limits, *(one for taken in run.measurements.values() for one in taken.limits)]
    names = ", ".join(dict.fromkeys(one.limit.name for one in limits))
    return f"body passed; measuring is off (--torchprof=off), not judged: {names}" if names else None

"""The plugin's work in the phases of a test: it calls the body as the measured step, and judges the measurement."""

from __future__ import annotations

import inspect
import logging
import sys
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.capture import torch_compile
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.body import measured_body
from pytest_torchprof.testing.judging import judge, judged_after
from pytest_torchprof.testing.testcases import is_unittests, judged_in_unittest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.testing.test_run import TestRun


@contextmanager
def around_call(run: TestRun, item: pytest.Item) -> Iterator[None]:
    """Around the call of a test: its body is measured, and judged when it has passed.

    unittest decides inside its own call whether a failure was expected, so its methods are judged there.
    """
    calls_coroutine_again = run.body_is_step and inspect.iscoroutinefunction(getattr(item, "obj", None))
    judges_itself = is_unittests(item) and not calls_coroutine_again
    inside = partial(judged_in_unittest, run, item) if judges_itself else nullcontext
    judging = nullcontext() if judges_itself else judged_after(run)
    with _thrown_away_kept_in(run.misses.thrown_away), judging, measured_body(run, item, inside):
        yield


@contextmanager
def around_teardown(run: TestRun) -> Iterator[None]:
    """Judge what fixtures, and unittest's ``tearDown``, measure after the test."""
    if not run.judged:
        # A test that did not run, because its setup skipped, is not judged.
        run.forget()
    raised: BaseException | None = None
    try:
        with _thrown_away_kept_in(run.misses.thrown_away), closing(run.compiled):
            yield
    except (Exception, pytest.fail.Exception) as problem:  # noqa: BLE001 - it is raised again
        raised = problem
    raised = run.misses.lost(raised) or raised
    if run.measurements or run.announced or run.unused_limits:
        judge(run, raised, in_fixture=True)
    run.misses.forget()
    if raised is not None:
        raise raised


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
def _thrown_away_kept_in(thrown_away: list[TorchprofError]) -> Iterator[None]:
    """Add our errors that are thrown away meanwhile to the list; they are reported as ever.

    Python reports and throws away the errors of ``__del__``, of bare threads, and of tasks that nobody awaits.
    """

    def keep(problem: BaseException | None) -> None:
        if isinstance(problem, TorchprofError):
            thrown_away.append(problem)

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        keep(unraisable.exc_value)
        before(unraisable)

    def look(record: logging.LogRecord) -> bool:
        keep(record.exc_info[1] if record.exc_info else None)
        return True

    before, sys.unraisablehook = sys.unraisablehook, report
    asyncios = logging.getLogger("asyncio")
    asyncios.addFilter(look)
    try:
        yield
    finally:
        asyncios.removeFilter(look)
        sys.unraisablehook = before

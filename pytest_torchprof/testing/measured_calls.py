"""How a measurement of a test goes: it is taken, judged by itself, agreed on with the other ranks, and explained."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.profiles import Profile
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.gates import gated, guarded
from pytest_torchprof.testing.live import live
from pytest_torchprof.testing.other_ranks import judged_alone
from pytest_torchprof.testing.replayed import replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.testing.judgement import JudgedAlone
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun

    Calls = Generator[None, None, None]


def measured_calls(run: TestRun, label: str | None) -> Calls:
    """Yield once for each call of the measured code; the run then has the measurement, and what it came to alone.

    Raises NotMeasured where there is no profile to be believed.
    """
    options, asked = run.test.state.options, run.measurements[label]
    if not options.enabled:
        yield
        gate = gated(run, frozenset({"result"}), "measuring is off (--torchprof=off)")
        run.put(replace(asked, profile=Profile.unmeasured(gate=gate)))
        return
    with run.alone():
        taken = replayed(run.test, asked) if options.replay is not None else (yield from live(run, asked))
        measurement = run.put(_guarded(run, taken))
        if measurement.is_missing:
            raise measurement.error
        judged = run.put_judged(measurement, judged_alone(run.test, measurement))
        if judged.why_not is not None:
            raise run.put(measurement.doubted(judged.why_not)).error
        yield from _explained(run.test, measurement, judged)


def _guarded(run: TestRun, measurement: Measurement) -> Measurement:
    """Return a measurement with its profile as the test may look at it."""
    if (profile := measurement.profile) is None:
        return measurement
    replay = run.test.state.options.replay is not None
    return replace(measurement, profile=guarded(run, profile, measurement.explanation, replay=replay))


def _explained(test: MeasuredTest, measurement: Measurement, judged: JudgedAlone) -> Calls:
    """Yield for the call of a repeat with stacks, where a measurement fails by work whose lines are not known yet."""
    explanation = measurement.explanation
    if not judged.lacks_lines:
        return
    if explanation.plan is not None:
        yield from explanation.calls(
            explanation.plan, test.state.recordings.new_stacks_file(test.nodeid, measurement.label)
        )
    elif explanation.again is not None:
        explanation.again(explanation)


def measure_function(run: TestRun, label: str | None, function: Callable[[], Any]) -> Any:
    """Call the measured code as often as it takes, and return what the last call returned."""
    result, explanation = None, run.measurements[label].explanation
    try:
        with closing(measured_calls(run, label)) as calls:
            for _ in calls:
                if explanation.running:
                    with _raising_nothing(explanation):
                        result = function()
                    continue
                result = None  # A result that lived through the next call would count as its memory.
                result = function()
    except Exception as problem:
        run.stopped(label, problem)
        raise
    if explanation.plan is not None:
        explanation.call_by(partial(_repeat_with_stacks, run, label, function))
    return result


def _repeat_with_stacks(run: TestRun, label: str | None, function: Callable[[], Any], explanation: Explanation) -> None:
    """Repeat a measurement with stacks after it, for a limit that the test's body asks for."""

    def call() -> None:
        with _raising_nothing(explanation):
            function()

    if run.measuring:
        explanation.fail("the code cannot be called again inside another measurement")
        return
    if explanation.plan is not None and explanation.plan.coordination.in_step:
        # The others may not have missed it: a collective of this rank alone would wait for them for ever.
        explanation.fail("other ranks take no part in one more call for what this one alone asks for in its test")
        return
    with run.alone():
        explanation.call_again(run.test.state.recordings.new_stacks_file(run.test.nodeid, label), call)


@contextmanager
def _raising_nothing(explanation: Explanation) -> Iterator[None]:
    """Around the call of the repeat: what it raises is a reason to have no places, and fails nothing."""
    try:
        yield
    except pytest.exit.Exception:
        raise
    except (Exception, pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception) as problem:  # noqa: BLE001
        explanation.call_raised(problem)

"""The course of a measurement: it is taken, judged by itself, agreed on with the other ranks, and explained."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.lines import AskedOnOneRank, CalledOnceByRule, InsideAnother
from pytest_torchprof.testing.believed import believed
from pytest_torchprof.testing.ending import ENDS
from pytest_torchprof.testing.gates import guarded
from pytest_torchprof.testing.judgement import judge_alone
from pytest_torchprof.testing.live import live
from pytest_torchprof.testing.other_ranks import agreed
from pytest_torchprof.testing.rank_recordings import with_other_recordings
from pytest_torchprof.testing.replayed import replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pytest_torchprof.measuring.explanation import Explanation
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun

    Calls = Generator[None, None, None]


def measured_calls(
    run: TestRun,
    asked: Measurement,
    *,
    again: Callable[[Explanation], None] | None = None,
    returned: Callable[[], object] = lambda: None,
) -> Calls:
    """Yield once for each call of the measured code; the run then has the measurement, and its judgement by itself.

    ``again`` makes a call for a later explanation, and ``returned`` returns what the last call did. Raises NotMeasured
    where there is no profile that can be believed.
    """
    test, options, taken = run.test, run.test.state.options, asked
    with run.alone():
        if not options.enabled:
            yield
        elif options.replay is not None:
            taken = replayed(test, asked)
        else:
            taken = yield from live(test, asked, run.compiled, after_test=run.judged)
        taken = believed(test, taken, returned())
        taken = with_other_recordings(test, taken)
        taken = guarded(test, taken)
        judged = judge_alone(test, taken)
        judged = agreed(judged)
        run.keep(judged)
        if judged.is_disbelieved:
            raise judged.measurement.error
        stacks = partial(test.state.recordings.new_stacks_file, test.nodeid, asked.label)
        if judged.lacks_lines and test.options.of_rule_alone:
            asked.explanation.fail(CalledOnceByRule())
            return
        yield from asked.explanation.repeated(stacks, now=judged.lacks_lines, later=again)


def measure_function(run: TestRun, asked: Measurement, function: Callable[[], Any]) -> Any:
    """Call the measured code as often as the measurement takes, and return what the last call returned."""
    __tracebackhide__ = True  # noqa: F811 - an error of the function is none of ours.
    result, explanation = None, asked.explanation
    again = partial(_repeat_with_stacks, run, asked.label, function)
    with closing(measured_calls(run, asked, again=again, returned=lambda: result)) as calls:
        for _ in calls:
            if explanation.running:
                with _raising_nothing(explanation):
                    result = function()
                continue
            result = None  # A result that lived through the next call would count as its memory.
            result = function()
    return result


def _repeat_with_stacks(run: TestRun, label: str | None, function: Callable[[], Any], explanation: Explanation) -> None:
    """Repeat a measurement with stacks after it, for a limit that the test's body asks for."""

    def call() -> None:
        with _raising_nothing(explanation):
            function()

    if run.measuring:
        explanation.fail(InsideAnother())
        return
    if explanation.plan is not None and explanation.plan.coordination.in_step:
        # The others may not have missed the limit: a collective of this rank alone would wait for them for ever.
        explanation.fail(AskedOnOneRank())
        return
    with run.alone():
        explanation.call_again(run.test.state.recordings.new_stacks_file(run.test.nodeid, label), call)


@contextmanager
def _raising_nothing(explanation: Explanation) -> Iterator[None]:
    """Around the call of the repeat: an error in it is the reason why there are no places, and fails nothing."""
    try:
        yield
    except pytest.exit.Exception:
        raise
    except (Exception, *ENDS) as problem:  # noqa: BLE001
        explanation.call_raised(problem)

"""The goal that a rank of a job is about to reach, which it announces to the ranks that wait for it."""

from __future__ import annotations

from msgspec import Struct

from pytest_torchprof.reasons.statement import Phrase


class RunPoint(Phrase):
    """A point of a rank's run, of a test or of a measurement."""

    START_OF_TESTS = "start-of-tests", "the start of its tests"
    SET_UP = "set-up", "the end of its set-up"
    FIXTURE = "fixture", "the end of the set-up of"
    CALL = "call", "the end of its call"
    TEARDOWN = "teardown", "the end of its teardown"
    MEASUREMENT = "measurement", "this measurement"
    START_OF_MEASUREMENT = "start-of-measurement", "the start of this measurement"
    START = "start", "the end of the start"
    FIRST_CALL = "first-call", "the end of the first call"
    WARM_UP = "warm-up", "the end of the warm-up"
    WARM_UP_CALL = "warm-up-call", "the end of warm-up call"
    STEPS = "steps", "the end of the steps"
    STEP = "step", "the end of step"
    CALLS_BEFORE_UNTRACED = "calls-before-untraced", "the end of the calls before the untraced ones"
    UNTRACED_CALLS = "untraced-calls", "the end of the untraced calls"
    END_OF_TEST = "end-of-test", "the end of the test"
    END_OF_TEARDOWN = "end-of-teardown", "the end of the teardown"
    OTHERS_RESULTS = "others-results", "the results of the other ranks"
    END_OF_RUN = "end-of-run", "the end of the run"


class Goal(Struct, frozen=True):
    """A point that a rank is to come to: which of several, and in which measurement."""

    point: RunPoint
    which: int | str | None = None
    """The number of a call or a step, from one, or the name of a fixture; None for a point of which there is one."""
    label: str | None = None
    """The label of the measurement, where it has one and the others do not know it by themselves."""

    def __str__(self) -> str:
        """Return "the end of step 2 of 'decode'"."""
        which = "" if self.which is None else f" {self.which}"
        return f"{self.point}{which}{f' of {self.label!r}' if self.label else ''}"

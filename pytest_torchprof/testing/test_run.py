"""One run of one test: what it is to measure, and what it has measured so far."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.capture.compile_log import CompileLog
from pytest_torchprof.limits import read_limits, refuse_none
from pytest_torchprof.limits.operators_asked import refuse_unknown_operators
from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.reasons.errors import (
    LimitsMissed,
    NotMeasured,
    TorchprofError,
    UnknownLimit,
    find_own_error,
)
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.skips import LimitsNotJudged
from pytest_torchprof.reasons.testing import FixtureUnused, LimitsUnused, NeverEntered
from pytest_torchprof.testing.judgement import JudgedAlone
from pytest_torchprof.testing.marker_options import MARKER_OPTIONS
from pytest_torchprof.testing.measurement import Measurement
from pytest_torchprof.testing.misses import Misses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.limits import Asked
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.ending import Ending
    from pytest_torchprof.testing.measured_test import MeasuredTest

_PYTESTS = 8
"""The columns that pytest takes beside the lines of an error that a test's own code raises; few are indented more."""


class TestRun(Struct, kw_only=True):
    """The measurements of one run of one test so far, and their judgements; only its own methods change it."""

    __test__ = False

    test: MeasuredTest
    uses_fixture: bool
    measurements: dict[str | None, Measurement] = field(default_factory=dict)
    """The measurements that are not concluded yet, by label."""
    judged_alone: dict[str | None, JudgedAlone] = field(default_factory=dict)
    """The judgements of those measurements that were judged when they were taken, by label."""
    labels: set[str | None] = field(default_factory=set)
    """The labels of all measurements so far, concluded or not."""
    announced: list[str] = field(default_factory=list)
    """Labels of ``measure()`` whose block has not been entered yet."""
    own_limits: Mapping[str, object] = field(default_factory=dict)
    """The limits that the test's body has set for later measurements, as they were written."""
    unused_limits: Mapping[str, object] = field(default_factory=dict)
    """The limits among them that no measurement has followed yet."""
    compiled: CompileLog = field(default_factory=CompileLog)
    """The compilations of torch.compile since the first measurement."""
    measuring: bool = False
    body_left: bool = False
    """Whether its body cannot be the measured step, and runs without a measurement."""
    in_call: bool = False
    """Whether the test is being called."""
    judged: bool = False
    """Whether the test's body has ended and its measurements have been judged."""
    error: TorchprofError | None = None
    """The error with which the judging ended, if any."""
    failed_part: BaseException | None = None
    """The error of the first subtest that pytest counts as failed; the test itself goes on."""
    misses: Misses = field(default_factory=Misses)
    """The errors that the limits of ``expect()`` have raised."""

    @property
    def body_is_step(self) -> bool:
        """Whether the test body itself is the measured step: marked, and nothing measures inside it; never when off."""
        return (
            self.test.state.options.enabled
            and self.test.options.marked
            and not self.uses_fixture
            and not self.body_left
        )

    @property
    def why_unjudged(self) -> LimitsNotJudged | None:
        """Why its limits are not judged, by the run's own choice; None if they are, or if it has none."""
        if self.test.state.options.enabled:
            return None
        limits = [*self.test.options.limits, *(asked for taken in self.measurements.values() for asked in taken.limits)]
        names = tuple(dict.fromkeys(asked.limit.name for asked in limits))
        return LimitsNotJudged(names) if names else None

    def use_fixture(self) -> None:
        """Take note that the test, or one of its fixtures, asks for the fixture."""
        self.uses_fixture = True

    def leave_body(self, reason: Reason) -> None:
        """Take note why the body cannot be measured, of a test that may run without."""
        self.body_left = True
        self.add(None, why_not=reason)

    def ask_as(self, test: MeasuredTest) -> None:
        """Take the new plan of the test, since it got another marker."""
        self.test = test

    def announce(self, label: str) -> None:
        """Take the label of a block that is to be entered."""
        self.announced.append(label)

    def enter(self, label: str) -> None:
        """Take note that a block was entered."""
        if label in self.announced:
            self.announced.remove(label)

    def start(self, label: str | None, limits: Mapping[str, object]) -> Measurement:
        """Begin a measurement under a label that no other measurement of this test has, and return it."""
        try:
            self._refuse_inside()
            return self._begun(label, self._read(limits))
        except TorchprofError as problem:
            self.refuse(label if label not in self.labels else None, label or "torchprof()", problem)
            raise

    def start_body(self) -> Measurement:
        """Begin the measurement of the test's whole body, whose limits the plan has, and return it."""
        self._refuse_inside()
        return self._begun(None, self.test.options.limits)

    @contextmanager
    def taking(self, asked: Measurement) -> Iterator[Measurement]:
        """Around the taking of a measurement: an exception ends it, unless it is known already why there is none."""
        try:
            yield asked
        except Exception as problem:
            self.stop(asked.label, problem)
            raise

    def refuse(self, label: str | None, title: str, problem: TorchprofError) -> None:
        """Note a request that cannot be met as not measured: the code that made it may keep the error to itself."""
        self.add(label or f"{title}, refused", why_not=problem.reason)

    def _refuse_inside(self) -> None:
        if self.measuring:
            from pytest_torchprof.reasons.misuse import MeasuresInside  # noqa: PLC0415 - for what is refused alone

            raise TorchprofError.because(MeasuresInside(self.test.nodeid, of_body=self.body_is_step))

    def _begun(self, label: str | None, asked: tuple[Asked, ...]) -> Measurement:
        if label is None and self.labels:
            label = next(name for n in count(len(self.labels) + 1) if (name := f"#{n}") not in self.labels)
        if label in self.labels:
            from pytest_torchprof.reasons.misuse import LabelTwice  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(LabelTwice(label, self.test.nodeid))
        self.labels.add(label)
        self.unused_limits = {}
        return self.add(label, asked)

    def set_limits(self, limits: Mapping[str, object]) -> None:
        """Take limits that hold for every measurement after this, beside the marker's and in place of earlier ones."""
        try:
            self._set(limits)
        except TorchprofError as problem:
            self.refuse(None, "torchprof.limits()", problem)
            raise

    def _set(self, limits: Mapping[str, object]) -> None:
        if self.measuring or any(measurement.is_open for measurement in self.measurements.values()):
            from pytest_torchprof.reasons.misuse import LimitsSetInside  # noqa: PLC0415 - for what is refused alone

            raise TorchprofError.because(LimitsSetInside(self.test.nodeid))
        refuse_none(limits, "torchprof.limits()")
        self._read(limits, more_to_come=True)
        self.own_limits = {**self.own_limits, **limits}
        self.unused_limits = {**self.unused_limits, **limits}

    def _read(self, limits: Mapping[str, object], *, more_to_come: bool = False) -> tuple[Asked, ...]:
        """Return the limits of a measurement: these, those that the body has set, and the marker's."""
        if option := next((name for name in limits if name in MARKER_OPTIONS), None):
            from pytest_torchprof.reasons.asked_wrongly import OptionOfMarker  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(OptionOfMarker(option))
        keywords = {**(self.test.options.marker or {}), **self.own_limits, **limits}
        given = {name: value for name, value in keywords.items() if name not in MARKER_OPTIONS}
        state = self.test.state
        asked = read_limits(given, known=state.limits, defaults=state.options.settings, more_to_come=more_to_come)
        if state.options.replay is None:
            refuse_unknown_operators(asked)
        return asked

    def add(self, label: str | None, limits: tuple[Asked, ...] = (), *, why_not: Reason | None = None) -> Measurement:
        """Add a measurement to those that will be judged, and return it."""
        measurement = Measurement(
            label=label,
            limits=limits,
            explanation=Explanation(
                screen=self.test.screen.beside(_PYTESTS),
                judges=self.test.baseline.judges_limits,
                settings=self.test.settings,
                in_threads=self.misses.in_threads,
                misses=self.misses.anywhere,
            ),
            of_body=self.body_is_step,
            why_not=why_not,
        )
        return self.put(measurement)

    def put(self, measurement: Measurement) -> Measurement:
        """Replace the measurement of the same label by one that knows more, and return that."""
        self.measurements[measurement.label] = measurement
        return measurement

    def keep(self, judged: JudgedAlone) -> None:
        """Keep a measurement that was taken, with its judgement by itself."""
        self.judged_alone[judged.measurement.label] = judged
        self.put(judged.measurement)

    def divide(self, label: str | None, limits: Mapping[str, tuple[Asked, ...]]) -> None:
        """Replace the measurement of this label by several, each with its limits."""
        del self.measurements[label]
        for own, asked in limits.items():
            self.add(own, asked)
            self.labels.add(own)

    @contextmanager
    def judging(self, ending: Ending) -> Iterator[tuple[JudgedAlone, ...]]:
        """Around the judging of what was measured until the test ended: hand out the measurements, and keep our error.

        Nothing of them is kept but the labels, which stay taken. Where measuring is off there is nothing to judge.
        """
        if ending.cut_off:
            self._drop_unfinished()
        if ending.asks_no_more:
            self.unused_limits = {}
        if not ending.by_itself and (self.measurements or not ending.cut_off):
            self._add_unstarted()
        taken: tuple[JudgedAlone, ...] = ()
        if self.test.state.options.enabled:
            taken, self.judged = tuple(self._taken()), True
            self.forget()
        try:
            yield taken
        except BaseException as problem:
            self.error = find_own_error(problem)
            raise

    def _taken(self) -> Iterator[JudgedAlone]:
        for label, measurement in self.measurements.items():
            judged = self.judged_alone.get(label)
            # What became known since then counts too, such as an error of the block in which it was taken.
            yield JudgedAlone(measurement=measurement) if judged is None else replace(judged, measurement=measurement)

    def _add_unstarted(self) -> None:
        """Add labels and limits that no measurement followed: they are judged too, as not measured."""
        for label in self.announced:
            # The same label may have been entered elsewhere: that measurement is kept.
            own = f"{label}, not entered" if label in self.measurements else label
            self.add(own, why_not=NeverEntered(label))
        self.announced.clear()
        if self.unused_limits:
            self.add("torchprof.limits()", why_not=LimitsUnused(tuple(self.unused_limits)))
        if not self.measurements and self.test.options.marked:
            self.add(None, why_not=FixtureUnused())

    def stop(self, label: str | None, problem: Exception) -> None:
        """Keep the error that ended a measurement early, unless it is known already why there is none."""
        measurement = self.measurements.get(label)
        if measurement is not None and measurement.is_open:
            self.put(measurement.ended_by(problem))

    def _drop_unfinished(self) -> None:
        """Drop the labels that were announced, and the measurement that was cut off."""
        self.announced.clear()
        for label, measurement in tuple(self.measurements.items()):
            if measurement.is_open:
                del self.measurements[label]

    def fail_part(self, problem: BaseException) -> None:
        """Take note that a subtest has failed."""
        # What is missed counts before what could not be measured.
        counts_more = isinstance(problem, LimitsMissed) and isinstance(self.failed_part, NotMeasured)
        if self.failed_part is None or counts_more:
            self.failed_part = problem

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other measurement of this test begin meanwhile."""
        self.measuring = True
        try:
            yield
        finally:
            self.measuring = False

    @contextmanager
    def called(self) -> Iterator[None]:
        """Note that the test is being called meanwhile."""
        self.in_call = True
        try:
            yield
        finally:
            self.in_call = False

    def forget(self) -> None:
        """Drop everything that was measured or announced, concluded or not; the labels stay taken."""
        self.measurements.clear()
        self.judged_alone.clear()
        self.announced.clear()
        self.unused_limits = {}

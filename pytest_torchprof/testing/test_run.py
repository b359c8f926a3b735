"""One run of one test: what it has measured so far, and how each measurement is taken, live or from a recording."""

from __future__ import annotations

import warnings
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import capture
from pytest_torchprof.against.imports import foreign_import, foreign_origin
from pytest_torchprof.analysis.regions import regions_of
from pytest_torchprof.capture.compile_log import CompileLog
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.errors import NotMeasured, TorchprofError, TorchprofWarning, UnknownLimit, describe
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.limits import needs_flops, read_limits
from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.profiles import READABLE_WITHOUT_GPU, Profile
from pytest_torchprof.recording.digest import is_changed
from pytest_torchprof.recording.reader import read
from pytest_torchprof.recording.repeats import stacks_name
from pytest_torchprof.testing.measurement import Measurement, judge_measurement
from pytest_torchprof.testing.options import MARKER_OPTIONS
from pytest_torchprof.testing.other_ranks import to_tell, told_in, with_other_recordings
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.limits import Asked
    from pytest_torchprof.testing.measurement import Judgement, MeasuredTest
    from pytest_torchprof.testing.other_ranks import Told
    from pytest_torchprof.trace import Trace

    Calls = Generator[None, None, None]


@dataclass(slots=True, kw_only=True)
class TestRun:
    """What one run of one test has measured so far, and what came of it."""

    __test__ = False

    test: MeasuredTest
    uses_fixture: bool
    properties: list[tuple[str, Any]]
    """Where JUnit looks for what a test has to tell."""
    measurements: dict[str | None, Measurement] = field(default_factory=dict)
    """Those that are not concluded yet, by label."""
    judgements: dict[str | None, Judgement] = field(default_factory=dict)
    """What the measurements come to when each is judged by itself."""
    told: dict[str | None, list[Told]] = field(default_factory=dict)
    """What all ranks of a job have told of a measurement, in their order."""
    labels: set[str | None] = field(default_factory=set)
    """Those of all measurements so far, concluded or not."""
    announced: list[str] = field(default_factory=list)
    """Labels of ``measure()`` whose block was not entered yet."""
    own_limits: Mapping[str, object] = field(default_factory=dict)
    """Those that the test's body has set for the measurements after them, as they were written."""
    unused_limits: Mapping[str, object] = field(default_factory=dict)
    """Of these, what no measurement has come after yet."""
    compiled: CompileLog = field(default_factory=CompileLog)
    """What torch.compile did since the first measurement."""
    measuring: bool = False
    gated: str | None = None
    """The test looked at a number that this run does not have, and its rest was skipped."""
    judged: bool = False
    """Whether the test's body has ended, and what it measured was judged."""
    error: TorchprofError | None = None
    """What the judging came to, once it was done."""
    baseline_entries: list[tuple[Path, str, Entry]] = field(default_factory=list)
    """(file, key, entry) to write if the whole test passes."""

    @property
    def body_is_step(self) -> bool:
        """Whether the test body itself is the measured step: marked, and nothing measures inside it; never when off."""
        return self.test.state.options.enabled and self.test.options.marked and not self.uses_fixture

    def start(self, label: str | None, limits: Mapping[str, object]) -> str | None:
        """Begin a measurement under a label that no other one of this test has, and return the label."""
        try:
            return self._started(label, limits)
        except TorchprofError as problem:
            # Whoever asked may keep the error to itself, as a thread does: what was asked for is not measured.
            own = label if label is not None and label not in self.labels else f"{label or 'torchprof()'}, refused"
            self.add(own, why_not=str(problem))
            raise

    def _started(self, label: str | None, limits: Mapping[str, object]) -> str | None:
        nodeid = self.test.nodeid
        if self.measuring:
            hint = " (the marker measures the whole body: request the fixture in the test's signature)"
            raise TorchprofError(
                f"{nodeid} asks for a measurement inside another one of its own"
                f"{hint if self.body_is_step else ''}; measure one after the other",
                Code.FIXTURE_MISUSE,
            )
        asked = self._read(limits)
        if label is None and self.labels:
            label = next(name for n in count(len(self.labels) + 1) if (name := f"#{n}") not in self.labels)
        if label in self.labels:
            said = f"the label {label!r} is used twice in {nodeid}; each measurement needs its own"
            raise UnknownLimit(said, Code.FIXTURE_MISUSE)
        self.add(label, asked)
        self.labels.add(label)
        self.unused_limits = {}
        return label

    def set_limits(self, limits: Mapping[str, object]) -> None:
        """Take limits that hold for every measurement after this, beside the marker's and in place of earlier ones."""
        if self.measuring or any(one.is_open for one in self.measurements.values()):
            raise TorchprofError(
                f"{self.test.nodeid} sets limits inside a measurement; set them before it, or give them to measure()",
                Code.FIXTURE_MISUSE,
            )
        if not limits:
            said = "torchprof.limits() takes limits as keywords, such as max_kernels=5; got none"
            raise TorchprofError(said, Code.FIXTURE_MISUSE)
        self._read(limits, more_to_come=True)
        self.own_limits = {**self.own_limits, **limits}
        self.unused_limits = {**self.unused_limits, **limits}

    def _read(self, limits: Mapping[str, object], *, more_to_come: bool = False) -> tuple[Asked, ...]:
        """Return the limits of a measurement that is given these, beside those that the body set and the marker's."""
        if option := next((name for name in limits if name in MARKER_OPTIONS), None):
            raise UnknownLimit(f"{option!r} is no limit of one measurement; put it in the marker", Code.UNKNOWN_KEYWORD)
        words = {**(self.test.options.marker or {}), **self.own_limits, **limits}
        given = {name: value for name, value in words.items() if name not in MARKER_OPTIONS}
        state = self.test.state
        return read_limits(given, known=state.limits, defaults=state.options.settings, more_to_come=more_to_come)

    def add(self, label: str | None, limits: tuple[Asked, ...] = (), *, why_not: str | None = None) -> None:
        """Add a measurement to those that will be judged."""
        self.measurements[label] = Measurement(
            label=label,
            limits=limits,
            explanation=Explanation(
                screen=self.test.screen,
                judges=self.test.baseline.judges_limits,
                settings=self.test.settings,
            ),
            of_body=self.body_is_step,
            why_not=why_not,
        )

    def change(self, label: str | None, **changes: Any) -> Measurement:
        """Put a measurement that knows more in the place of the one with this label."""
        self.measurements[label] = replace(self.measurements[label], **changes)
        return self.measurements[label]

    def stopped(self, label: str | None, problem: Exception) -> None:
        """Keep what ended a measurement before it was done, unless it is known why there is none."""
        measurement = self.measurements.get(label)
        if measurement is not None and measurement.is_open:
            said = f"the measured code was not run to its end: it raised {describe(problem)}"
            self.change(label, why_not=coded(said, Code.NOT_RUN_TO_END))

    def drop_unfinished(self) -> None:
        """Drop what was announced, and the measurement that is cut off where it stands."""
        self.announced.clear()
        for label, one in tuple(self.measurements.items()):
            if one.is_open:
                del self.measurements[label]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other measurement of this test begin meanwhile."""
        self.measuring = True
        try:
            yield
        finally:
            self.measuring = False

    def forget(self) -> None:
        """Drop what was measured or announced, concluded or not; its labels stay taken."""
        self.measurements.clear()
        self.judgements.clear()
        self.told.clear()
        self.announced.clear()
        self.unused_limits = {}


def measured_calls(run: TestRun, label: str | None) -> Calls:
    """Yield once for each call of the measured code, and leave profile and recording behind."""
    options = run.test.state.options
    if not options.enabled:
        return _plain_call(run, label)
    return _alone(run, _replay(run, label) if options.replay is not None else _live(run, label))


def _alone(run: TestRun, calls: Calls) -> Calls:
    with run.alone():
        yield from calls


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
        explanation.again = partial(_repeat_with_stacks, run, label, function)
    return result


def _repeat_with_stacks(run: TestRun, label: str | None, function: Callable[[], Any], explanation: Explanation) -> None:
    """Repeat a measurement with stacks after it, for a limit that the test's body asks for."""

    def call() -> None:
        with _raising_nothing(explanation):
            function()

    if run.measuring:
        explanation.fail("the code cannot be called again inside another measurement")
        return
    if explanation.plan is not None and explanation.plan.pace.in_step:
        # The others may not have missed it: a collective of this rank alone would wait for them for ever.
        explanation.fail("other ranks take no part in one more call for what this one alone asks for in its test")
        return
    run.measuring = True
    try:
        explanation.call_again(run.test.state.recordings.new_stacks_file(run.test.nodeid, label), call)
    finally:
        run.measuring = False


@contextmanager
def _raising_nothing(explanation: Explanation) -> Iterator[None]:
    """Around the call of the repeat: what it raises is a reason to have no places, and fails nothing."""
    try:
        yield
    except pytest.exit.Exception:
        raise
    except (Exception, pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception) as problem:  # noqa: BLE001
        explanation.call_raised(problem)


def _plain_call(run: TestRun, label: str | None) -> Calls:
    yield
    gate = gated(run, frozenset({"result"}), "measuring is off (--torchprof=off)")
    run.change(label, profile=Profile.unmeasured(gate=gate))


def kept_trace(run: TestRun, label: str | None) -> Trace:
    """Return the recording of a measurement in the folder of a replay; TorchprofError where it is none."""
    test = run.test
    path = test.state.recordings.find(test.nodeid, label)
    trace = read(path)
    if trace.of_test != (test.nodeid, label):
        raise TorchprofError(
            f"{path} is a recording of {_shown(*trace.of_test)}, not of {_shown(test.nodeid, label)}; "
            f"record it again with --torchprof-save={path.parent}",
            Code.REPLAY_MISMATCH,
        )
    if is_changed(trace):
        with suppress(TorchprofWarning):  # Where warnings are errors this one is none.
            warnings.warn(f"{path} was changed since it was recorded", TorchprofWarning, stacklevel=2)
    return trace


def _replay(run: TestRun, label: str | None) -> Calls:
    test, trace = run.test, kept_trace(run, label)
    path, profile, kind = Path(str(trace.path)), Profile.from_trace(trace), trace.device_kind
    measurement = run.change(label, recording=path)
    if not kind.has_launches and test.options.device not in ("auto", kind.name):
        reason = f"{path.name} was recorded on the {kind.name}, and the test asks for {test.options.device}"
        run.change(label, why_not=coded(reason, Code.REPLAY_MISMATCH))
    elif profile.why_not is not None:
        run.measurements[label] = measurement.doubted(profile.why_not)
    if len(paths := test.state.recordings.of_all_ranks(test.nodeid, label)) > 1:
        profile = with_other_recordings(profile, lambda own: [told_in(one) if one != path else own for one in paths])
    measurement = run.change(label, profile=guarded(run, profile, measurement.explanation, replay=True))
    beside = path.with_name(stacks_name(path.name))
    if beside.is_file():
        measurement.explanation.again = partial(Explanation.read, path=beside)
    if _lacks_lines(run, measurement) and beside.is_file():
        measurement.explanation.read(beside)
    return
    yield


def _live(run: TestRun, label: str | None) -> Calls:
    try:
        yield from _measured_live(run, label)
    except NotMeasured as problem:
        run.measurements[label] = run.measurements[label].doubted(str(problem))
        raise run.measurements[label].error from None


def _measured_live(run: TestRun, label: str | None) -> Calls:
    test, options = run.test, run.test.options
    pace = test.state.pace(test.nodeid, label, after_test=run.judged)
    if (reason := test.state.unarmed.get(options.device)) is not None:
        times = test.baseline.takes_times
        pace.leave(reason)
        yield from [None] * capture.calls_beside_others(pace, options.warmup, options.steps, times=times)
        raise NotMeasured(reason)
    measurement = run.measurements[label]
    plan = _plan(run, measurement, pace)
    profile = yield from _captured(run, label, plan)
    if profile is None:
        return
    explanation = measurement.explanation
    explanation.plan = plan
    if pace.in_step:
        profile = with_other_recordings(profile, partial(pace.exchange, "the recordings"))
    guarded_profile = guarded(run, profile, explanation, replay=False)
    measurement = run.change(label, profile=guarded_profile, why_not=foreign_code(run))
    lacks_lines = _lacks_lines(run, measurement)
    if pace.in_step:
        run.told[label] = pace.exchange("the verdicts", to_tell(run.judgements.get(label), test.baseline))
        lacks_lines = any(one.get("lacks_lines") for one in run.told[label])
        pace.close()
    if lacks_lines:
        yield from explanation.calls(plan, test.state.recordings.new_stacks_file(test.nodeid, label))


def _plan(run: TestRun, measurement: Measurement, pace: capture.Pace) -> capture.Plan:
    test, options = run.test, run.test.options
    device = capture.pick_device(options.device)
    takes_times = test.baseline.takes_times and (options.device != "auto" or kind_of(device).has_launches)
    return capture.Plan(
        device=device,
        asked=options.device,
        warmup=options.warmup,
        steps=options.steps,
        record=options.record,
        nodeid=test.nodeid,
        label=measurement.label,
        count_flops=needs_flops(measurement.limits),
        compiled=run.compiled,
        times=options.tolerance.cache if takes_times else None,
        pace=pace,
        tell=partial(test.progress, _shown(test.nodeid, measurement.label)),
    )


def _captured(run: TestRun, label: str | None, plan: capture.Plan) -> Generator[None, None, Profile | None]:
    """Yield for each call of a live measurement; return its profile, None where the calls were left early."""
    test, profile = run.test, None

    def check(recording: Path) -> str | None:
        nonlocal profile
        run.change(label, recording=recording)
        profile = Profile.from_trace(read(recording))
        return profile.why_not

    def needs_more_times() -> bool:
        return profile is not None and test.baseline.needs_more_times(label, profile)

    path, shown = test.state.recordings.new_file(test.nodeid, label), _shown(test.nodeid, label)
    with closing(capture.iterations(plan, path, check, needs_more_times)) as calls:
        try:
            yield from calls
        finally:
            test.progress(shown, "")
    if profile is not None:
        run.compiled.note_run(regions_of(profile.trace).ids)
    return profile


def _lacks_lines(run: TestRun, measurement: Measurement) -> bool:
    """Judge a measurement by itself, and return whether it fails by work whose lines are not known yet."""
    if measurement.why_not is not None or measurement.profile is None:
        return False
    # A baseline that cannot be read, and what a check of another plugin raises, is told when the test is judged.
    with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
        run.judgements[measurement.label] = judge_measurement(run.test, measurement)
    judgement = run.judgements.get(measurement.label)
    return judgement is not None and judgement.lacks_lines


def foreign_code(run: TestRun, *, elsewhere: bool = False) -> str | None:
    """Return why what was measured is not the code of this side of a comparison with a commit; None where it is.

    ``elsewhere``: in another process, which finds its modules as this one would.
    """
    if (side := run.test.state.options.against) is None:
        return None
    return (foreign_origin(side) if elsewhere else None) or foreign_import(side)


def guarded(run: TestRun, profile: Profile, explanation: Explanation, *, replay: bool) -> Profile:
    """Return the profile with the rules of other plugins, and a gate where numbers are not to be looked at."""
    gate, test = None, run.test
    if test.stands_in(profile):
        names = ", ".join(test.unanswerable(run.measurements.values())) or "GPU numbers"
        reason = f"body passed so far; not judged without a GPU: {names}{test.why_no_gpu()}"
        gate = gated(run, READABLE_WITHOUT_GPU, reason)
    elif replay:
        gate = gated(run, None, "a replay does not run the measured code, so there is no result")
    return profile.with_context(rules=test.state.rules, gate=gate).with_explainer(explanation)


def gated(run: TestRun, readable: frozenset[str] | None, reason: str) -> Callable[[str], None]:
    """Return a gate that skips the test at a look at anything but ``readable``; None: at ``result`` only."""

    def gate(name: str) -> None:
        if name == "result" if readable is None else name not in readable:
            run.gated = f"{reason}, profile.{name}"
            pytest.skip(run.gated)

    return gate


def _shown(nodeid: str | None, label: str | None) -> str:
    return printable_line(str(nodeid) + (f" ({label})" if label else ""))

"""One run of one test: takes its measurements one after the other, live or from kept recordings."""

from __future__ import annotations

import warnings
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import capture
from pytest_torchprof.errors import NotMeasured, TorchprofError, TorchprofWarning, UnknownLimit
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.limits import read_limits
from pytest_torchprof.profile import Profile
from pytest_torchprof.recording.digest import is_changed
from pytest_torchprof.recording.reader import read
from pytest_torchprof.testing.measurement import Explanation, Measurement, judge
from pytest_torchprof.testing.recordings import stacks_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    import torch

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.limits import Asked
    from pytest_torchprof.testing.measurement import Judgement, MeasuredTest

READABLE_WITHOUT_GPU = frozenset({"compile", "graph_breaks", "recompiles", "result", "trace", "why_not", "measured"})
MARKER_ONLY = ("warmup", "steps", "device", "record", "names", "baseline")


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
    labels: set[str | None] = field(default_factory=set)
    """Those of all measurements so far, concluded or not."""
    announced: list[str] = field(default_factory=list)
    """Labels of ``measure()`` whose block was not entered yet."""
    measuring: bool = False
    gated: str | None = None
    """The test looked at a number that this run does not have, and its rest was skipped."""
    failure: TorchprofError | None = None
    """What the judging came to, once it was done."""
    raised_in_repeat: BaseException | None = None
    """What a block raised when it was called once more for an explanation."""
    baseline_entries: list[tuple[Path, str, Entry]] = field(default_factory=list)
    """(file, key, entry) to write if the whole test passes."""

    @property
    def device(self) -> torch.device:
        """The device that this test is measured on; in a replay, what this machine has."""
        import torch  # noqa: PLC0415  (a replay without it never pays for torch)

        replay = self.test.state.options.replay is not None
        return torch.device(capture.pick_device("auto" if replay else self.test.options.device))

    @property
    def body_is_step(self) -> bool:
        """Whether the test body itself is the measured step: marked, and nothing measures inside it."""
        return self.test.options.marked and not self.uses_fixture

    def start(self, label: str | None, limits: Mapping[str, object]) -> str | None:
        """Begin a measurement under a label that no other one of this test has, and return the label."""
        nodeid, options = self.test.nodeid, self.test.options
        if self.measuring:
            raise TorchprofError(
                f"{nodeid} asks for a measurement inside another one of its own"
                + (
                    " (the marker measures the whole body: request the fixture in the test's signature)"
                    if self.body_is_step
                    else ""
                )
                + "; measure one after the other"
            )
        if option := next((name for name in limits if name in MARKER_ONLY), None):
            raise UnknownLimit(f"{option!r} is no limit of one measurement; put it in the marker")
        if label is None and self.labels:
            label = next(name for n in count(len(self.labels) + 1) if (name := f"#{n}") not in self.labels)
        if label in self.labels:
            raise UnknownLimit(f"the label {label!r} is used twice in {nodeid}; each measurement needs its own")
        self.add(label, read_limits({**options.written_limits, **limits}, known=self.test.state.limits))
        self.labels.add(label)
        return label

    def add(self, label: str | None, limits: tuple[Asked, ...] = (), *, why_not: str | None = None) -> None:
        """Add a measurement to those that will be judged."""
        self.measurements[label] = Measurement(
            label=label,
            limits=limits,
            explanation=Explanation(screen=self.test.screen),
            of_body=self.body_is_step,
            why_not=why_not,
        )

    def change(self, label: str | None, **changes: Any) -> Measurement:
        """Put a measurement that knows more in the place of the one with this label."""
        self.measurements[label] = replace(self.measurements[label], **changes)
        return self.measurements[label]

    def iterations(self, label: str | None) -> Generator[None, None, None]:
        """Yield once for each call of the measured code, and leave profile and recording behind."""
        if not self.test.state.options.enabled:
            return self._plain_call(label)
        return self._alone(self._replay(label) if self.test.state.options.replay is not None else self._live(label))

    def _alone(self, calls: Generator[None, None, None]) -> Generator[None, None, None]:
        self.measuring = True
        try:
            yield from calls
        finally:
            self.measuring = False

    def repeat(self, label: str | None, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the measured code as often as it takes, and return what the last call returned."""
        result, explanation = None, self.measurements[label].explanation
        with closing(self.iterations(label)) as calls:
            for _ in calls:
                if explanation.running:
                    done, again = _call_once_more(explanation, function, args, kwargs)
                    result = again if done else result
                    continue
                result = None  # A result that lived through the next call would count as its memory.
                result = function(*args, **kwargs)
        if explanation.plan is not None:
            explanation.again = partial(self._explain, label, explanation, function, args, kwargs)
        return result

    def _explain(
        self, label: str | None, explanation: Explanation, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Repeat a measurement with stacks after it, for a limit that the test's body asks for."""
        if self.measuring or explanation.plan is None:
            explanation.fail("the code cannot be called again inside another measurement")
            return
        path = self.test.state.recordings.new_stacks_file(self.test.nodeid, label)
        with closing(self._alone(explanation.calls(explanation.plan, path))) as calls:
            for _ in calls:
                _call_once_more(explanation, function, args, kwargs)

    def _plain_call(self, label: str | None) -> Generator[None, None, None]:
        yield
        gate = self._gate(frozenset({"result"}), "measuring is off (--torchprof=off)")
        self.change(label, profile=Profile.unmeasured(gate=gate))

    def _replay(self, label: str | None) -> Generator[None, None, None]:
        test = self.test
        path = test.state.recordings.find(test.nodeid, label)
        profile = Profile.from_trace(read(path))
        metadata, kind = profile.trace.metadata, profile.trace.device_kind
        recorded = (metadata.nodeid, metadata.label) if metadata is not None else (None, None)
        if recorded != (test.nodeid, label):
            raise TorchprofError(
                f"{path} is a recording of {_name(*recorded)}, not of {_name(test.nodeid, label)}; "
                f"record it again with --torchprof-save={path.parent}"
            )
        if is_changed(profile.trace):
            with suppress(TorchprofWarning):  # Where warnings are errors this one is none.
                warnings.warn(f"{path} was changed since it was recorded", TorchprofWarning, stacklevel=2)
        measurement = self.change(label, recording=path)
        if not kind.has_launches and test.options.device not in ("auto", kind.name):
            reason = f"{path.name} was recorded on the {kind.name}, and the test asks for {test.options.device}"
            self.change(label, why_not=reason)
        elif profile.why_not is not None:
            self.measurements[label] = measurement.doubted(profile.why_not)
        measurement = self.change(label, profile=self._guarded(profile, measurement.explanation, replay=True))
        beside = path.with_name(stacks_name(path.name))
        if beside.is_file():
            measurement.explanation.again = partial(measurement.explanation.read, beside)
        if self._needs_lines(measurement) and beside.is_file():
            measurement.explanation.read(beside)
        return
        yield

    def _live(self, label: str | None) -> Generator[None, None, None]:
        test, measurement = self.test, self.measurements[label]
        options = test.options
        if (reason := test.state.unarmed.get(options.device)) is not None:
            self.measurements[label] = measurement.doubted(reason)
            times = test.baseline.takes_times
            yield from [None] * capture.calls_beside_others(options.warmup, options.steps, times=times)
            raise self.measurements[label].error
        plan = self._plan(measurement)
        profile = yield from self._measure(label, plan)
        if profile is None:
            return
        explanation = measurement.explanation
        explanation.plan = plan
        measurement = self.change(label, profile=self._guarded(profile, explanation, replay=False))
        if self._needs_lines(measurement):
            yield from explanation.calls(plan, test.state.recordings.new_stacks_file(test.nodeid, label))

    def _plan(self, measurement: Measurement) -> capture.Plan:
        test, options = self.test, self.test.options
        device = capture.pick_device(options.device)
        takes_times = test.baseline.takes_times and not (options.device == "auto" and device == "cpu")
        return capture.Plan(
            device=device,
            asked=options.device,
            warmup=options.warmup,
            steps=options.steps,
            record=options.record,
            nodeid=test.nodeid,
            label=measurement.label,
            count_flops=any(one.limit.name == "min_mfu" for one in measurement.limits),
            times=options.tolerance.cache if takes_times else None,
        )

    def _measure(self, label: str | None, plan: capture.Plan) -> Generator[None, None, Profile | None]:
        """Yield for each call of a live measurement; return its profile, None where the calls were left early."""
        test, profile = self.test, None

        def check(recording: Path) -> str | None:
            nonlocal profile
            self.change(label, recording=recording)
            profile = Profile.from_trace(read(recording))
            return profile.why_not

        def needs_more_times() -> bool:
            return profile is not None and test.baseline.needs_more_times(label, profile)

        path, name = test.state.recordings.new_file(test.nodeid, label), _name(test.nodeid, label)
        total = plan.warmup + plan.steps
        with closing(capture.iterations(plan, path, check, needs_more_times)) as calls:
            try:
                for done, _ in enumerate(calls):
                    test.progress(name, min(done, total - 1), total)
                    yield
            except NotMeasured as problem:
                self.measurements[label] = self.measurements[label].doubted(str(problem))
                raise self.measurements[label].error from None
            finally:
                test.progress(name, total, total)
        return profile

    def _needs_lines(self, measurement: Measurement) -> bool:
        """Judge a measurement by itself, and return whether it fails by work whose lines are not known yet."""
        if measurement.why_not is not None or measurement.profile is None:
            return False
        # A baseline that cannot be read, and what a check of another plugin raises, is told when the test is judged.
        with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
            self.judgements[measurement.label] = judge(self.test, measurement)
        judgement = self.judgements.get(measurement.label)
        return judgement is not None and judgement.lacks_lines

    def _guarded(self, profile: Profile, explanation: Explanation, *, replay: bool) -> Profile:
        """Return the profile with the rules of other plugins, and a gate where numbers are not to be looked at."""
        gate = None
        if self.test.stands_in(profile):
            names = ", ".join(self.test.unanswerable(self.measurements.values())) or "GPU numbers"
            reason = f"body passed so far; not judged without a GPU: {names}{self.test.why_no_gpu()}"
            gate = self._gate(READABLE_WITHOUT_GPU, reason)
        elif replay:
            gate = self._gate(None, "a replay does not run the measured code, so there is no result")
        return profile.with_context(rules=self.test.state.rules, gate=gate).with_explainer(explanation)

    def _gate(self, readable: frozenset[str] | None, reason: str) -> Callable[[str], None]:
        """Return a gate that skips the test at a look at anything but ``readable``; None: at ``result`` only."""

        def gate(name: str) -> None:
            if name == "result" if readable is None else name not in readable:
                self.gated = f"{reason}, profile.{name}"
                pytest.skip(self.gated)

        return gate


def _call_once_more(explanation: Explanation, function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[bool, Any]:
    """Make the call of the repeat; what it raises is a reason to have no places, and fails nothing."""
    try:
        return True, function(*args, **kwargs)
    except pytest.exit.Exception:
        raise
    except (Exception, pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception) as problem:  # noqa: BLE001
        explanation.call_raised(problem)
        return False, None


def _name(nodeid: str | None, label: str | None) -> str:
    return str(nodeid) + (f" ({label})" if label else "")

"""One test's measurements: taken live, or from a kept recording."""

from __future__ import annotations

import inspect
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof.capture.ranks import this_rank
from pytest_torchprof.errors import NotMeasured, TorchprofError, UnknownLimit
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.testing.comparing import Comparing
from pytest_torchprof.testing.explaining import Explaining, misses
from pytest_torchprof.testing.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import torch

    from pytest_torchprof.limits import Asked, Screen
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.session import RunState
    from pytest_torchprof.testing.settings import MeasureOptions

READABLE_WITHOUT_GPU = frozenset({"compile", "graph_breaks", "recompiles", "result", "trace", "why_not", "measured"})


@dataclass(slots=True, kw_only=True)
class TestRun:
    """What one run of one test measures."""

    __test__ = False

    state: RunState
    options: MeasureOptions
    nodeid: str
    path: Path
    source: str
    """The text of the test function."""
    progress: Callable[[str, int, int], None]
    uses_fixture: bool
    location: tuple[str, int]
    """The test's file, relative to the root directory, and line."""
    screen: Screen
    """How much a failure may say."""
    properties: list[tuple[str, Any]]
    """Where JUnit looks for what a test has to tell."""
    measured: list[Measured] = field(default_factory=list)
    labels: set[str | None] = field(default_factory=set)
    """Those of all measurements so far, judged or not."""
    announced: list[str] = field(default_factory=list)
    """Labels of ``measure()`` whose block was not entered yet."""
    measuring: bool = False
    gated: str | None = None
    """The test looked at a number that this run does not have, and its rest was skipped."""
    failure: TorchprofError | None = None
    """What the judging came to, once it was done."""
    raised_again: BaseException | None = None
    """What a block raised when it was called once more for an explanation."""
    baseline_entries: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """(file, key, entry) to write if the whole test passes."""

    def commit_baselines(self) -> None:
        """Hand over what a baseline keeps of this test: it passed altogether."""
        for file, key, entry in self.baseline_entries:
            self.state.baseline_updates.setdefault(file, {})[key] = entry

    @property
    def device(self) -> torch.device:
        """The device that this test is measured on; in a replay, what this machine has."""
        import torch  # noqa: PLC0415  (a run without torchprof tests never pays for torch)

        from pytest_torchprof import capture  # noqa: PLC0415

        replay = self.state.settings.replay is not None
        return torch.device(capture.pick_device("auto" if replay else self.options.device))

    @property
    def comparing(self) -> Comparing:
        """What its measurements are held against."""
        return Comparing(
            settings=self.state.settings,
            options=self.options,
            nodeid=self.nodeid,
            path=self.path,
            source=self.source,
        )

    @property
    def body_is_step(self) -> bool:
        """Whether the test body itself is the measured step: marked, and nothing measures inside it."""
        return self.options.marked and not self.uses_fixture

    def start(self, label: str | None, given: Mapping[str, object]) -> Measured:
        """Begin a measurement under a label that no other one of this test has."""
        from pytest_torchprof.limits import read_limits  # noqa: PLC0415

        if self.measuring:
            raise TorchprofError(
                f"{self.nodeid} asks for a measurement inside another one of its own"
                + (
                    " (the marker measures the whole body: request the fixture in the test's signature)"
                    if self.body_is_step
                    else ""
                )
                + "; measure one after the other"
            )
        if option := next(
            (name for name in given if name in ("warmup", "steps", "device", "record", "names", "baseline")), None
        ):
            raise UnknownLimit(f"{option!r} is no limit of one measurement; it belongs into the marker")
        if label is None and self.labels:
            label = next(name for n in count(len(self.labels) + 1) if (name := f"#{n}") not in self.labels)
        if label in self.labels:
            raise UnknownLimit(f"the label {label!r} is used twice in {self.nodeid}; each measurement needs its own")
        limits = read_limits({**self.options.given, **given}, known=self.state.limits)
        self.labels.add(label)
        return self.note(label, limits)

    def note(self, label: str | None, limits: tuple[Asked, ...] = (), *, why_not: str | None = None) -> Measured:
        """Add a measurement to those that will be judged."""
        measured = Measured(label=label, limits=limits, why_not=why_not, explaining=Explaining(screen=self.screen))
        self.measured.append(measured)
        return measured

    def asked(self, measured: Measured, profile: Profile) -> list[Asked]:
        """Return the limits of a measurement that can be judged on this device."""
        from pytest_torchprof.limits import COMPILE  # noqa: PLC0415

        stands_in = self.stands_in(profile)
        return [one for one in measured.limits if one.limit.needs == COMPILE or not stands_in]

    def iterations(self, measured: Measured) -> Generator[None, None, None]:
        """Yield once for each call of the measured code, and leave profile and recording behind."""
        if not self.state.settings.enabled:
            return self._plainly(measured)
        return self._alone(self._replayed(measured) if self.state.settings.replay is not None else self._live(measured))

    def _alone(self, calls: Generator[None, None, None]) -> Generator[None, None, None]:
        self.measuring = True
        try:
            yield from calls
        finally:
            self.measuring = False

    def repeat(self, measured: Measured, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the measured code as often as it takes, and return what the last call returned."""
        result = None
        with closing(self.iterations(measured)) as calls:
            for _ in calls:
                if measured.explaining.running:
                    done, again = self._once_more(measured, function, args, kwargs)
                    result = again if done else result
                    continue
                result = None  # A result that lived through the next call would count as its memory.
                result = function(*args, **kwargs)
        if measured.explaining.plan is not None:
            measured.explaining.again = partial(self._explain, measured, function, args, kwargs)
        return result

    def _once_more(self, measured: Measured, function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[bool, Any]:
        """Make the call of the repeat; what it raises is a reason to have no places, and fails nothing."""
        try:
            return True, function(*args, **kwargs)
        except pytest.exit.Exception:
            raise
        except (Exception, pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception) as problem:  # noqa: BLE001
            measured.explaining.raised(problem)
            return False, None

    def _explain(self, measured: Measured, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Repeat a measurement with stacks after it, for a limit that the test's body asks for."""
        explaining, plan = measured.explaining, measured.explaining.plan
        if self.measuring or plan is None:
            explaining.fail("the code cannot be called again inside another measurement")
            return
        with closing(self._alone(explaining.calls(plan, self._stacks(measured)))) as calls:
            for _ in calls:
                self._once_more(measured, function, args, kwargs)

    def _stacks(self, measured: Measured) -> Path:
        from pytest_torchprof.testing.session import recording_name, stacks_name  # noqa: PLC0415

        name = recording_name(self.nodeid, measured.label, this_rank())
        return self.state.scratch / stacks_name(name).removesuffix(".gz")

    def _plainly(self, measured: Measured) -> Generator[None, None, None]:
        from pytest_torchprof.profile import Profile  # noqa: PLC0415

        yield
        measured.profile = Profile.unmeasured(
            gate=self._gate(frozenset({"result"}), "measuring is off (--torchprof=off)")
        )

    def _replayed(self, measured: Measured) -> Generator[None, None, None]:
        from pytest_torchprof.profile import Profile  # noqa: PLC0415
        from pytest_torchprof.recording.reader import read  # noqa: PLC0415
        from pytest_torchprof.testing.session import stacks_name  # noqa: PLC0415

        path = self.state.recording_of(self.nodeid, measured.label)
        profile = Profile.from_trace(read(path))
        metadata = profile.trace.metadata
        nodeid, label = (metadata.nodeid, metadata.label) if metadata is not None else (None, None)
        if (nodeid, label) != (self.nodeid, measured.label):
            other = f"{nodeid}" + (f" ({label})" if label else "")
            wanted = self.nodeid + (f" ({measured.label})" if measured.label else "")
            raise TorchprofError(
                f"{path} is a recording of {other}, not of {wanted}; "
                f"record it again with --torchprof-save={path.parent}"
            )
        measured.recording, kind = path, profile.trace.device_kind
        if not kind.has_launches and self.options.device not in ("auto", kind.name):
            measured.why_not = (
                f"{path.name} was recorded on the {kind.name}, and the test asks for {self.options.device}"
            )
        elif profile.why_not is not None:
            measured.doubt(profile.why_not)
        measured.profile = self._guarded(profile, measured.explaining, replay=True)
        beside = path.with_name(stacks_name(path.name))
        if beside.is_file():
            measured.explaining.again = partial(measured.explaining.read, beside)
            if misses(self, measured, profile):
                measured.explaining.read(beside)
        return
        yield

    def _live(self, measured: Measured) -> Generator[None, None, None]:
        from pytest_torchprof import capture  # noqa: PLC0415
        from pytest_torchprof.profile import Profile  # noqa: PLC0415
        from pytest_torchprof.recording.reader import read  # noqa: PLC0415
        from pytest_torchprof.testing.session import recording_name  # noqa: PLC0415

        options = self.options
        if (reason := self.state.unarmed.get(options.device)) is not None:
            measured.fail(reason)
            times = self.comparing.times_are_to_be_had
            yield from [None] * capture.calls_beside_others(options.warmup, options.steps, times=times)
            raise measured.error
        device = capture.pick_device(options.device)
        plan = capture.Plan(
            device=device,
            asked=options.device,
            warmup=options.warmup,
            steps=options.steps,
            record=options.record,
            nodeid=self.nodeid,
            label=measured.label,
            count_flops=any(one.limit.name == "min_mfu" for one in measured.limits),
            times=self.options.tolerance.cache
            if self.comparing.times_are_to_be_had and not (self.options.device == "auto" and device == "cpu")
            else None,
        )
        path = self.state.scratch / recording_name(self.nodeid, measured.label, this_rank()).removesuffix(".gz")

        def check(recording: Path) -> str | None:
            measured.recording = recording
            measured.profile = Profile.from_trace(read(recording))
            return measured.profile.why_not

        def unsure() -> bool:
            return measured.profile is not None and self.comparing.unsure(measured.label, measured.profile)

        name = self.nodeid + (f" ({measured.label})" if measured.label else "")
        total = options.warmup + options.steps
        with closing(capture.iterations(plan, path, check, unsure)) as calls:
            try:
                for done, _ in enumerate(calls):
                    self.progress(name, min(done, total - 1), total)
                    yield
            except NotMeasured as problem:
                measured.fail(str(problem))
                raise measured.error from None
            except GeneratorExit:
                # Left during the calls for times, when there is a profile already.
                measured.profile = None
                raise
            finally:
                self.progress(name, total, total)
        if measured.profile is None:
            return
        explaining, profile = measured.explaining, measured.profile
        explaining.plan = plan
        try:
            if misses(self, measured, profile):
                yield from explaining.calls(plan, self._stacks(measured))
        finally:
            measured.profile = self._guarded(profile, measured.explaining, replay=False)

    def _guarded(self, profile: Profile, explainer: Explaining, *, replay: bool) -> Profile:
        """Return the profile with the rules of other plugins, and a gate where numbers are not to be looked at."""
        gate = None
        if self.stands_in(profile):
            names = ", ".join(self.unanswerable()) or "GPU numbers"
            reason = f"body passed so far; not judged without a GPU: {names}{self.why_no_gpu()}"
            gate = self._gate(READABLE_WITHOUT_GPU, reason)
        elif replay:
            gate = self._gate(None, "a replay does not run the measured code, so there is no result")
        return profile.with_context(rules=self.state.rules, gate=gate).with_explainer(explainer)

    def _gate(self, readable: frozenset[str] | None, reason: str) -> Callable[[str], None]:
        """Return a gate that skips the test at a look at anything but ``readable``; None: at ``result`` only."""

        def gate(name: str) -> None:
            if name == "result" if readable is None else name not in readable:
                self.gated = f"{reason}, profile.{name}"
                pytest.skip(self.gated)

        return gate

    def stands_in(self, profile: Profile) -> bool:
        """Whether the CPU was measured only because there was no GPU."""
        if profile.trace.device_kind.has_launches or self.options.device != "auto":
            return False
        # A recording made for the cpu as device is judged so wherever it is replayed.
        metadata = profile.trace.metadata
        return metadata is None or metadata.device_asked in (None, "auto")

    def why_no_gpu(self) -> str:
        """Return what to add where something is not judged without a GPU: why there is none, if that may surprise."""
        if self.state.settings.replay is not None:
            return ""
        from pytest_torchprof import capture  # noqa: PLC0415

        found = capture.no_gpu()
        return f"; torch sees none: {found.reason}" if found.surprising else ""

    def unanswerable(self) -> list[str]:
        from pytest_torchprof.limits import GPU  # noqa: PLC0415

        names = (
            asked.limit.name for measured in self.measured for asked in measured.limits if asked.limit.needs == GPU
        )
        return [*dict.fromkeys(names), *(["tolerance of time"] if self.comparing.of_times else [])]

    @contextmanager
    def body(
        self, item: pytest.Item, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Iterator[None]:
        """Around the call of the test: where the body is the step, call it as often as it takes.

        ``around`` is what is done around the body itself, inside of all that the test's framework does.
        """
        # Every item that a marker measures has one.
        original = item.obj  # type: ignore[attr-defined]
        if self.body_is_step and inspect.iscoroutinefunction(original):
            raise NotMeasured(
                f"not measured: {self.nodeid} is async, and its body cannot be called again and again as the measured "
                "step; measure a part of it: with torchprof.measure(...) as m, or torchprof(fn, ...)"
            )

        # unittest looks at what a method is marked with, such as an expected failure.
        @wraps(original)
        def measured(*args: Any, **kwargs: Any) -> Any:
            with around():
                if not self.body_is_step:
                    return original(*args, **kwargs)
                return self.repeat(self.start(None, {}), original, args, kwargs)

        @wraps(original)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with around():
                return await original(*args, **kwargs)

        # unittest looks a coroutine method up by itself.
        looked_up = around is not nullcontext and inspect.iscoroutinefunction(original)
        if looked_up:
            setattr(original.__self__, item.name, awaited)
        elif self.body_is_step or around is not nullcontext:
            item.obj = measured  # type: ignore[attr-defined]
        try:
            yield
        finally:
            item.obj = original  # type: ignore[attr-defined]
            if looked_up:
                delattr(original.__self__, item.name)

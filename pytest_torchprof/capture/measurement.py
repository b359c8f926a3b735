"""Runs the measured code: warm-up calls, calls under the profiler, one recording file; or once more, marking lines."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_torchprof.capture import cupti_users, reasons
from pytest_torchprof.capture.cache_phase import with_phase
from pytest_torchprof.capture.compile_log import CompileLog
from pytest_torchprof.capture.compile_watch import CompileWatch
from pytest_torchprof.capture.coordination import Coordination
from pytest_torchprof.capture.devices import (
    MeasuredCodeFailed,
    accelerator,
    after_measured_code,
    synchronize,
    why_unusable,
)
from pytest_torchprof.capture.first_session import arm
from pytest_torchprof.capture.observers import LEAST_WARMUP, FlopCount
from pytest_torchprof.capture.processes import ShowProgress, only_measurement, show_waits
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.capture.recording_file import environment, replace_metadata, write_recording
from pytest_torchprof.capture.samples import (
    CALLS_BESIDE_OTHERS,
    SAMPLES_BESIDE_OTHERS,
    SETTLING,
    Samples,
    on_one_stream,
)
from pytest_torchprof.capture.sentinel import look_for_losses
from pytest_torchprof.capture.session import (
    Session,
    another_profiler_runs,
    refuse_second_profiler,
)
from pytest_torchprof.capture.this_process import this_process
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.capturing import CodeRaised, LoopLeft, NothingHeld, NotReadBack
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError, UnreadableRecording, describe
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.goal import Goal, RunPoint
from pytest_torchprof.reasons.lines import OthersTakeNoPart
from pytest_torchprof.reasons.reason import Reason, Verbatim
from pytest_torchprof.reasons.testing import CalledDifferentlyOften, CallsOfRank
from pytest_torchprof.recording.reader import read
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pytest_torchprof.capture.cache_phase import CachePhase

# Once, and twice more after an invalid measurement.
_ATTEMPTS = 3
# Times are taken once, and once more if the first ones leave a doubt.
_BATCHES = 2


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a measurement: what to record, how often to call the measured code, and on which device."""

    device: str
    """As `pick_device` returns it: "cpu" or "cuda:0"."""
    asked: str = "auto"
    """The device as the user named it: a CPU that was asked for is judged as the device, a stand-in is not."""
    warmup: int
    """Calls before the profiler starts; may be 0."""
    steps: int
    """Calls under the profiler; at least 1."""
    record: frozenset[str]
    """Any of "stacks", "modules", "lines", "memory"; shapes and dtypes are always recorded."""
    nodeid: str | None
    """The test; None outside of tests."""
    label: str | None
    events_alone: bool = False
    """Whether nobody asks what operators are given, nor what the compiler does: a recording without costs a third."""
    count_flops: bool = False
    """Whether the first warm-up call, of two at least, is made uncompiled and its floating-point operations counted."""
    compiled: CompileLog | None = None
    """The test's log of compilations; None for a measurement by itself."""
    repeatable: bool = True
    """Whether the steps can be called anew if a recording of them cannot be believed."""
    times: Literal["hot", "cold"] | None = None
    """Whether untraced times are sampled after the steps, and with hot or cold caches."""
    caches: CachePhase | None = None
    """The state of this process's compile caches when it began; None if nobody asked for it."""
    coordination: Coordination = field(default_factory=Coordination)
    """Keeps the process in step with the other ranks, if several run the code."""
    show: ShowProgress = show_waits
    """Called with what comes next, such as "step 2 of 5"; never while code is timed."""

    @property
    def triton_cache(self) -> Path | None:
        """The folder of Triton's compiled kernels, if no other process uses it; else None."""
        return None if self.caches is None else self.caches.triton


def iterations(
    plan: Plan, path: Path, check: Callable[[Path], Reason | None], unsure: Callable[[], bool] = lambda: False
) -> Generator[None, None, None]:
    """Yield once per call of the measured code; after the last one the recording lies at `path`.

    `plan.warmup` calls run unprofiled, `plan.steps` under the profiler. Then `check(path)` says why the recording
    cannot be believed, or None; after a reason `plan.steps` more calls are profiled, twice at most, then NotMeasured is
    raised with it and the last recording stays for inspection. With `plan.times` the code is called further for
    untraced times, which are added to the recording: one batch, and another if `unsure()` after the first. Of several
    ranks each makes the same number of calls, whatever happens: as many as they agree on, or as is fixed.
    NotMeasured on all of them where they are to make different numbers.
    Whoever runs the code must close this generator when the code raises or is left early (`contextlib.closing`): the
    profiler is then stopped and no recording is left.
    """
    _agree_on_calls(plan)
    made = 0
    reason: Exception | None = None
    with closing(_measure(plan, path, check, unsure)) as calls:
        try:
            for _ in calls:
                made += 1
                yield
        except GeneratorExit as left:
            plan.coordination.leave(_why_left(left))
            raise
        except Exception as problem:  # noqa: BLE001 - the measured code raises where it is called, not here
            reason = _own_reason(problem, plan.device)
    yield from [None] * (
        calls_beside_others(plan.coordination, plan.warmup, plan.steps, times=plan.times is not None) - made
    )
    if reason is not None:
        raise reason from None


def _why_left(problem: BaseException | None) -> Reason:
    """Return why the calls were not made to their end: what is raised around a generator is the context of its exit."""
    while isinstance(problem, GeneratorExit):
        problem = problem.__context__
    return LoopLeft() if problem is None else CodeRaised(describe(problem))


def _own_reason(problem: Exception, device: str) -> Exception:
    """Return the exception to raise for an error between two calls: the measured code's own, or one with the reason."""
    if isinstance(problem, MeasuredCodeFailed):
        return problem.error
    if isinstance(problem, TorchprofError):
        return problem
    # What torch raises of a device and its libraries.
    if isinstance(problem, RuntimeError) and kind_of(device).has_launches:
        return NotMeasured(reasons.of_device(device, problem))
    return NotMeasured(reasons.of_ourselves(problem))


def _agree_on_calls(plan: Plan) -> None:
    """Raise NotMeasured on all ranks where some would call the code more often: they would wait in its collectives."""
    own = CallsOfRank(plan.warmup, plan.steps, plan.times is not None)
    asked = plan.coordination.exchange("the plan", own, CallsOfRank)
    if any(calls != asked[0] for calls in asked):
        raise NotMeasured(CalledDifferentlyOften(tuple(asked)))


def calls_of_refused(
    coordination: Coordination, reason: Reason, warmup: int, steps: int, *, times: bool
) -> Iterator[None]:
    """Yield for the calls of a rank that cannot measure: it makes as many as the others, and announces why."""
    coordination.leave(reason)
    yield from [None] * calls_beside_others(coordination, warmup, steps, times=times)


def calls_beside_others(coordination: Coordination, warmup: int, steps: int, *, times: bool) -> int:
    """Return how many calls each of several ranks makes, also one that measures less: the others wait for it in them.

    0 where that is not fixed: a process alone makes as many as it needs, and ranks in step agree on it.
    """
    return warmup + steps + times * CALLS_BESIDE_OTHERS if coordination.is_fixed else 0


def _measure(
    plan: Plan, path: Path, check: Callable[[Path], Reason | None], unsure: Callable[[], bool]
) -> Generator[None, None, None]:
    measurement, coordination = _Measurement(plan=plan, path=path, check=check), plan.coordination
    with measurement.removing_what_is_unfinished(), ExitStack() as locks:
        yield from _phase(plan, RunPoint.START, 0, measurement.arm(locks))
        counted = int(measurement.counts_operations)
        yield from _phase(plan, RunPoint.FIRST_CALL, counted, measurement.counted_call())
        with measurement.compile_log() as log, CompileWatch(plan.device, log, plan.triton_cache) as watch:
            yield from _phase(plan, RunPoint.WARM_UP, plan.warmup - counted, measurement.warm_up(watch))
            for _ in range(_ATTEMPTS if plan.repeatable and not coordination.is_fixed else 1):
                yield from _phase(plan, RunPoint.STEPS, plan.steps, measurement.attempt(watch))
                reason = coordination.agree("the attempt", measurement.problem)
                if reason is None or any(coordination.exchange("the look for profilers", another_profiler_runs())):
                    break
                measurement.prepare_another()
        if reason is None and plan.times is not None and measurement.written is not None:
            yield from measurement.sample(measurement.written, unsure)
        measurement.over = True
        if reason:
            raise NotMeasured(cupti_users.with_others_in_cupti(reason))


def _phase(plan: Plan, end: RunPoint, calls: int, phase: Iterator[None]) -> Iterator[None]:
    """Yield for the calls of a phase, which are as many on each rank that measures in step with others.

    One that cannot measure makes them all the same. Then no rank goes on: each raises why.
    """
    if not plan.coordination.in_step:
        yield from phase
        return
    made, problem = 0, None
    plan.coordination.head_for(Goal(end))
    try:
        for _ in phase:
            made += 1
            yield
    except Exception as raised:  # noqa: BLE001 - the measured code raises where it is called, not here
        problem = _own_reason(raised, plan.device)
    yield from [None] * (calls - made)
    reason = plan.coordination.agree(end.value, None if problem is None else _why_raised(problem))
    if problem is not None:
        raise problem from None
    if reason is not None:
        raise NotMeasured(reason)


def _why_raised(problem: Exception) -> Reason:
    return problem.reason if isinstance(problem, TorchprofError) else Verbatim(str(problem))


def why_unbelievable(path: Path, check: Callable[[Path], Reason | None]) -> Reason | None:
    """Return the reason that the check gives; NotMeasured where the file cannot be read, nor could be after a retry."""
    try:
        return check(path)
    except UnreadableRecording as problem:
        if problem.cause is None:
            raise
        raise NotMeasured(NotReadBack(problem.cause, problem.cause.CODE)) from None


class _Measurement(Struct, kw_only=True):
    plan: Plan
    path: Path
    check: Callable[[Path], Reason | None]
    calls: int = 0
    attempts: int = 0
    untraced_step_times_us: list[float] = field(default_factory=list)
    flops: FlopCount = field(default_factory=FlopCount)
    problem: Reason | None = None
    over: bool = False
    written: Metadata | None = None
    """The metadata that the recording at ``path`` holds besides the trace, if there is one."""

    def arm(self, locks: ExitStack) -> Iterator[None]:
        """Make sure that there can be a recording, and hold the GPU until the locks are freed; no call is needed."""
        refuse_second_profiler()
        if reason := why_unusable(self.plan.device):
            raise NotMeasured(reason)
        locks.enter_context(only_measurement(self.plan.device, self.plan.show, doing=self.plan.nodeid))
        arm(self.plan.device)
        yield from ()

    @property
    def counts_operations(self) -> bool:
        """Whether the first warm-up call is made unwatched, since the steps will run other code."""
        return self.plan.count_flops and self.plan.warmup >= LEAST_WARMUP

    def counted_call(self) -> Iterator[None]:
        """Make the first warm-up call if its operations are to be counted."""
        if self.counts_operations:
            self.calls += 1
            self.plan.show(f"warm-up call 1 of {self.plan.warmup}", "warm-up")
            with self.flops.counting(), accelerator().captures_noted():
                yield

    @contextmanager
    def compile_log(self) -> Iterator[CompileLog]:
        """Return the test's log of compilations, or one of this measurement alone."""
        if self.plan.compiled is not None:
            yield self.plan.compiled
            return
        with closing(CompileLog()) as log:
            yield log

    def warm_up(self, watch: CompileWatch) -> Iterator[None]:
        for done in range(self.calls, self.plan.warmup):
            self.calls += 1
            self.plan.coordination.head_for(Goal(RunPoint.WARM_UP_CALL, done + 1))
            self.plan.show(f"warm-up call {done + 1} of {self.plan.warmup}", "warm-up")
            with watch.call(warmup_calls_left=self.plan.warmup - done), accelerator().captures_noted():
                synchronize(self.plan.device)
                began = perf_counter_ns()
                yield
                with after_measured_code():
                    synchronize(self.plan.device)
            self.untraced_step_times_us.append((perf_counter_ns() - began) / 1000)

    def attempt(self, watch: CompileWatch) -> Iterator[None]:
        self.attempts += 1
        with Session(self.plan.device, self.plan.record, events_alone=self.plan.events_alone) as session:
            for index in range(self.plan.steps):
                self.calls += 1
                self.plan.coordination.head_for(Goal(RunPoint.STEP, index + 1))
                again = f", attempt {self.attempts}" if self.attempts > 1 else ""
                self.plan.show(f"step {index + 1} of {self.plan.steps}{again}", "steps")
                with watch.call(warmup_calls_left=0), session.step(index):
                    yield
            session.finish()
            self.problem = session.problem
            if session.exportable:
                metadata = _metadata(
                    self.plan,
                    session,
                    calls=self.calls,
                    attempts=self.attempts,
                    untraced_step_times_us=tuple(self.untraced_step_times_us) or None,
                    flops_per_step=self.flops.flops,
                    compile=with_phase(watch.evidence(), self.plan.caches, self.plan.label),
                    graph_replays=session.replays.in_order,
                )
                self.written = write_recording(session, self.path, metadata)
                if kind_of(self.plan.device).has_launches and this_process().looks_for_losses:
                    look_for_losses(self.path)
        self.problem = self.problem or why_unbelievable(self.path, self.check)

    def prepare_another(self) -> None:
        """Look at what the recording that cannot be believed has lost, so that the next one loses less."""
        if self.written and kind_of(self.plan.device).has_launches:
            look_for_losses(self.path)

    def sample(self, written: Metadata, unsure: Callable[[], bool]) -> Iterator[None]:
        plan, coordination = self.plan, self.plan.coordination
        ours = kind_of(plan.device).has_launches and on_one_stream(read(self.path))
        samples = Samples(plan.device, plan.times or "hot", one_stream=ours)
        for _ in range(_BATCHES):
            yield from _phase(plan, RunPoint.CALLS_BEFORE_UNTRACED, SETTLING, samples.settle())
            if (reason := coordination.agree("the calls before the untraced ones", samples.why_not)) is None:
                count = (
                    SAMPLES_BESIDE_OTHERS
                    if coordination.is_fixed
                    else min(coordination.exchange("a count", samples.wanted))
                )
                plan.show(f"untraced calls: {count:,}", "samples")
                yield from _phase(plan, RunPoint.UNTRACED_CALLS, count, samples.take(count))
                reason = coordination.agree("the untraced calls", samples.why_not)
            samples.why_not = reason
            calls = self.calls + samples.calls
            replace_metadata(self.path, replace(written, calls=calls, timing=samples.timing))
            self.check(self.path)
            if reason is not None or not (coordination.is_fixed or any(coordination.exchange("the times", unsure()))):
                break

    @contextmanager
    def removing_what_is_unfinished(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.written and not self.over:
                self.path.unlink(missing_ok=True)


def once_more(plan: Plan, path: Path) -> Generator[None, None, None]:
    """Yield once; then a recording of that call, with marks of lines and modules, lies at ``path``.

    NotMeasured says why there is none. The warm-up is over: the measurement was just made. Marks cost time, so there is
    one step and no further attempt.
    """
    if plan.coordination.is_fixed:
        # They may have kept their limits: a collective of this rank alone would wait for them for ever.
        raise NotMeasured(OthersTakeNoPart(this_rank().world))
    made = 0
    with closing(_repeated(plan, path)) as calls:
        try:
            for _ in calls:
                made += 1
                yield
        except Exception as problem:  # noqa: BLE001 - the measured code raises where it is called, not here
            if plan.coordination.in_step and not made:
                yield  # The others make this call.
            raise _own_reason(problem, plan.device) from None


def _repeated(plan: Plan, path: Path) -> Generator[None, None, None]:
    with (
        only_measurement(plan.device, plan.show, doing=plan.nodeid),
        Session(plan.device, frozenset({"lines"})) as session,
    ):
        with session.step(0):
            yield
        session.finish()
        if session.problem or not session.exportable:
            raise NotMeasured(session.problem or NothingHeld())
        if session.why_no_lines:
            raise NotMeasured(session.why_no_lines)
        write_recording(session, path, _metadata(plan, session, warmup=0, steps=1, calls=1, attempts=1))


def _metadata(plan: Plan, session: Session, **more: Any) -> Metadata:
    rank = this_rank()
    known: dict[str, Any] = {"warmup": plan.warmup, "steps": plan.steps, **session.memory, **more}
    return Metadata(
        nodeid=plan.nodeid,
        label=plan.label,
        rank=rank.number,
        world_size=rank.world,
        local_rank=rank.local,
        run_id=rank.run_id,
        clock=rank.clock,
        device=plan.device,
        device_asked=plan.asked,
        devices_used=session.devices,
        environment=environment(plan.device),
        sentinel=SENTINEL,
        step_cpu_times_us=None if kind_of(plan.device).has_launches else tuple(session.cpu_times_us),
        threads=tuple(sorted(set(session.threads))),
        problems=(session.problem.to_plain(),) if session.problem else (),
        lines=session.all_lines_marked,
        captured_graphs=session.captured_graphs,
        **known,
    )

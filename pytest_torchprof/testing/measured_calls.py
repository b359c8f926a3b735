"""How each measurement of a test is taken: live, from a recording, or not at all where measuring is off."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_torchprof import capture
from pytest_torchprof.against.imports import foreign_code, foreign_origin
from pytest_torchprof.analysis.regions import regions_of
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.limits import needs_flops
from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.profiles import READABLE_WITHOUT_GPU, Profile
from pytest_torchprof.reasons.adopting import OtherDevice
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.testing import CalledDifferentlyOften
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.recording.reader import read
from pytest_torchprof.testing.compile_cache import doubt_of, why_no_phase
from pytest_torchprof.testing.measurement import Measurement, judge_measurement
from pytest_torchprof.testing.other_ranks import to_tell, told_in, with_other_recordings
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.test_run import TestRun
    from pytest_torchprof.trace import Trace

    Calls = Generator[None, None, None]


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
    if explanation.plan is not None and explanation.plan.pace.in_step:
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
    return trace


def _replay(run: TestRun, label: str | None) -> Calls:
    test, trace = run.test, kept_trace(run, label)
    path, profile, kind = Path(str(trace.path)), profile_of(run, trace), trace.device_kind
    measurement = run.change(label, recording=path)
    if not kind.has_launches and test.options.device not in ("auto", kind.name):
        run.change(label, why_not=OtherDevice(path.name, kind.name, test.options.device))
    elif profile.doubt is not None:
        run.doubt(label, profile.doubt)
    elif (doubt := _doubt(run, profile)) is not None:
        run.change(label, why_not=doubt)
    if len(paths := test.state.recordings.of_all_ranks(test.nodeid, label)) > 1:
        profile = with_other_recordings(
            profile, lambda own: [told_in(one, test.own_kernels) if one != path else own for one in paths]
        )
    measurement = run.change(label, profile=guarded(run, profile, measurement.explanation, replay=True))
    beside = path.with_name(stacks_name(path.name))
    if beside.is_file():
        measurement.explanation.call_by(partial(Explanation.read, path=beside))
    if _lacks_lines(run, measurement) and beside.is_file():
        measurement.explanation.read(beside)
    return
    yield


def _live(run: TestRun, label: str | None) -> Calls:
    try:
        yield from _measured_live(run, label)
    except NotMeasured as problem:
        raise run.doubt(label, problem.reason).error from None


def _measured_live(run: TestRun, label: str | None) -> Calls:
    test, options = run.test, run.test.options
    pace = test.state.pace(test.nodeid, label, after_test=run.judged)
    if (reason := test.state.unarmed.get(options.device)) is not None:
        times = test.baseline.takes_times
        pace.leave(reason)
        yield from [None] * capture.calls_beside_others(pace, options.warmup, options.steps, times=times)
        raise NotMeasured(reason)
    if (reason := why_no_phase(options.compile_cache, test.state.caches)) is not None:
        raise NotMeasured(reason)
    measurement = run.measurements[label]
    plan = _plan(run, measurement, pace)
    _agree_on_calls(plan)
    profile = yield from _captured(run, label, plan)
    if profile is None:
        return
    explanation = measurement.explanation
    explanation.made_by(plan)
    if pace.in_step:
        profile = with_other_recordings(profile, partial(pace.exchange, "the recordings"))
    guarded_profile = guarded(run, profile, explanation, replay=False)
    measurement = run.change(label, profile=guarded_profile, why_not=other_code(run) or _doubt(run, profile))
    lacks_lines = _lacks_lines(run, measurement)
    if pace.in_step:
        told = pace.exchange("the verdicts", to_tell(run.judgements.get(label), test.baseline))
        run.note_ranks(label, told)
        lacks_lines = any(one.get("lacks_lines") for one in told)
        pace.close()
    if lacks_lines:
        yield from explanation.calls(plan, test.state.recordings.new_stacks_file(test.nodeid, label))


def _doubt(run: TestRun, profile: Profile) -> Reason | None:
    """Return why the compile caches were not as asked; how a CPU compiles that stands in for a GPU is no matter."""
    return None if run.test.stands_in(profile) else doubt_of(profile)


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
        caches=test.state.caches,
        pace=pace,
        show=partial(test.progress, _shown(test.nodeid, measurement.label)),
    )


def _agree_on_calls(plan: capture.Plan) -> None:
    """Raise NotMeasured on all ranks where some would call the code more often: they would wait in its collectives."""
    asked = plan.pace.exchange("the plan", [plan.warmup, plan.steps, plan.times is not None])
    if all(one == asked[0] for one in asked):
        return
    ranks = (
        f"rank {rank} warmup={warmup}, steps={steps}{', and times' if times else ''}"
        for rank, (warmup, steps, times) in enumerate(asked)
    )
    raise NotMeasured(CalledDifferentlyOften(tuple(ranks)))


def _captured(run: TestRun, label: str | None, plan: capture.Plan) -> Generator[None, None, Profile | None]:
    """Yield for each call of a live measurement; return its profile, None where the calls were left early."""
    test, profile = run.test, None

    def check(recording: Path) -> Reason | None:
        nonlocal profile
        run.change(label, recording=recording)
        profile = profile_of(run, read(recording))
        return profile.doubt

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
        run.note_judgement(judge_measurement(run.test, measurement))
    # Only what the test itself asks from here on is its own to answer for, not what a plugin's finding asked.
    measurement.profile.launching.refused.clear()
    judgement = run.judgements.get(measurement.label)
    return judgement is not None and judgement.lacks_lines


def other_code(run: TestRun, *, elsewhere: bool = False) -> Reason | None:
    """Return why what was measured is not the code of this side of a comparison with a commit; None where it is.

    ``elsewhere``: in another process, which finds its modules as this one would.
    """
    if (side := run.test.state.options.against) is None:
        return None
    return (foreign_origin(side) if elsewhere else None) or foreign_code(side)


def profile_of(run: TestRun, trace: Trace) -> Profile:
    """Return the profile of a recording of a test's, where kernels that no table knows are what the test says."""
    return Profile.from_trace(trace).with_own_kernels(run.test.own_kernels)


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
            why = f"{reason}, profile.{name}"
            run.end_early(why)
            pytest.skip(why)

    return gate


def _shown(nodeid: str | None, label: str | None) -> str:
    return printable_line(str(nodeid) + (f" ({label})" if label else ""))

"""A measurement that is taken here and now: the measured code is called under the profiler."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_torchprof import capture
from pytest_torchprof.analysis.regions import regions_of
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.limits import needs_flops
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.reader import read
from pytest_torchprof.testing.compile_cache import why_no_phase
from pytest_torchprof.testing.other_ranks import with_other_recordings

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.testing.test_run import TestRun


def live(run: TestRun, asked: Measurement) -> Generator[None, None, Measurement]:
    """Yield once for each call of the measured code; return the measurement, also where it is not to be believed."""
    path = run.test.state.recordings.new_file(run.test.nodeid, asked.label)
    measurement = replace(asked, recording=path)
    try:
        return (yield from _measured(run, measurement, path))
    except NotMeasured as problem:
        return measurement.doubted(problem.reason)


def _measured(run: TestRun, asked: Measurement, path: Path) -> Generator[None, None, Measurement]:
    test, options = run.test, run.test.options
    coordination = test.state.coordination(test.nodeid, asked.label, after_test=run.judged)
    if (reason := test.state.unarmed.get(options.device)) is not None:
        times = test.baseline.takes_times
        yield from capture.calls_of_refused(coordination, reason, options.warmup, options.steps, times=times)
        return asked.doubted(reason)
    if (reason := why_no_phase(options.compile_cache, test.state.caches)) is not None:
        return asked.doubted(reason)
    plan = _plan(run, asked, coordination)
    profile = yield from _captured(test, plan, path)
    if profile is None:
        return asked
    run.compiled.note_run(regions_of(profile.trace).ids)
    asked.explanation.made_by(plan)
    if coordination.in_step:
        profile = with_other_recordings(profile, partial(coordination.exchange, "the recordings"))
    return replace(asked, profile=profile, why_not=test.other_code() or test.doubt_of_caches(profile))


def _plan(run: TestRun, asked: Measurement, coordination: capture.Coordination) -> capture.Plan:
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
        label=asked.label,
        count_flops=needs_flops(asked.limits),
        compiled=run.compiled,
        times=options.tolerance.cache if takes_times else None,
        caches=test.state.caches,
        coordination=coordination,
        show=partial(test.progress, test.nodeid, asked.label),
    )


def _captured(test: MeasuredTest, plan: capture.Plan, path: Path) -> Generator[None, None, Profile | None]:
    """Yield for each call of a live measurement; return its profile, None where the calls were left early."""
    profile: Profile | None = None

    def check(recording: Path) -> Reason | None:
        nonlocal profile
        profile = test.profile_of(read(recording))
        return profile.doubt

    def needs_more_times() -> bool:
        return profile is not None and test.baseline.needs_more_times(plan.label, profile)

    with closing(capture.iterations(plan, path, check, needs_more_times)) as calls:
        try:
            yield from calls
        finally:
            plan.show("")
    return profile

"""A measurement that is taken here and now: the measured code is called under the profiler."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof import capture
from pytest_torchprof.analysis.regions import regions_of
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.limits import needs_flops
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.reader import read

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_torchprof.capture.compile_log import CompileLog
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement


def live(
    test: MeasuredTest, asked: Measurement, compiled: CompileLog, *, after_test: bool
) -> Generator[None, None, Measurement]:
    """Yield once for each call of the measured code; return the measurement, even if it cannot be believed."""
    path = test.state.recordings.new_file(test.nodeid, asked.label)
    measurement = replace(asked, recording=path)
    try:
        coordination = test.state.coordination(test.nodeid, asked.label, after_test=after_test)
        return (yield from _measured(test, measurement, path, compiled, coordination))
    except NotMeasured as problem:
        return measurement.doubted(problem.reason)


def _measured(
    test: MeasuredTest, asked: Measurement, path: Path, compiled: CompileLog, coordination: capture.Coordination
) -> Generator[None, None, Measurement]:
    options = test.options
    unarmed = test.state.unarmed.get(options.device)
    if (reason := unarmed or test.why_no_phase) is None:
        plan = _plan(test, asked, compiled, coordination)
        profile = yield from _captured(test, plan, path)
        if profile is None:
            return asked
        asked.explanation.made_by(plan)
        compiled.note_run(regions_of(profile.trace).ids)
        return replace(asked, profile=profile)
    if unarmed is not None:
        times = test.baseline.takes_times
        yield from capture.calls_of_refused(coordination, unarmed, options.warmup, options.steps, times=times)
    return asked.doubted(reason)


def _plan(
    test: MeasuredTest, asked: Measurement, compiled: CompileLog, coordination: capture.Coordination
) -> capture.Plan:
    options, device = test.options, capture.pick_device(test.options.device)
    takes_times = test.baseline.takes_times and (options.device != "auto" or kind_of(device).has_launches)
    return capture.Plan(
        device=device,
        asked=options.device,
        warmup=options.warmup,
        steps=options.steps,
        record=options.record,
        nodeid=test.nodeid,
        label=asked.label,
        events_alone=test.asks_events_alone,
        count_flops=needs_flops(asked.limits),
        repeatable=not options.of_rule_alone,
        compiled=compiled,
        times=options.tolerance.cache if takes_times else None,
        caches=test.state.caches,
        coordination=coordination,
        show=partial(test.progress, test.nodeid, asked.label),
    )


def _captured(test: MeasuredTest, plan: capture.Plan, path: Path) -> Generator[None, None, Profile | None]:
    """Yield for each call of a live measurement; return its profile, or None where the calls were left early."""
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

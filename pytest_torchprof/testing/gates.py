"""Gates of profiles that lack numbers: where a test looks at one that is missing, the rest of the test is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.profiles import READABLE_WITHOUT_GPU, Profile
from pytest_torchprof.reasons.skips import LacksGpu, MeasuringIsOff, ReplayHasNoResult
from pytest_torchprof.testing.measurement import Gate

if TYPE_CHECKING:
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement


def guarded(test: MeasuredTest, measurement: Measurement) -> Measurement:
    """Return the measurement with its profile as the test may see it, with the rules of other plugins."""
    options, gate = test.state.options, None
    if not options.enabled:
        return unmeasured(measurement, readable=frozenset({"result"}))
    if (profile := measurement.profile) is None:
        return measurement
    if measurement.stands_in:
        why = LacksGpu(tuple(measurement.unanswerable), test.why_no_gpu(), ended=False)
        gate = Gate(why, READABLE_WITHOUT_GPU)
    elif options.replay is not None and profile.trace.adoption is None:
        gate = Gate(ReplayHasNoResult(), None)
    profile = profile.with_context(rules=test.state.rules, gate=gate).with_explainer(measurement.explanation)
    return replace(measurement, profile=profile, gate=gate)


def unmeasured(measurement: Measurement, *, readable: frozenset[str]) -> Measurement:
    """Return the measurement of a run in which measuring is off: its profile is empty."""
    gate = Gate(MeasuringIsOff(), readable)
    return replace(measurement, profile=Profile.unmeasured(gate=gate), gate=gate)

"""Gates of profiles that lack numbers: where a test looks at one that is missing, the rest of the test is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_torchprof.profiles import READABLE_WITHOUT_GPU, Profile
from pytest_torchprof.report.account import NotJudgedOnCpu
from pytest_torchprof.testing.measurement import Gate

if TYPE_CHECKING:
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement

OFF: Final = "measuring is off (--torchprof=off)"


def guarded(test: MeasuredTest, measurement: Measurement) -> Measurement:
    """Return the measurement with its profile as the test may see it, with the rules of other plugins."""
    options, gate = test.state.options, None
    if not options.enabled:
        return unmeasured(measurement, readable=frozenset({"result"}))
    if (profile := measurement.profile) is None:
        return measurement
    if measurement.stands_in:
        unanswered = NotJudgedOnCpu(tuple(measurement.unanswerable) or ("GPU numbers",))
        gate = Gate(f"body passed so far; {unanswered}{test.why_no_gpu()}", READABLE_WITHOUT_GPU)
    elif options.replay is not None and profile.trace.adoption is None:
        gate = Gate("a replay does not run the measured code, so there is no result", None)
    profile = profile.with_context(rules=test.state.rules, gate=gate).with_explainer(measurement.explanation)
    return replace(measurement, profile=profile, gate=gate)


def unmeasured(measurement: Measurement, *, readable: frozenset[str]) -> Measurement:
    """Return the measurement of a run in which measuring is off: its profile is empty."""
    gate = Gate(OFF, readable)
    return replace(measurement, profile=Profile.unmeasured(gate=gate), gate=gate)

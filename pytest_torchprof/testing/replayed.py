"""A measurement that is taken from a kept recording: none of the measured code runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.reasons.adopting import OtherDevice
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.recording.reader import read
from pytest_torchprof.testing.other_ranks import part_in, with_other_recordings
from pytest_torchprof.testing.progress import name_of

if TYPE_CHECKING:
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.trace import Trace


def kept_trace(test: MeasuredTest, label: str | None) -> Trace:
    """Return the recording of a measurement in the folder of a replay; TorchprofError where it is none."""
    path = test.state.recordings.find(test.nodeid, label)
    trace = read(path)
    if trace.of_test != (test.nodeid, label):
        raise TorchprofError(
            f"{path} is a recording of {name_of(*trace.of_test)}, not of {name_of(test.nodeid, label)}; "
            f"record it again with --torchprof-save={path.parent}",
            Code.REPLAY_MISMATCH,
        )
    return trace


def replayed(test: MeasuredTest, asked: Measurement) -> Measurement:
    """Return a measurement as its kept recording has it; TorchprofError where there is none."""
    trace = kept_trace(test, asked.label)
    path, profile = Path(str(trace.path)), test.profile_of(trace)
    measurement = _believed(test, replace(asked, recording=path), profile)
    if len(paths := test.state.recordings.of_all_ranks(test.nodeid, asked.label)) > 1:
        profile = with_other_recordings(
            profile, lambda own: [own if other == path else part_in(other, test.own_kernels) for other in paths]
        )
    beside = path.with_name(stacks_name(path.name))
    if beside.is_file():
        asked.explanation.call_by(partial(Explanation.read, path=beside))
    return replace(measurement, profile=profile)


def _believed(test: MeasuredTest, measurement: Measurement, profile: Profile) -> Measurement:
    """Return a measurement with why its recording is not to be believed, if it is not."""
    kind = profile.trace.device_kind
    if not kind.has_launches and test.options.device not in ("auto", kind.name):
        path = Path(str(profile.trace.path))
        return measurement.refused(OtherDevice(path.name, kind.name, test.options.device))
    if profile.doubt is not None:
        return measurement.doubted(profile.doubt)
    doubt = test.doubt_of_caches(profile)
    return measurement if doubt is None else measurement.refused(doubt)

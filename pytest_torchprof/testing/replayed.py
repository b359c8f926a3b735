"""A measurement that is taken from a kept recording: none of the measured code runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.measuring.explanation import Explanation
from pytest_torchprof.reasons.adopting import OtherDevice
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.recordings import RecordingOfAnother
from pytest_torchprof.recording.files import stacks_name
from pytest_torchprof.recording.reader import read
from pytest_torchprof.testing.progress import name_of

if TYPE_CHECKING:
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement
    from pytest_torchprof.trace import Trace


def kept_trace(test: MeasuredTest, label: str | None) -> Trace:
    """Return the recording of a measurement in the folder of a replay; TorchprofError where there is none."""
    path = test.state.recordings.find(test.nodeid, label)
    trace = read(path)
    if trace.of_test != (test.nodeid, label):
        recorded, wanted = name_of(*trace.of_test), name_of(test.nodeid, label)
        raise TorchprofError.because(RecordingOfAnother(str(path), str(path.parent), recorded, wanted))
    return trace


def replayed(test: MeasuredTest, asked: Measurement) -> Measurement:
    """Return the measurement in a kept recording, even if that cannot be believed.

    TorchprofError where there is none.
    """
    trace = kept_trace(test, asked.label)
    path, kind = Path(str(trace.path)), trace.device_kind
    profile = test.profile_of(trace)
    beside = path.with_name(stacks_name(path.name))
    if beside.is_file():
        asked.explanation.call_by(partial(Explanation.read, path=beside))
    is_other = not kind.has_launches and test.options.device not in ("auto", kind.name)
    doubt = OtherDevice(path.name, kind.name, test.options.device) if is_other else profile.doubt
    return replace(asked, recording=path, profile=profile, why_not=doubt)

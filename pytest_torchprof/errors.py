"""The errors and the warning of this package, to catch or to filter by name; all errors are a `TorchprofError`.

A missed limit raises `LimitsMissed` and whatever could not be measured `NotMeasured`. `UnknownLimit` is for a keyword
or value that is none, `UnreadableRecording` and `UnreadableBaseline` are for files. Each can be imported from
``pytest_torchprof`` too.
"""

from __future__ import annotations

from pytest_torchprof.reasons.errors import (
    LimitsMissed,
    NotMeasured,
    TorchprofError,
    TorchprofWarning,
    UnknownLimit,
    UnreadableBaseline,
    UnreadableRecording,
)

__all__ = [
    "LimitsMissed",
    "NotMeasured",
    "TorchprofError",
    "TorchprofWarning",
    "UnknownLimit",
    "UnreadableBaseline",
    "UnreadableRecording",
]

"""Runs the measured code under torch.profiler and leaves one recording file; imports torch only when called."""

from __future__ import annotations

from pytest_torchprof.capture.coordination import Coordination
from pytest_torchprof.capture.devices import count_gpus, live_device, looking_without_use, pick_device
from pytest_torchprof.capture.first_session import arm, before_others_record
from pytest_torchprof.capture.measurement import Plan, calls_of_refused, iterations, once_more
from pytest_torchprof.capture.processes import tell_slow_export
from pytest_torchprof.capture.reasons import no_gpu
from pytest_torchprof.capture.recording_file import environment

__all__ = [
    "Coordination",
    "Plan",
    "arm",
    "before_others_record",
    "calls_of_refused",
    "count_gpus",
    "environment",
    "iterations",
    "live_device",
    "looking_without_use",
    "no_gpu",
    "once_more",
    "pick_device",
    "tell_slow_export",
]

"""Runs the measured code under torch.profiler and leaves one recording file; imports torch only when called."""

from __future__ import annotations

from pytest_torchprof.capture.arming import arm
from pytest_torchprof.capture.device import pick_device
from pytest_torchprof.capture.environment import environment
from pytest_torchprof.capture.iterations import calls_beside_others, iterations
from pytest_torchprof.capture.plan import Plan
from pytest_torchprof.capture.reasons import no_gpu
from pytest_torchprof.capture.repeating import once_more

__all__ = ["Plan", "arm", "calls_beside_others", "environment", "iterations", "no_gpu", "once_more", "pick_device"]

"""Limits: what a test allows, and whether a measurement keeps to it."""

from __future__ import annotations

from pytest_torchprof.limits.failure import Screen, failure
from pytest_torchprof.limits.judge import (
    LIMITS,
    Asked,
    catalogue,
    idle_step,
    judge,
    missed_somewhere,
    nearest,
    nothing_ran,
    of_compiling,
    read_limits,
)
from pytest_torchprof.limits.limit import COMPILE, GPU, HOLDS, MISSED, NOT_MEASURED, Limit, Verdict

__all__ = [
    "COMPILE",
    "GPU",
    "HOLDS",
    "LIMITS",
    "MISSED",
    "NOT_MEASURED",
    "Asked",
    "Limit",
    "Screen",
    "Verdict",
    "catalogue",
    "failure",
    "idle_step",
    "judge",
    "missed_somewhere",
    "nearest",
    "nothing_ran",
    "of_compiling",
    "read_limits",
]

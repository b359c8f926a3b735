"""The model of a recording: frozen columns of events, how they are linked, and what they nest in."""

from __future__ import annotations

from pytest_torchprof.trace.trace import SENTINEL, Span, StepRange, Trace

__all__ = ["SENTINEL", "Span", "StepRange", "Trace"]

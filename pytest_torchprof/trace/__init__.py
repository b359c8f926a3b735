"""The model of a recording: frozen columns of events, how they are linked, and what they nest in."""

from __future__ import annotations

from pytest_torchprof.trace.trace import PACKAGE, SENTINEL, Span, StepRange, Trace

__all__ = ["PACKAGE", "SENTINEL", "Span", "StepRange", "Trace"]

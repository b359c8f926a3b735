"""The model of a recording: frozen columns of events, their links, and their nesting."""

from __future__ import annotations

from pytest_torchprof.trace.trace import SENTINEL, Span, StepRange, Trace

__all__ = ["SENTINEL", "Span", "StepRange", "Trace"]

"""What a run came to, as plain data, and the forms in which it is told."""

from __future__ import annotations

from collections.abc import Callable

from pytest_torchprof.report.results import Outcome, Result, RunResults

__all__ = ["Outcome", "Reporter", "Result", "RunResults"]

Reporter = Callable[[RunResults], str]
"""Turns a run's results into the text of one file."""

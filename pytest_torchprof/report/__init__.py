"""What a run found out, as plain data, and the forms in which it is told."""

from __future__ import annotations

from collections.abc import Callable

from pytest_torchprof.report.results import FAILED, NOT_MEASURED, PASSED, SKIPPED, XFAILED, Result, RunResults

__all__ = ["FAILED", "NOT_MEASURED", "PASSED", "SKIPPED", "XFAILED", "Reporter", "Result", "RunResults"]

Reporter = Callable[[RunResults], str]
"""Turns a run's results into the text of one file."""

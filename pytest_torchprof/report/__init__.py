"""What a run came to, as plain data, and the forms in which it is told."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pytest_torchprof.report.results import Outcome, Result, RunResults

__all__ = ["Outcome", "Reporter", "Result", "RunResults", "reporters"]

Reporter = Callable[[RunResults], str]
"""Turns a run's results into the text of one file."""

_FILES = (
    "json_report",
    "markdown",
    "exports",
)


def reporters() -> dict[str, Reporter]:
    """Return the formats by the suffix of their files."""
    formats: dict[str, Reporter] = {}
    for file in _FILES:
        formats.update(import_module(f"{__name__}.{file}").FORMATS)
    return formats

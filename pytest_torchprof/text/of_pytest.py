"""The words that pytest writes in front of why a test was skipped."""

from __future__ import annotations

from typing import Final

_SKIPPED: Final = "Skipped: "


def as_skip(why: object) -> str:
    """Return why a test was skipped as pytest's reports have it."""
    return f"{_SKIPPED}{why}"


def why_skipped(message: object) -> str:
    """Return why a test was skipped, of what a report of pytest's says."""
    return str(message).removeprefix(_SKIPPED)

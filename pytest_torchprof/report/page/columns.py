"""A recording as compact columns: what the page draws its timeline and its flames from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis


def pack(analysis: Analysis) -> bytes:
    """Return all slices of a recording as bytes, which are the same for the same recording."""
    return analysis.trace.events.to_bytes(4, "little")

"""The bounds of what a file of a fleet may take of the machine."""

from __future__ import annotations

from msgspec import Struct


class Bounds(Struct, frozen=True, kw_only=True):
    """The time and the memory that a file may take."""

    memory_bytes: int
    timeout_s: float

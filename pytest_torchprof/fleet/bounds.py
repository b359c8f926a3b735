"""What a file of a fleet may take of the machine."""

from __future__ import annotations

from msgspec import Struct


class Bounds(Struct, frozen=True, kw_only=True):
    """What a file may take."""

    memory_bytes: int
    timeout_s: float

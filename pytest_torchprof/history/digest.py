"""The digest by which a history knows a value again."""

from __future__ import annotations

import hashlib

import msgspec


def digest_of(value: object) -> str:
    """Return 32 digits that are the same for equal values, in whatever order mappings were filled."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]

"""The key under which our recordings keep what a trace cannot know: what it must look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA = 1
KEY = "torchprof"


def refusal(ours: Any) -> str | None:
    """Return what is wrong with the key's value, None if it can be read."""
    schema: Any = ours.get("schema") if isinstance(ours, Mapping) else None
    if not _whole(schema):
        return f'its key "{KEY}" has no whole number "schema", so this project did not write it.'
    if schema > SCHEMA:
        return (
            f"it was recorded by a newer pytest-torchprof (schema {schema}, this version reads up to {SCHEMA}). "
            "Upgrade pytest-torchprof."
        )
    for name, (expected, fits) in _ENTRIES.items():
        # Only the number of steps is in every recording; what is not known may be null or missing.
        if not fits(ours.get(name)) and (name == "steps" or ours.get(name) is not None):
            return f'"{name}" in its key "{KEY}" is not {expected}, so it was changed or damaged. Record it again.'
    return None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value))


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(one is None or _whole(one) for one in value)


def _object(value: Any) -> bool:
    return isinstance(value, Mapping)


_ENTRIES = {
    "steps": ("a whole number", _whole),
    "peak_memory_bytes": ("a whole number", _whole),
    "peak_memory_why_not": ("a text", _text),
    "problems": ("a list of texts", _texts),
    "threads": ("a list of texts", _texts),
    "graph_replays": ("a list of whole numbers", _counts),
    "devices_used": ("a list of whole numbers", _whole_numbers),
    "device": ("a text", _text),
    "rank": ("a whole number", _whole),
    "world_size": ("a whole number", _whole),
    "nodeid": ("a text", _text),
    "label": ("a text", _text),
    "environment": ("an object", _object),
    "compile": ("an object", _object),
}

"""Makes JSON of what torch and others write in its place: ``inf``, ``nan``, odd numbers, trailing commas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_END = rb"(?=\s*[,}\]])"
# What kineto writes for "blocks per SM" when it does not know the device: by far the most frequent, and quick to find.
_INFINITE = re.compile(rb'(?<=[^\\]":)\s*[-+]?(?:inf|nan|infinity)' + _END, re.IGNORECASE)
# A string, which is kept; a word or number that JSON does not know, which becomes null; a comma before a bracket.
_TOKENS = re.compile(
    rb'("(?:[^"\\]|\\.)*")|(?<=[:,\[\s])(?!(?:'
    + _NUMBER
    + rb"|true|false|null)"
    + _END
    + rb')[^\s",:{}\[\]]+|,(?=\s*[}\]])'
)


def repairs(text: bytes) -> Iterator[bytes]:
    """Yield ever more thorough repairs of the text, the cheapest first; 30 us per event for the last."""
    yield _INFINITE.sub(b" null", text)
    yield _TOKENS.sub(_replacement, text)


def _replacement(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return match[1]
    return b"" if match[0] == b"," else b"null"

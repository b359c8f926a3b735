"""Patterns for names: ``*`` stands for any text and ``?`` for one character, brackets for themselves."""

from __future__ import annotations

import re
from typing import Final

_WILD: Final = re.compile(r"[*?]")


def is_glob(pattern: str) -> bool:
    """Return whether a pattern stands for more than one name."""
    return _WILD.search(pattern) is not None


def before_wild(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard."""
    return _WILD.split(pattern)[0]


def fits(pattern: str, name: str) -> bool:
    """Return whether a name is one for which the pattern stands."""
    glob = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(glob, name, re.DOTALL) is not None

"""Nouns in the number in which they are counted."""

from __future__ import annotations

_ALIKE = frozenset({"pointwise"})
"""Nouns that have one form."""
_HISSING = ("s", "x", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """Return ``1 copy``, ``3 copies``, ``2,500 kernels``."""
    return f"{count:,} {numbered(count, noun)}"


def numbered(count: float, noun: str) -> str:
    """Return the noun as it stands behind this count, which is said otherwise."""
    return noun if count == 1 else plural(noun)


def plural(noun: str) -> str:
    """Return the noun for several; its last word is the one that changes."""
    if noun in _ALIKE:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_HISSING) else f"{noun}s"

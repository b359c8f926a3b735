"""Suggestions for a word that is none of those expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.text import enumerated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def near(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid word that is nearest; None if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only what is refused needs it

    # Below this it is another word: "kernel_limit" is a typo of nothing.
    return next(iter(get_close_matches(word, sorted(valid), n=1, cutoff=0.7)), None)


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return "did you mean 'max_kernels'?" if a valid word is near, else the valid words."""
    return choice_advice(*choices_like(word, valid))


def choices_like(word: str, valid: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the valid word that is nearest; None if none is near, and all valid words then."""
    names = sorted(valid)
    meant = near(word, names)
    return meant, tuple(names) if meant is None else ()


def choice_advice(meant: str | None, names: Sequence[str]) -> str:
    """Return advice for a word that is none of the valid ones, by the answer of `choices_like`."""
    return f"expected one of {', '.join(names)}" if meant is None else f"did you mean {meant!r}?"


def keywords_like(word: str, valid: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the keyword that a word may mean, None if no keyword is near, and a few that are like it then."""
    from difflib import get_close_matches  # noqa: PLC0415 - only what is refused needs it

    names = sorted(valid)
    meant = near(word, names)
    return meant, tuple(get_close_matches(word, names, n=3, cutoff=0.55)) if meant is None else ()


def keyword_advice(meant: str | None, alike: Sequence[str]) -> str:
    """Return advice for a keyword that does not exist, by the answer of `keywords_like`."""
    if meant is not None:
        return f"did you mean {meant!r}?"
    such_as = f", such as {enumerated(alike)}" if alike else ""
    return f"expected a keyword that `pytest --markers` lists{such_as}; `torchprof explain KEYWORD` says what it means"

"""Regular expressions that are compiled where a text needs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.text.reprs import bracketed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Expression:
    """A regular expression that is compiled at its first use (compiling all of them took 20 ms of every start).

    ``words``, of which each match has one: a text without them is not searched, and the expression of a rare kernel is
    never compiled where there is none.
    """

    __slots__ = ("_compiled", "text", "words")

    def __init__(self, text: str, words: str = "") -> None:
        """Keep the expression's text, and its words, with blanks between them."""
        self.text: Final = text
        self.words: Final = tuple(words.split())
        self._compiled: re.Pattern[str] | None = None

    def __repr__(self) -> str:
        return bracketed(self, self.text)

    def compiled(self) -> re.Pattern[str]:
        """Return the compiled expression."""
        if self._compiled is None:
            self._compiled = re.compile(self.text)
        return self._compiled

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Match at ``start``."""
        return self.compiled().match(text, start) if self._may_match(text) else None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Match the whole text."""
        return self.compiled().fullmatch(text) if self._may_match(text) else None

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Find the first match from ``start`` on."""
        return self.compiled().search(text, start) if self._may_match(text) else None

    def _may_match(self, text: str) -> bool:
        return not self.words or contains(text, self.words)

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Iterate over all matches from ``start`` on."""
        return self.compiled().finditer(text, start)

    def findall(self, text: str) -> list[str]:
        """Return all matches, or their groups if the expression has a group."""
        return self.compiled().findall(text)


def contains(text: str, words: Iterable[str]) -> bool:
    """Return whether any of ``words`` is in ``text``."""
    # A loop: a generator expression costs twice as much, and this is where the time goes.
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False

"""Regular expressions compiled when first used, and tables of words: importing the name tables must cost nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Expression:
    """A regular expression that is compiled at its first use (compiling all of them took 20 ms of every start)."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Keep the expression's text."""
        self.text: Final = text
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """Return the compiled expression."""
        if self._compiled is None:
            self._compiled = re.compile(self.text)
        return self._compiled

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Match at ``start``."""
        return self.compiled().match(text, start)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Find the first match from ``start`` on."""
        return self.compiled().search(text, start)

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Iterate over all matches from ``start`` on."""
        return self.compiled().finditer(text, start)

    def findall(self, text: str) -> list[str]:
        """Return all matches, or their one group."""
        return self.compiled().findall(text)


def contains(text: str, words: Iterable[str]) -> bool:
    """Tell whether any of ``words`` is in ``text``."""
    # A loop: a generator expression costs twice as much, and this is where the time goes.
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def looked_up(text: str, table: Iterable[tuple[str, str]]) -> str | None:
    """Return what the first word of ``table`` that is in ``text`` stands for."""
    for word, meaning in table:
        if word in text:
            return meaning
    return None

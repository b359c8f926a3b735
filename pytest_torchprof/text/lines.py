"""Lines that end where the columns do: a path that is wider than a line is broken between its parts."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDERS = re.compile(r"[^/]*/|[^/]+")
_PARTS_OF_NAMES = re.compile(r"[^-_.]*[-_.]|[^-_.]+")


class _BetweenFolders(textwrap.TextWrapper):
    def _split(self, text: str) -> list[str]:
        room = self.width - max(len(self.initial_indent), len(self.subsequent_indent))
        return [part for word in super()._split(text) for part in _parts(word, room)]


def _parts(word: str, room: int) -> Iterator[str]:
    """Yield the parts of a word between which a line may end: a path's folders, and parts of a file's long name.

    A name that is cut already is nothing to be copied, and is broken between its parts, too.
    """
    if len(word) <= room or not ("/" in word or "..." in word):
        yield word
        return
    for part in _FOLDERS.findall(word):
        if len(part) <= room:
            yield part
        else:
            yield from _PARTS_OF_NAMES.findall(part)


def in_lines(text: str, columns: int, first: str = "", indent: str = "", *, breaks_words: bool = True) -> list[str]:
    """Return a text as lines of at most so many columns; ``first`` begins the first of them, ``indent`` the others.

    ``breaks_words``: any other word too that is wider than a line; else it is whole, to be copied, and wider.
    """
    # A code or an option that is broken at its hyphen cannot be copied.
    wrapper = _BetweenFolders(
        columns,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=breaks_words,
    )
    # A blank stays at the end of a line if the word after it has to be broken.
    return [line.rstrip() for line in wrapper.wrap(text)]

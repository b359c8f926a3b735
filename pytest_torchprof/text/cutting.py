"""Texts that are cut to a number of columns, where they tell the most."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def width_of(text: str) -> int:
    """Return the columns of a terminal that a line takes: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # noqa: PLC0415 - few lines have anything but ASCII

    return wcswidth(text)


def cut(words: str, width: int) -> str:
    """Return the text, cut to at most ``width`` columns."""
    return words if width_of(words) <= width else around_gap(_beginning(words, width - 3), "")


def cut_inside(words: str, width: int) -> str:
    """Return the text, without its middle if it is too wide: names often differ only at their ends."""
    if width_of(words) <= width:
        return words
    behind = (width - 3) * 2 // 5
    return around_gap(_beginning(words, width - 3 - behind), ending(words, behind))


def around_gap(before: str, behind: str) -> str:
    """Return a text without its middle; a name may have lost its own before, or be cut at one of its dots."""
    return f"{before.rstrip('.')}...{behind.lstrip('.')}"


_WORD = r"\S+"
_PATH = r"[^/\s]*/"
_FILE_LINE = r"\S+:\d+\b"
_LONGEST_WORD = 30
"""Longer ones are names of kernels, of which the beginning and the end say something."""
_GAP = " ... "


def without_middle(line: str, width: int) -> str:
    """Return a sentence that is too wide without words in its middle; a file with its line is never among those.

    It is wider than ``width`` only where the files take more.
    """
    if width_of(line) <= width:
        return line
    indent = len(line) - len(line.lstrip())
    room = max(width - indent - len(_GAP), 0)
    behind = room * 2 // 5
    begin, end = indent + len(_beginning(line[indent:], room - behind)), len(line) - len(ending(line, behind))
    words = [(word.start(), word.end(), re.match(_FILE_LINE, word[0]) is not None) for word in re.finditer(_WORD, line)]
    for first, behind, is_place in words:
        if is_place or behind - first <= _LONGEST_WORD:
            # Of the first word at least the beginning stays.
            begin = first if indent < first < begin < behind else begin
            end = behind if first < end < behind else end
    places = [(first, behind) for first, behind, is_place in words if is_place and begin <= first and behind <= end]
    shown = line[:begin]
    for (_, left), (first, behind) in pairwise([(0, begin), *places, (end, len(line))]):
        gap = line[left:first]
        if gap.strip():
            before, after = " " * gap[0].isspace(), " " * gap[-1].isspace()
            shown, gap = (shown if before else shown.rstrip(".")), f"{before}...{after}"
        shown += gap + line[first:behind]
    return shown


def with_ends_of_words(line: str, width: int) -> str:
    """Return a line in which only the ends are left of words that are too wide; a file with its line stays whole."""
    return re.sub(
        _WORD,
        lambda word: (
            word[0]
            if width_of(word[0]) <= width or re.match(_FILE_LINE, word[0])
            else around_gap("", ending(word[0], width - 3))
        ),
        line,
    )


def with_middles_of_words(line: str, width: int) -> str:
    """Return a line in which words that are too wide have lost their middles; paths, which are copied, stay whole."""
    return re.sub(_WORD, lambda word: word[0] if re.match(_PATH, word[0]) else cut_inside(word[0], width), line)


def cut_apart(names: Sequence[str], width: int) -> list[str]:
    """Return names that have to remain different, each cut to a width: of those that begin alike, the ends remain."""
    beginnings = {name: _half_of(name, width) for name in names}
    alike = Counter(beginnings.values())
    return [_without_beginning(name, width) if alike[beginnings[name]] > 1 else cut(name, width) for name in names]


def _half_of(name: str, width: int) -> tuple[str, str]:
    """Return the word for the name's kind, and half of what fits beside it: alike are names that share both."""
    # A name of one word has none for its kind.
    kind, _, own = name.partition(" ") if " " in name else ("", "", name)
    return kind, own[: max(width - len(kind), 0) // 2]


def _without_beginning(name: str, width: int) -> str:
    """Return a name cut to a width after its first word, which names its kind."""
    if width_of(name) <= width:
        return name
    kind, blank, _ = name.partition(" ")
    kept = f"{kind}{blank}" if blank and width_of(kind) < width // 2 else ""
    return kept + around_gap("", ending(name, width - width_of(kept) - 3))


def _beginning(words: str, width: int) -> str:
    if words.isascii():
        return words[:width]
    fitting = (until for until in range(min(width, len(words)), 0, -1) if width_of(words[:until]) <= width)
    return words[: next(fitting, 0)]


def ending(words: str, width: int) -> str:
    """Return the last ``width`` columns of the text."""
    begin = max(len(words) - width, 0)
    while width_of(words[begin:]) > width:
        begin += 1
    return words[begin:]

"""Text out of traces and test ids, made safe to print: they are data, never what a terminal or a CI log acts on."""

from __future__ import annotations

LONGEST = 200
"""Characters of one line; names of 5,000 are real."""


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that a terminal would act on or hide."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def printable_line(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` as one printable line of at most ``longest`` characters."""
    line = printable(text)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."

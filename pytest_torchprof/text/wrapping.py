"""Prose and commands in lines that fit the columns of a terminal."""

from __future__ import annotations

import re

from pytest_torchprof.text import without_commands
from pytest_torchprof.text.cutting import width_of

_SHELL_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"])+"""
WIDTH = 100
"""The most columns that prose takes."""


def _in_lines(text: str, columns: int, first: str, indent: str, *, breaks_words: bool = True) -> list[str]:
    from pytest_torchprof.text.lines import in_lines  # noqa: PLC0415 - JSON needs no textwrap

    return in_lines(text, columns, first, indent, breaks_words=breaks_words)


def wrapped(words: str, indent: str, *, first: str = "", width: int = WIDTH) -> list[str]:
    """Return the text as lines of at most ``width`` columns."""
    return [without_commands(line) for line in _in_lines(words, min(width, WIDTH), first, indent)]


def broken(text: str, columns: int | None, *, command: str = "", hanging: int = 0) -> str:
    """Return prose with its lines broken where the columns end; the command, or path, at its end has lines of its own.

    The rest of a line is indented a little more than its beginning, or to the column ``hanging``. If ``columns`` is
    None, they are not known, as in a file, and lines stay whole. A command that is wider can be copied as it is: a
    shell goes on with its next line.
    """
    if columns is None:
        return text + command
    *above, last = text.split("\n")
    lines = [part for line in above for part in _broken_line(line, columns, hanging)]
    if not command or width_of(last + command) <= columns:
        return "\n".join([*lines, *_broken_line(last + command, columns, hanging)])
    begin = _hanging_at(last, hanging)
    below = command_lines(begin + command, columns) if " " in command else _in_lines(command, columns, begin, begin)
    return "\n".join([*lines, *_broken_line(last.rstrip(), columns, hanging), *below])


def _broken_line(line: str, columns: int, hanging: int) -> list[str]:
    if width_of(line) <= columns:
        return [line]
    words = line.lstrip()
    # Without its indent a first word that is wider than the line would stand at the beginning.
    return _in_lines(words, columns, line[: len(line) - len(words)], _hanging_at(line, hanging), breaks_words=False)


def _hanging_at(line: str, hanging: int) -> str:
    return " " * (hanging or len(line) - len(line.lstrip()) + 2)


def command_lines(command: str, columns: int) -> list[str]:
    """Return a shell's command in lines that fit, each but the last one continued; quoted words stay whole."""
    indent = command[: len(command) - len(command.lstrip())]
    lines: list[str] = []
    line = indent
    for word in re.findall(_SHELL_WORD, command):
        longer = f"{line}{word}" if line.isspace() or not line else f"{line} {word}"
        # A line that is continued ends in a backslash.
        if width_of(longer) > columns - len(" \\") and line.strip():
            lines.append(f"{line} \\")
            longer = f"{indent}  {word}"
        line = longer
    return [*lines, line] if width_of(command) > columns else [command]

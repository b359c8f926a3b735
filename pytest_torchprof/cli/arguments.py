"""The words behind a sub-command: files, options with a value, and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class UsageError(TorchprofError):
    """Words on the command line that do not belong there; the command's help says which do."""


class Arguments(NamedTuple):
    """What a command was called with."""

    files: list[str]
    options: dict[str, list[str]]
    """The values of each option, in order."""
    flags: frozenset[str]

    def last(self, option: str) -> str | None:
        """Return the value of an option that counts once; None where it is not there."""
        values = self.options[option]
        return values[-1] if values else None


def parse(words: list[str], *, flags: Collection[str] = (), options: Mapping[str, str] | None = None) -> Arguments:
    """Sort the words; UsageError for what is neither. ``options`` maps each to what it takes, in words."""
    takes = options or {}
    found = Arguments([], {name: [] for name in takes}, frozenset(flags).intersection(words))
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in takes:
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError(f"{name} takes {takes[name]}")
            found.options[name].append(given)
        elif word in flags:
            if words.count(word) > 1:
                raise UsageError(f"{word} is there twice")
        elif word.startswith("-") and word != "-":
            raise UsageError(f"unknown option {word!r}")
        else:
            found.files.append(word)
    return found

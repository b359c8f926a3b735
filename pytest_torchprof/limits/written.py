"""Limits as users write them in a line: NAME=VALUE, on a command line and in a file of rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.patterns import parse_value
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.wrong_values import CountsMixed, GivenTwice, ValueForm, WrongValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LISTS = ("kernels", "forbid_kernels", "only_kernels", "ops", "forbid_ops", "fused", "forbid", "collectives")
LIST_LIMITS: Final = frozenset({*_LISTS, "allow_syncs", "allow_memcpys", "allow_ops"})
RANGES: Final = "ranges"
"""The limit whose value has other limits, by range."""
# A value that begins like this is meant to be more than a text: kernel names contain parentheses too, but after spaces
# and colons ("void at::native::f(...)"). A text that begins like this can be quoted.
_WRITTEN = re.compile(r"""\s*(?:[\[{("']|[A-Za-z_]\w*\s*\()""")


def read_limit_texts(texts: Iterable[str]) -> dict[str, object]:
    """Return limits by name from the texts NAME=VALUE of ``--limit``; UnknownLimit for a text of another form."""
    limits: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UnknownLimit.because(WrongValue(ValueForm.NAME_AND_VALUE)).of_keyword(f"--limit {text!r}")
        if name not in limits:
            limits[name] = _read_value(f"--limit {name}", value)
        elif name in LIST_LIMITS:
            limits[name] = _add_up(name, limits[name], _read_value(f"--limit {name}", value))
        else:
            raise UnknownLimit.because(GivenTwice(f"--limit {name}"))
    return limits


def read_limits_of_file(limits: Mapping[str, object]) -> dict[str, object]:
    """Return limits whose values stand in a file, texts read as on a command line, since TOML has no selectors.

    In lists and tables that holds for what can be a pattern. Raises UnknownLimit as for a command line.
    """
    return {
        name: _read_value(name, value) if isinstance(value, str) else _with_selectors(name, value)
        for name, value in limits.items()
    }


def _with_selectors(name: str, value: object) -> object:
    """Return a value of a file, with what its texts stand for where the limit takes patterns."""
    if name not in LIST_LIMITS and name != RANGES:
        return value
    if isinstance(value, dict):
        return {_with_selectors(name, key): _with_selectors(name, own) for key, own in value.items()}
    if isinstance(value, list):
        return [_with_selectors(name, own) for own in value]
    return _read_value(name, value) if isinstance(value, str) and _WRITTEN.match(value) else value


def _add_up(name: str, before: object, more: object) -> object:
    if isinstance(before, dict) and isinstance(more, dict):
        if twice := before.keys() & more.keys():
            raise UnknownLimit.because(GivenTwice(f"--limit {name}", str(next(iter(twice)))))
        return before | more
    if isinstance(before, dict) or isinstance(more, dict):
        raise UnknownLimit.because(CountsMixed(f"--limit {name}"))
    if name == "fused":
        # Each value is a group of its own: they need not be in one kernel.
        return [*_as_groups(before), *_as_groups(more)]
    return [*_as_list(before), *_as_list(more)]


def _as_groups(value: object) -> list[object]:
    entries = _as_list(value)
    return [entries] if all(isinstance(entry, str) for entry in entries) else entries


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _read_value(shown: str, text: str) -> object:
    """Return a Python literal, a JSON value, a selector, a list or dict of them, or the text itself.

    Raises UnknownLimit, which names the limit as ``shown``, for a value that begins like one of these and cannot be
    read as such: as a text it would match nothing, and a limit that forbids it would hold.
    """
    try:
        return parse_value(text)
    except UnknownLimit as wrong:
        if not _WRITTEN.match(text):
            return text
        raise wrong.of_keyword(shown) from None

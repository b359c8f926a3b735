"""How the values of options and keywords are read: each reader returns the value, or raises UnknownLimit."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_torchprof.measuring.keyword_values import at_least
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.text import MOST_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SWITCH = {**dict.fromkeys(("true", "1", "yes", "on"), True), **dict.fromkeys(("false", "0", "no", "off"), False)}


def whole_text(least: int) -> Callable[[object], int]:
    def read(text: object) -> int:
        digits = str(text)
        known = digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS
        return at_least(least)(int(digits) if known else None)

    return read


def one_of(choices: Iterable[str]) -> Callable[[object], str]:
    known = tuple(choices)

    def read(value: object) -> str:
        if value in known:
            return str(value)
        raise _none_of(known)

    return read


def read_share(value: object) -> float:
    with suppress(ValueError):
        if 0 < (share := float(str(value))) <= 1:
            return share
    from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

    raise UnknownLimit.because(WrongValue(ValueForm.SHARE_OF_TESTS))


def yes_or_no(value: object) -> bool:
    if (text := str(value).lower()) in _SWITCH:
        return _SWITCH[text]
    raise _none_of(("true", "false"))


def read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _none_of(("True", "False"))


def _none_of(known: tuple[str, ...]) -> UnknownLimit:
    from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

    return UnknownLimit.because(NoneOfThese(known))

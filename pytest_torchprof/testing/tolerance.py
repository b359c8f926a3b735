"""By how much a baseline may be exceeded, as the marker and the ini file say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.text import MOST_DIGITS
from pytest_torchprof.text.suggestions import choices_like

SHARES = ("time", "memory")
"""Tolerances given as a share of the baseline: times and memory are compared only with one. The others are counts."""


class Tolerance(Struct, frozen=True, kw_only=True):
    """By how much a baseline may be exceeded."""

    allowed: Mapping[str, float] = field(default_factory=dict)
    """By name: a share (float), or for counts a number more (int)."""
    cache: Literal["hot", "cold"] = "hot"
    """Whether a time sample begins with what the last call left in the caches, or without it."""


def read_tolerance(value: object) -> Tolerance:
    """Return the marker's tolerance; UnknownLimit for a value that is not one."""
    from pytest_torchprof.compare import GATED  # noqa: PLC0415  (this module loads in every pytest run)

    if not isinstance(value, Mapping):
        from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(WrongValue(ValueForm.TOLERANCES))
    known = {*SHARES, *GATED, "cache"}
    amounts = dict(value)
    unknown = next((str(name) for name in amounts if name not in known), None)
    if unknown is not None:
        from pytest_torchprof.reasons.wrong_values import NameOf, UnknownName  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(UnknownName(NameOf.TOLERANCE, repr(unknown), *choices_like(unknown, known)))
    cache = amounts.pop("cache", "hot")
    if cache not in ("hot", "cold"):
        from pytest_torchprof.reasons.wrong_values import NoneOfThese  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(NoneOfThese(('"hot"', '"cold"'), repr(cache))).of_entry('"cache"')
    return Tolerance(allowed={name: _allowed(name, amount) for name, amount in amounts.items()}, cache=cache)


def _allowed(name: str, amount: object) -> float:
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if name in SHARES:
        if isinstance(amount, float) and 0 < amount < math.inf:
            return amount
    # 1 is one more and 1.0 would be twice as many: a decimal point is too easy to miss to decide that.
    elif is_number and 0 <= amount < (1 if isinstance(amount, float) else math.inf):  # type: ignore[operator]
        return amount  # type: ignore[return-value]
    from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue  # noqa: PLC0415 - for what is refused alone

    expected = ValueForm.SHARE_MORE if name in SHARES else ValueForm.SO_MANY_MORE
    raise UnknownLimit.because(WrongValue(expected, repr(amount))).of_entry(f'"{name}"')


def tolerance_in(text: str) -> Tolerance | None:
    """Return the tolerance in the ini file's form, "time=0.10 kernels=1"; None where there is none in it."""
    words = text.replace(",", " ").split()
    return read_tolerance(_amounts(words)) if words else None


def _amounts(words: list[str]) -> dict[str, object]:
    pairs = [word.partition("=")[::2] for word in words]
    amounts = {name: _number(amount) for name, amount in pairs}
    if len(amounts) < len(pairs):
        twice = next(name for name in amounts if sum(name == other for other, _ in pairs) > 1)
        from pytest_torchprof.reasons.wrong_values import GivenTwice  # noqa: PLC0415 - for what is refused alone

        raise UnknownLimit.because(GivenTwice(repr(twice)))
    return amounts


def _number(text: str) -> object:
    """Return a number as it would be in a marker, or the text itself."""
    if text.isascii() and text.removeprefix("+").isdigit():
        if len(text) > MOST_DIGITS:
            from pytest_torchprof.reasons.wrong_values import HugeNumber  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(HugeNumber())
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text

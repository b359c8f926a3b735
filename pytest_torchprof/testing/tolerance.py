"""How much worse than its baseline a measurement may be: ``tolerance=`` of the marker and of the ini file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_torchprof.errors import UnknownLimit

SHARES = ("time", "memory")
"""Tolerances that are a share of what was, and without which nothing is compared; the others are of counts."""
EXAMPLE = '{"time": 0.10, "memory": 0.05, "kernels": 1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What a baseline may be exceeded by."""

    allowed: Mapping[str, float] = field(default_factory=dict)
    """By name a share (float), or of counts so many more (int)."""
    cache: Literal["hot", "cold"] = "hot"
    """What is in the caches when a time sample begins: what the last call left, or nothing of it."""


def tolerance(value: object) -> Tolerance:
    """Return the tolerance that a dict asks for; UnknownLimit says what cannot be used in it."""
    from pytest_torchprof.compare import GATED  # noqa: PLC0415  (only runs with a tolerance pay for it)
    from pytest_torchprof.limits import nearest  # noqa: PLC0415

    if not isinstance(value, Mapping):
        raise UnknownLimit(f"expected a dict such as {EXAMPLE}")
    known = {*SHARES, *GATED, "cache"}
    given = dict(value)
    unknown = next((str(name) for name in given if name not in known), None)
    if unknown is not None:
        raise UnknownLimit(f"unknown tolerance {unknown!r}{nearest(unknown, known)}")
    cache = given.pop("cache", "hot")
    if cache not in ("hot", "cold"):
        raise UnknownLimit(f'"cache": expected "hot" or "cold", got {cache!r}')
    return Tolerance(allowed={name: _allowed(name, amount) for name, amount in given.items()}, cache=cache)


def from_text(text: str) -> Tolerance | None:
    """Return the tolerance in the ini file's form, "time=0.10 kernels=1"; None where there is none."""
    pairs = [word.partition("=") for word in text.replace(",", " ").split()]
    names = [name for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UnknownLimit(f"{twice!r} is there twice")
    return tolerance({name: _number(amount) for name, _, amount in pairs}) if pairs else None


def _allowed(name: str, amount: object) -> float:
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if name in SHARES:
        if isinstance(amount, float) and 0 < amount < math.inf:
            return amount
        raise UnknownLimit(f'"{name}": expected a share above 0, such as 0.10 for 10 %, got {amount!r}')
    # 1 is one more and 1.0 would be twice as many: that a point should make the difference, nobody means.
    if is_number and 0 <= amount < (1 if isinstance(amount, float) else math.inf):  # type: ignore[operator]
        return amount  # type: ignore[return-value]
    raise UnknownLimit(f'"{name}": expected so many more (1) or a share below 1 (0.5), got {amount!r}')


def _number(text: str) -> object:
    """Return a number as it would stand in a marker, or the text itself."""
    if text.isascii() and text.removeprefix("+").isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text

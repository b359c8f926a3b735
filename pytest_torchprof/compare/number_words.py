"""A number of two measurements in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.compare.number_changes import ratio_of

if TYPE_CHECKING:
    from pytest_torchprof.analysis.numbers import Number


_HANDFUL: Final = 10
"""Counts below it are shown without their ratio."""
_MOST: Final = 1000
"""The largest factor that is shown."""


def number_words(number: Number, was: float | None, now: float | None, *, called: str | None = None) -> str:
    """Return "syncs 1 -> 2", "busy 1.2 ms -> 9.4 ms, 7.8x": counts by their name, other numbers by their title."""
    factor = factor_words(number, was, now)
    return movement_words(number, was, now, called=called) + (f", {factor}" if factor else "")


def movement_words(number: Number, was: float | None, now: float | None, *, called: str | None = None) -> str:
    """Return the number before and after, without the factor: "busy 1.2 ms -> 9.4 ms"."""
    before, after = ("not recorded" if value is None else number.show(value) for value in (was, now))
    name = called or (number.name if number.exact else number.noun_anywhere or number.noun)
    return f"{name} {before} -> {after}"


def factor_words(number: Number, was: float | None, now: float | None) -> str:
    """Return the factor of a change, "7.8x"; empty if it is obvious, or if there is none."""
    ratio = ratio_of(was, now)
    # The factor of small counts is obvious, and a share is already a ratio.
    obvious = number.unit in ("share", "ratio") or (number.unit == "count" and max(was or 0, now or 0) < _HANDFUL)
    # What is zero before or after has no factor that says more.
    return show_factor(ratio) if ratio and not obvious else ""


def show_factor(ratio: float) -> str:
    """Return "7.5x", "0.44x", "1.03x"; beyond a thousand "over 1,000x": next to nothing any factor follows."""
    if ratio > _MOST:
        return f"over {_MOST:,}x"
    if ratio < 1 / _MOST:
        return f"under {1 / _MOST:g}x"
    if ratio and 0.9 < ratio < 1.1:
        return f"{ratio:.2f}x"
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x" if ratio > 1 else f"{ratio:.2g}x"

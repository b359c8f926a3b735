"""Durations and sizes as users write them: ``"1.5ms"``, ``"300MB"``."""

from __future__ import annotations

import math
import re

from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.wrong_values import ValueForm, WrongValue

_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"
_US_PER = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_BYTES_PER: dict[str, int] = {
    "b": 1,
    **{f"{prefix}b": 1000**n for n, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgt", 1)},
}
_DURATION = re.compile(_NUMBER + r"(ns|us|µs|μs|ms|s)\s*")
_SIZE = re.compile(_NUMBER + r"([kmgt]?i?b)\s*", re.IGNORECASE)


def duration_us(value: object) -> float:
    """Return a duration in microseconds from ``"1.5ms"``, ``"800us"`` or seconds as a number; else UnknownLimit."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)) and math.isfinite(float(match[1])):
        return float(match[1]) * _US_PER[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return value * 1e6
    raise UnknownLimit.because(WrongValue(ValueForm.DURATION, repr(value)))


def size_bytes(value: object) -> int:
    """Return a size in bytes from ``"1.5GiB"``, ``"300MB"`` or a number of bytes; else UnknownLimit."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)) and math.isfinite(float(match[1])):
        return round(float(match[1]) * _BYTES_PER[match[2].lower()])
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise UnknownLimit.because(WrongValue(ValueForm.SIZE, repr(value)))

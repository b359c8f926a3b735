"""Times, sizes, ratios and rates with their units, as people read them."""

from __future__ import annotations

import math


def show_us(us: float | None) -> str:
    """Return a duration with three significant digits and its unit, "-" for None."""
    if us is None:
        return "-"
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms"), (math.inf, 1e6, "s")):
        # 999.96 us would be printed as "1000 us": it belongs to the next unit.
        if abs(us) < limit * 0.9995:
            return f"{_three_digits(us / divisor)} {unit}"
    raise AssertionError(us)


def show_bytes(size: int | None) -> str:
    """Return a size in binary units with three significant digits, "-" for None."""
    if size is None:
        return "-"
    if abs(size) < 1024:
        return f"{size} B"
    for exponent, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1):
        scaled = size / 1024**exponent
        if abs(scaled) < 1023.5 or unit == "TiB":
            return f"{_three_digits(scaled)} {unit}"
    raise AssertionError(size)


def show_ratio(ratio: float | None) -> str:
    """Return a ratio with two decimals below ten, "-" for None; a positive ratio never prints as zero."""
    if ratio is None:
        return "-"
    if 0 < ratio < 0.005:
        return "<0.01"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"


def show_rate(rate: float | None) -> str:
    """Return a rate per second with three significant digits, "-" for None."""
    if rate is None:
        return "-"
    return "<0.000001" if 0 < rate < 1e-6 else _three_digits(rate, most_decimals=8)


def _three_digits(number: float, *, most_decimals: int = 3) -> str:
    """Return a number with three significant digits; durations are not known beyond the nanosecond."""
    if number == 0:
        return "0"
    magnitude = math.floor(math.log10(float(f"{abs(number):.3g}")))
    return f"{number:.{max(0, min(2 - magnitude, most_decimals))}f}"


def show_share(value: float) -> str:
    """Return a share as percent."""
    return f"{100 * value:.1f}%"

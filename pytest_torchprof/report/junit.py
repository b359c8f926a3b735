"""A measurement as properties of its test, as JUnit XML holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from pytest_torchprof.report.results import Result

PREFIX = "torchprof"


def properties(result: Result) -> list[tuple[str, str]]:
    """Return names and values: ``torchprof.kernels``, or ``torchprof[label].kernels`` where there is a label."""
    where = f"{PREFIX}[{printable(result.label)}]" if result.label else PREFIX
    values = {
        "outcome": result.outcome,
        "baseline": result.baseline,
        **{number.name: result.summary.get(number.name) for number in TABLE if number.headline},
        "time_us": result.time.get("median_us"),
        "recording": result.recording,
    }
    return [
        (f"{where}.{name}", f"{value:g}" if isinstance(value, float) else str(value))
        for name, value in values.items()
        if value is not None
    ]

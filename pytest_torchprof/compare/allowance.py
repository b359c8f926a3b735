"""What a test would have to allow for a difference to pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.numbers import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.compare.changes import Change


def tolerance_for(changes: Sequence[Change]) -> Mapping[str, float]:
    """Return the marker's tolerance that fits what fails, by its keywords: so many more, or a share of memory."""
    found: dict[str, float] = {}
    failing = [change for change in changes if change.fails]
    if kernels := sum(change.times for change in failing if change.kind != "number"):
        found["kernels"] = kernels
    for change in failing:
        if (
            change.kind != "number"
            or not isinstance(change.old, int | float)
            or not isinstance(change.new, int | float)
        ):
            continue
        number = BY_NAME[change.what]
        if not number.exact:
            found[number.tolerance] = (
                math.ceil(100 * (change.new - change.old) / change.old) / 100 if change.old else 1.0
            )
        elif change.what == "kernels" or "kernels" not in found or change.what != "launches":
            found[change.what] = max(found.get(change.what, 0), math.ceil(change.new - change.old))
    return found

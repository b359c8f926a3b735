"""What changed between two recordings, as plain data: where the time went first, then single kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.compare import diff
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare.cost import Shift

_MOST_ROWS: Final = 300
_MOST_LINES: Final = 60


def changes_of(analysis: Analysis, before: Analysis) -> dict[str, Any]:
    """Return where the GPU time went, by family and by kernel, in the step that stands for each side."""
    try:
        found = diff(before, analysis)
    except NotMeasured as problem:
        return {"why_not": problem.text}
    cost = found.cost
    single = [*(change.words for change in found.replaced), *(change.words for change in found.renamed)]
    return {
        "time_us": cost.time_us,
        "steps": cost.steps,
        "families": [_row(shift) for shift in cost.families],
        "kernels": [_row(shift) for shift in cost.kernels[:_MOST_ROWS]],
        "more": max(len(cost.kernels) - _MOST_ROWS, 0),
        "words": found.words,
        "single": single[:_MOST_LINES],
        "more_single": max(len(single) - _MOST_LINES, 0),
        "devices": found.devices,
    }


def _row(shift: Shift) -> dict[str, Any]:
    before, now = (", ".join(names[:3]) for names in shift.kernels)
    return {
        "family": shift.family,
        "was": before or None,
        "now": now or None,
        "op": ", ".join(dict.fromkeys([*shift.ops[1], *shift.ops[0]])) or None,
        "kinds": [", ".join(f"{count:g} {kind}" for kind, count in side.items()) or None for side in shift.kinds],
        "before_calls": shift.calls[0],
        "calls": shift.calls[1],
        "before_us": round(shift.time_us[0], 3),
        "time_us": round(shift.time_us[1], 3),
    }

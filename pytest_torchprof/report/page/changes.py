"""The changes against another recording or a baseline, as plain data in the order of ``torchprof diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare import diff
from pytest_torchprof.compare.change import WORSE
from pytest_torchprof.compare.cost import cost_by_family
from pytest_torchprof.compare.cost_lines import large_and_small
from pytest_torchprof.compare.cost_words import cost_parts, label_shift
from pytest_torchprof.compare.number_changes import GPU_TIME
from pytest_torchprof.compare.number_words import factor_words, movement_words
from pytest_torchprof.compare.words import change_words
from pytest_torchprof.reasons.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.compare.change import Change, Sides
    from pytest_torchprof.compare.cost import Cost, Shift
    from pytest_torchprof.devices.kinds import DeviceKind

_MOST_ROWS: Final = 300
_MOST_LINES: Final = 60


def changes_between(analysis: Analysis, before: Analysis, sides: Sides) -> dict[str, Any]:
    """Return the changes between two recordings, or the reason why they are unknown; ``sides`` are their names."""
    try:
        comparison = diff(before, analysis, sides)
    except NotMeasured as problem:
        return {"why_not": problem.text, "headline": f"Not compared: {problem.text}"}
    return {
        **changes_in(comparison, analysis.trace.device_kind),
        "headline": comparison.headline,
        "kernels_differ": comparison.kernels_differ,
    }


def changes_in(comparison: Comparison, device: DeviceKind) -> dict[str, Any]:
    """Return the changed numbers, the GPU time by family, the kernels that came and went, and those that were replaced.

    A comparison with a baseline has times of families, but not of single kernels.
    """
    if not comparison.of_recordings:
        cost = cost_by_family(comparison.families, device)
        large, small = (
            [change for change in comparison.numbers if _is_small(change) is small] for small in (False, True)
        )
    else:
        cost = comparison.cost or cost_by_family((), device)
        large, small = large_and_small(comparison.changes)
    return {
        "notes": list(comparison.notes),
        "numbers": [_changed_number(change, cost, judged=not comparison.of_recordings) for change in large],
        "small": [change_words(change) for change in small],
        **_where(cost),
        "exchange": comparison.exchange,
        "lacks_lines": not comparison.of_recordings and any(not change.after for change in comparison.kernels),
        "words": "" if not (comparison.of_recordings or comparison.kernels) else comparison.words,
        **_single([line.strip() for line in comparison.kernel_lines]),
    }


def _where(cost: Cost) -> dict[str, Any]:
    return {
        "noun": cost.noun,
        "time_us": cost.time_us,
        "why": cost_parts(cost),
        "families": [_row(shift) for shift in cost.families],
        "kernels": [_row(shift) for shift in cost.kernels[:_MOST_ROWS]],
        "more": max(len(cost.kernels) - _MOST_ROWS, 0),
    }


def _single(lines: Sequence[str]) -> dict[str, Any]:
    return {"single": lines[:_MOST_LINES], "more_single": max(len(lines) - _MOST_LINES, 0)}


def _is_small(change: Change) -> bool:
    number = BY_NAME.get(change.what)
    return number is not None and number.unit in ("share", "ratio") and not change.gated


def _changed_number(change: Change, cost: Cost, *, judged: bool) -> dict[str, Any]:
    """Return a number before and now, with the factor if the number is judged, or if nothing is (``judged``)."""
    decides_nothing = judged and not change.gated
    number = BY_NAME.get(change.what)
    row = {
        "words": change_words(change),
        "ratio": "",
        "better": "lower",
        "values": (change.old, change.new),
        "note": "fails no test" if decides_nothing and change.direction == WORSE else "",
    }
    if number is None:
        return row
    called = cost.noun if change.what == GPU_TIME else None
    return {
        **row,
        "words": movement_words(number, change.old, change.new, called=called),
        "ratio": "" if decides_nothing else factor_words(number, change.old, change.new),
        "better": number.better,
    }


def _row(shift: Shift) -> dict[str, Any]:
    before, now = (", ".join(names[:3]) for names in shift.kernels)
    return {
        "family": shift.family,
        "label": label_shift(shift),
        "was": before or None,
        "now": now or None,
        "op": ", ".join(dict.fromkeys([*shift.ops[1], *shift.ops[0]])) or None,
        "before_calls": shift.calls[0] if any(shift.calls) else None,
        "calls": shift.calls[1] if any(shift.calls) else None,
        "before_us": round(shift.time_us[0], 3),
        "time_us": round(shift.time_us[1], 3),
    }

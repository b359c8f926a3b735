"""What changed against another recording or a baseline, as plain data in the order of ``torchprof diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare import diff
from pytest_torchprof.compare.changes import WORSE
from pytest_torchprof.compare.cost import Cost, gpu_time_noun
from pytest_torchprof.compare.cost_lines import exchange_words, explain_cost, label_shift, sort_changes
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare import ComparisonData
    from pytest_torchprof.compare.changes import Change
    from pytest_torchprof.compare.cost import Shift
    from pytest_torchprof.compare.ratios import Pair
    from pytest_torchprof.devices.kinds import DeviceKind

_MOST_ROWS: Final = 300
_MOST_LINES: Final = 60


def changes_between(analysis: Analysis, before: Analysis) -> dict[str, Any]:
    """Return the numbers that changed, where the GPU time went, what came and went, and what became of kernels."""
    try:
        found = diff(before, analysis)
    except NotMeasured as problem:
        return {"why_not": problem.text}
    large, small = sort_changes(found.numbers, found.cost)
    return {
        "notes": [f"recorded on {' and on '.join(found.devices)}"] if found.devices else [],
        "numbers": [_number(words, BY_NAME[name].better, found.numbers[name]) for name, words in large.items()],
        "small": list(small.values()),
        **_where(found.cost),
        "exchange": exchange_words(found.cost.families),
        "words": found.words,
        **_single([*(change.words for change in found.replaced), *(change.words for change in found.renamed)]),
    }


def changes_since_baseline(told: ComparisonData, verdict: str, device: DeviceKind) -> dict[str, Any]:
    """Return the same of what a run tells of a baseline, which has times by family, and none of single kernels."""
    sums = (sum(shift.time_us[side] for shift in told.families) for side in (0, 1))
    cost = Cost(noun=gpu_time_noun(device), time_us=(next(sums), next(sums)), families=told.families, kernels=())
    return {
        "verdict": verdict,
        "notes": list(told.notes),
        "numbers": [_changed_number(change) for change in told.numbers if not _is_small(change)],
        "small": [change.words for change in told.numbers if _is_small(change)],
        **_where(cost),
        "exchange": told.exchange,
        "words": counted(len(told.kernels), "change") if told.kernels else "",
        **_single(told.kernels),
    }


def _where(cost: Cost) -> dict[str, Any]:
    return {
        "noun": cost.noun,
        "time_us": cost.time_us,
        "why": explain_cost(cost),
        "families": [_row(shift) for shift in cost.families],
        "kernels": [_row(shift) for shift in cost.kernels[:_MOST_ROWS]],
        "more": max(len(cost.kernels) - _MOST_ROWS, 0),
    }


def _single(lines: Sequence[str]) -> dict[str, Any]:
    return {"single": lines[:_MOST_LINES], "more_single": max(len(lines) - _MOST_LINES, 0)}


def _is_small(change: Change) -> bool:
    number = BY_NAME.get(change.what)
    return number is not None and number.unit in ("share", "ratio") and not change.gated


def _changed_number(change: Change) -> dict[str, Any]:
    number = BY_NAME.get(change.what)
    values = [value if isinstance(value, int | float) else None for value in (change.old, change.new)]
    told = _number(change.words, "lower" if number is None else number.better, (values[0], values[1]))
    return {**told, "note": "" if change.gated or change.direction != WORSE else "not gated"}


def _number(words: str, better: str | None, values: Pair) -> dict[str, Any]:
    change, _, ratio = words.partition(", ")
    return {"words": change, "ratio": ratio, "better": better, "values": values}


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

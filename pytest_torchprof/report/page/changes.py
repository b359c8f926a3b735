"""What changed between two recordings, as plain data in the order of ``torchprof diff``: numbers, time, kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare import diff
from pytest_torchprof.compare.cost_lines import exchange_words, explain_cost, label_shift, sort_changes
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.compare.cost import Shift
    from pytest_torchprof.compare.ratios import Pair

_MOST_ROWS: Final = 300
_MOST_LINES: Final = 60


def changes_of(analysis: Analysis, before: Analysis) -> dict[str, Any]:
    """Return the numbers that changed, where the GPU time went, what came and went, and what became of kernels."""
    try:
        found = diff(before, analysis)
    except NotMeasured as problem:
        return {"why_not": problem.text}
    cost = found.cost
    large, small = sort_changes(found.numbers, cost)
    single = [*(change.words for change in found.replaced), *(change.words for change in found.renamed)]
    return {
        "numbers": [_number(words, BY_NAME[name].better, found.numbers[name]) for name, words in large.items()],
        "small": list(small.values()),
        "noun": cost.noun,
        "time_us": cost.time_us,
        "why": explain_cost(cost),
        "families": [_row(shift) for shift in cost.families],
        "kernels": [_row(shift) for shift in cost.kernels[:_MOST_ROWS]],
        "more": max(len(cost.kernels) - _MOST_ROWS, 0),
        "exchange": exchange_words(cost.families),
        "words": found.words,
        "single": single[:_MOST_LINES],
        "more_single": max(len(single) - _MOST_LINES, 0),
        "devices": found.devices,
    }


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
        "before_calls": shift.calls[0],
        "calls": shift.calls[1],
        "before_us": round(shift.time_us[0], 3),
        "time_us": round(shift.time_us[1], 3),
    }

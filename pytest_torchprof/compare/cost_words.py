"""Where the time between two measurements went, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.entry import STRUCTURAL
from pytest_torchprof.compare.family_words import calls_words, dtype_words
from pytest_torchprof.compare.number_changes import ratio_of
from pytest_torchprof.compare.number_words import show_factor
from pytest_torchprof.text import more_text
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from pytest_torchprof.compare.cost import Cost, Shift

_WORTH_NAMING: Final = 0.005
"""The share of the GPU time below which a family's change is in no sentence."""
_STILL: Final = 0.02
"""If no family's time changed by this share of the GPU time, there is nothing to explain."""
_ENOUGH: Final = 0.9
_NAMED: Final = 3
"""A sentence names families until they make up this share of the difference, but at most this many."""


def explain_cost(cost: Cost) -> str | None:
    """Return "of the 147 ms more, 68% is in the same 51 GEMMs fp32, on average 8.0x as long"; None if none moved."""
    return "; ".join(cost_parts(cost)) or None


def cost_parts(cost: Cost) -> tuple[str, ...]:
    """Return the parts of that sentence, one for each family that it names, the largest first; none if none moved."""
    all_of_it, total = cost.difference_us, max(cost.time_us)
    if not cost.families or abs(cost.families[0].difference_us) < _STILL * total:
        return ()
    if abs(all_of_it) < _STILL * total:
        return (f"as much {cost.noun} as before, spent in other places",)
    parts: list[str] = []
    explained = 0.0
    for row in cost.families:
        if explained >= _ENOUGH or len(parts) == _NAMED:
            break
        share = row.difference_us / all_of_it
        if share > _WORTH_NAMING:
            explained += share
            parts.append(f"{share:.0%} {'' if parts else 'is '}in {calls_words(row)}{_each_words(row)}")
    way = "more" if all_of_it > 0 else "less"
    first, *others = parts or [""]
    return (f"of the {show_us(abs(all_of_it))} {way}, {first}", *others)


def _each_words(row: Shift) -> str:
    ratio = mean_ratio(row)
    if ratio is None or 0.95 < ratio < 1.05:
        return ""
    return f", {'on average ' if max(row.calls) > 1 else ''}{show_factor(ratio)} as long"


def mean_ratio(row: Shift) -> float | None:
    """Return how many times as long a call takes on average; None if a side has no calls."""
    if not all(row.calls):
        return None
    before, after = (time / calls for time, calls in zip(row.time_us, row.calls, strict=True))
    return ratio_of(before, after)


def label_shift(row: Shift) -> str:
    """Return a row's label: "gemm fp32 tn -> bf16 tn", a kernel before and after if they differ, or a family."""
    if not any(row.kernels):
        was, now = dtype_words(row)
        return f"{row.family}{was}" + (f" ->{now}" if was != now and all(row.calls) else now if not was else "")
    before, after = (_label_words(row, side) for side in (0, 1))
    if not (before and after) or before == after:
        return " ".join(before or after)
    same = next((at for at, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1), 0)
    return " ".join([*before, "->", *after[same:]])


def _label_words(row: Shift, side: int) -> list[str]:
    """Return the label of a side: for a GEMM with several names only dtype and layout, on both sides."""
    names = row.kernels[side]
    if not names:
        return []
    if max(map(len, row.kernels)) > 1 and row.family in STRUCTURAL:
        return [*row.facts[side]]
    more = [more_text(len(names) - 1)] if len(names) > 1 else []
    return [*names[0].split(), *more]

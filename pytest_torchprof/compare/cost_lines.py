"""The cost of a difference as lines on a screen: numbers with their factor, tables of where the time is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare.change import WORTH_A_LINE
from pytest_torchprof.compare.cost import BeforeAndAfter
from pytest_torchprof.compare.cost_words import explain_cost, label_shift, mean_ratio
from pytest_torchprof.compare.number_changes import (
    GPU_TIME,
    follows_gpu_time,
    prints_differently,
    ratio_moved,
    ratio_of,
)
from pytest_torchprof.compare.number_words import number_words, show_factor
from pytest_torchprof.text import first_of, printable
from pytest_torchprof.text.cutting import cut_inside
from pytest_torchprof.text.tables import Column, table_lines
from pytest_torchprof.text.units import show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.compare.change import Change
    from pytest_torchprof.compare.cost import Cost, Shift

ROWS: Final = 7
"""The most kernels that a screen shows among those whose time changed."""
_WORTH_A_ROW: Final = 0.005
"""The share of the GPU time below which a change is left to the data."""
_OPERATOR: Final = 22


def number_lines(changes: Iterable[Change], cost: Cost | None) -> list[str]:
    """Return the numbers that changed, the largest changes first, each with its factor; small ones share a line."""
    of_all = cost.noun if cost is not None else None
    large, small = (
        [
            number_words(
                BY_NAME[change.what],
                change.old,
                change.new,
                called=of_all if change.what == GPU_TIME else None,
            )
            for change in side
        ]
        for side in large_and_small(changes)
    )
    return [*large, *(["also: " + "; ".join(small)] if small else [])]


def large_and_small(changes: Iterable[Change]) -> tuple[list[Change], list[Change]]:
    """Return the numbers that get a line each, and those that share one: shares, and small changes."""
    large: list[Change] = []
    small: list[Change] = []
    for change in filter(prints_differently, _without_echoes([change for change in changes if change.is_number])):
        minor = ratio_moved(change) < WORTH_A_LINE or BY_NAME[change.what].unit in ("share", "ratio")
        (small if minor and change.what != GPU_TIME else large).append(change)
    return large, small


def _without_echoes(numbers: Sequence[Change]) -> list[Change]:
    """Return the numbers without those that only follow the GPU time, as the busy time and the span usually do."""
    lead = next((ratio_of(change.old, change.new) for change in numbers if change.what == GPU_TIME), 1.0)
    return [
        change
        for change in numbers
        if not (follows_gpu_time(change.what) and _is_about(ratio_of(change.old, change.new), lead))
    ]


def _is_about(ratio: float | None, lead: float | None) -> bool:
    return ratio is not None and lead is not None and abs(ratio - lead) <= 0.02 * lead


def cost_lines(cost: Cost, *, width: int, every: bool = False) -> list[str]:
    """Return the use of the GPU time: a sentence, a table by family, one by kernel; empty without a change."""
    explanation = explain_cost(cost)
    if explanation is None:
        return []
    total = max(cost.time_us)
    worth = [row for row in cost.families if every or abs(row.difference_us) >= _WORTH_A_ROW * total]
    shown = [row for row in cost.kernels if every or abs(row.difference_us) >= _WORTH_A_ROW * total]
    shown = shown if every else shown[:ROWS]
    return [
        *wrapped(f"{explanation}:", "  ", width=width),
        *_table(cost, "family", worth, width),
        *_table(cost, "kernel", shown, width),
    ]


class _Row(BeforeAndAfter, Struct, frozen=True):
    label: str
    calls: tuple[float, ...]
    """None in the row that sums up the others."""
    time_us: tuple[float, float]
    operator: str = ""
    mean: str = ""


def _table(cost: Cost, title: str, shown: Sequence[Shift], width: int) -> list[str]:
    """Return the rows as a table that adds up: the rows that are left out become one."""
    whole = cost.families if title == "family" else cost.kernels
    rows = [_Row(label_shift(row), row.calls, row.time_us, _operator(row), _show_mean(row)) for row in shown]
    if rest := whole[len(shown) :]:
        rows.append(_sum(rest, f"{len(rest)} others" if rows else title))
    columns = [
        Column(title, lambda row: row.label, "left"),
        Column("before", lambda row: show_us(row.time_us[0] or None), leaves=4),
        Column("after", lambda row: show_us(row.time_us[1] or None)),
        Column("difference", lambda row: _signed(row.difference_us)),
        Column("calls", lambda row: _show_calls(row.calls), leaves=2),
        Column("each", lambda row: row.mean, leaves=1),
    ]
    if 2 * sum(bool(row.operator) for row in rows) > len(rows):
        columns.append(Column("launched by", lambda row: cut_inside(row.operator, _OPERATOR), "left", leaves=3))
    return [f"  {line}" for line in table_lines(rows, columns, width - 2)]


def _sum(rows: Sequence[Shift], label: str) -> _Row:
    before, after = (sum(row.time_us[side] for row in rows) for side in (0, 1))
    return _Row(label, (), (before, after))


def _operator(row: Shift) -> str:
    ops = row.ops[1] or row.ops[0]
    return printable(first_of(ops, 1))


def _show_mean(row: Shift) -> str:
    ratio = mean_ratio(row)
    return "" if ratio is None else show_factor(ratio)


def _show_calls(calls: tuple[float, ...]) -> str:
    return " -> ".join(dict.fromkeys(f"{count:,g}" for count in calls))


def _signed(time_us: float) -> str:
    return f"{'-' if time_us < 0 else '+'}{show_us(abs(time_us))}"

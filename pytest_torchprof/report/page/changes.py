"""The changes against another recording or a baseline, in the order of ``torchprof diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare import diff
from pytest_torchprof.compare.change import WORSE
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.compare.cost import BeforeAndAfter, cost_by_family
from pytest_torchprof.compare.cost_lines import large_and_small
from pytest_torchprof.compare.cost_words import cost_parts, label_shift
from pytest_torchprof.compare.number_changes import GPU_TIME
from pytest_torchprof.compare.number_words import factor_words, movement_words
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


class ChangedNumber(Struct, frozen=True, kw_only=True):
    """A number before and now, in words and as values."""

    words: str
    ratio: str = ""
    """The factor, if the number is judged or nothing is; else empty."""
    better: str | None = "lower"
    values: tuple[float | None, float | None]
    note: str


class ShiftRow(Struct, frozen=True, kw_only=True):
    """The cost of a family or a kernel before and now; what is not known is None."""

    family: str
    label: str
    was: str | None
    now: str | None
    op: str | None
    before_calls: float | None
    calls: float | None
    before_us: float
    time_us: float


class Changes(BeforeAndAfter, Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changed numbers, the GPU time by family, the kernels that came and went, and those that were replaced."""

    headline: str = ""
    """What they come to, between two recordings; else empty."""
    kernels_differ: bool | None = None
    """None for a comparison with a baseline."""
    verdict: str = ""
    """Of a comparison with a baseline; else empty."""
    notes: Sequence[str]
    numbers: Sequence[ChangedNumber]
    small: Sequence[str]
    """Shares and ratios, in words."""
    noun: str
    """What the time is called."""
    time_us: tuple[float, float]
    why: Sequence[str]
    families: Sequence[ShiftRow]
    kernels: Sequence[ShiftRow]
    more: int
    """How many kernels are left out."""
    exchange: str | None
    lacks_lines: bool
    """Whether kernels went of which no line of code is known."""
    words: str
    single: Sequence[str]
    """The changes of single kernels, a line each."""
    more_single: int


class NotCompared(Struct, frozen=True, kw_only=True):
    """The reason why the changes between two recordings are unknown."""

    why_not: str
    headline: str


def changes_between(analysis: Analysis, before: Analysis, sides: Sides) -> Changes | NotCompared:
    """Return the changes between two recordings; ``sides`` are their names."""
    try:
        comparison = diff(before, analysis, sides)
    except NotMeasured as problem:
        return NotCompared(why_not=problem.text, headline=f"Not compared: {problem.text}")
    return changes_in(comparison, analysis.trace.device_kind)


def changes_in(comparison: Comparison, device: DeviceKind, verdict: str = "") -> Changes:
    """Return the changes that a comparison found.

    One with a baseline, whose ``verdict`` is given, has times of families, but not of single kernels.
    """
    of_recordings = comparison.of_recordings
    if not of_recordings:
        cost = cost_by_family(comparison.families, device)
        large, small = (
            [change for change in comparison.numbers if _is_small(change) is small] for small in (False, True)
        )
    else:
        cost = comparison.cost or cost_by_family((), device)
        large, small = large_and_small(comparison.changes)
    lines = [line.strip() for line in comparison.kernel_lines]
    return Changes(
        headline=comparison.headline if of_recordings else "",
        kernels_differ=comparison.kernels_differ if of_recordings else None,
        verdict=verdict,
        notes=comparison.notes,
        numbers=[_changed_number(change, cost, judged=not of_recordings) for change in large],
        small=[change_words(change) for change in small],
        noun=cost.noun,
        time_us=cost.time_us,
        why=cost_parts(cost),
        families=[_row(shift) for shift in cost.families],
        kernels=[_row(shift) for shift in cost.kernels[:_MOST_ROWS]],
        more=max(len(cost.kernels) - _MOST_ROWS, 0),
        exchange=comparison.exchange,
        lacks_lines=not of_recordings and any(not change.after for change in comparison.kernels),
        words="" if not (of_recordings or comparison.kernels) else comparison.words,
        single=lines[:_MOST_LINES],
        more_single=max(len(lines) - _MOST_LINES, 0),
    )


def _is_small(change: Change) -> bool:
    number = BY_NAME.get(change.what)
    return number is not None and number.unit in ("share", "ratio") and not change.gated


def _changed_number(change: Change, cost: Cost, *, judged: bool) -> ChangedNumber:
    """Return a number before and now; ``judged``: whether any number of the comparison is."""
    decides_nothing = judged and not change.gated
    number = BY_NAME.get(change.what)
    values = (change.old, change.new)
    note = "fails no test" if decides_nothing and change.direction == WORSE else ""
    if number is None:
        return ChangedNumber(words=change_words(change), values=values, note=note)
    called = cost.noun if change.what == GPU_TIME else None
    return ChangedNumber(
        words=movement_words(number, *values, called=called),
        ratio="" if decides_nothing else factor_words(number, *values),
        better=number.better,
        values=values,
        note=note,
    )


def _row(shift: Shift) -> ShiftRow:
    before, now = (", ".join(names[:3]) for names in shift.kernels)
    are_counted = any(shift.calls)
    return ShiftRow(
        family=shift.family,
        label=label_shift(shift),
        was=before or None,
        now=now or None,
        op=", ".join(dict.fromkeys([*shift.ops[1], *shift.ops[0]])) or None,
        before_calls=shift.calls[0] if are_counted else None,
        calls=shift.calls[1] if are_counted else None,
        before_us=round(shift.time_us[0], 3),
        time_us=round(shift.time_us[1], 3),
    )

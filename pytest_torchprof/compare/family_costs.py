"""Where the time of a measurement is, held against its baseline: by family, since of single kernels it keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_torchprof.baseline.family_times import MEMORY, times_by_family
from pytest_torchprof.compare.cost import Shift, costliest_first, exchanged
from pytest_torchprof.compare.cost_lines import calls_words
from pytest_torchprof.compare.ratios import ratio_of, show_factor
from pytest_torchprof.text import counted, show_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.baseline.entry import Entry

_WORTH_TELLING: Final = 0.05
"""Where the busy time moved by less of what it was, there is nothing to explain."""
_WORTH_TELLING_OF: Final = 0.02
"""Of the GPU time: families that moved by less are left out."""
_MOST: Final = 5
"""Families that are told."""


def family_shifts(old: Entry, new: Entry) -> tuple[Shift, ...]:
    """Return the time of each family, the costliest difference first; none where the busy time did not move.

    Times are those of the middle step; of how many calls, is known where all steps run the same kernels. An entry may
    be older than these times.
    """
    times = [times_by_family(side.varying) for side in (old, new)]
    busy = [side.varying.get("gpu_busy_us", 0.0) for side in (old, new)]
    if not all(times) or abs(busy[1] - busy[0]) <= _WORTH_TELLING * busy[0]:
        return ()
    known = len(old.steps) == len(new.steps) == 1
    launched = {shift.family: shift for shift in exchanged(old.steps[0], new.steps[0])} if known else {}
    shifts = []
    for family in dict.fromkeys([*times[0], *times[1]]):
        shift = launched.get(family, Shift(family=family, calls=(0, 0), time_us=(0.0, 0.0), kinds=({}, {})))
        shifts.append(replace(shift, time_us=(times[0].get(family, 0.0), times[1].get(family, 0.0))))
    return costliest_first(shifts)


def family_words(shifts: Sequence[Shift]) -> list[str]:
    """Return where the time is: of each of the few families in which it moved most."""
    total = max((sum(shift.time_us[side] for shift in shifts) for side in (0, 1)), default=0.0)
    words = [_words(shift) for shift in shifts if abs(shift.difference_us) >= _WORTH_TELLING_OF * total]
    if len(words) > _MOST:
        words[_MOST - 1 :] = [f"and {counted(len(words) - _MOST + 1, 'other family')}"]
    return words


def _words(shift: Shift) -> str:
    before, after = shift.time_us
    ratio = ratio_of(before, after) if after else None
    calls = "" if shift.family in MEMORY.values() or not any(shift.calls) else f" ({calls_words(shift)})"
    times = " -> ".join(show_us(time) if time else "0 us" for time in shift.time_us)
    return f"{shift.family} {times}{f', {show_factor(ratio)}' if ratio else ''}{calls}"

"""A comparison with a baseline as reports keep it: what a page draws as tables, a terminal says in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.compare.change import Change  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.cost import Shift  # noqa: TC001 - likewise
from pytest_torchprof.compare.number_changes import is_noise

if TYPE_CHECKING:
    from pytest_torchprof.compare.comparison import Comparison


class ComparisonData(Struct, kw_only=True, frozen=True):
    """What differs, in the order in which people want it."""

    notes: tuple[str, ...] = ()
    """What else is not as it was: environment, and the test itself."""
    numbers: tuple[Change, ...] = ()
    families: tuple[Shift, ...] = ()
    """Where the GPU time is; none where it did not move."""
    exchange: str | None = None
    """What came and went by family, where it is more than a few kernels."""
    kernels: tuple[str, ...] = ()
    """What became of single kernels, a line each."""


def data_of(comparison: Comparison, *, noise: bool = True) -> ComparisonData:
    """Return what a comparison came to; without ``noise`` no numbers that vary from run to run and gate nothing."""
    return ComparisonData(
        notes=comparison.notes,
        numbers=tuple(change for change in comparison.numbers if noise or not is_noise(change)),
        families=comparison.families,
        exchange=comparison.exchange,
        kernels=tuple(line.strip() for line in comparison.kernel_lines),
    )

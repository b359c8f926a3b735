"""How the kernels of one rank differ from those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    StepKernels = Mapping[str, Mapping[str, int]]


class OtherCount(Struct, frozen=True, tag=True):
    """How many more kernels of a name another rank runs in a step, fewer where it is negative."""

    more: int
    kernel: str
    """Its short name, where it has one."""
    types: str
    """The types on which it works, if the ranks differ in them; else empty."""
    step: int
    """From 1."""

    def __str__(self) -> str:
        """Return "2 more x gemm in step 1"."""
        shown = printable_line(self.kernel + (f" on {self.types}" if self.types else ""))
        return f"{abs(self.more)} {'more' if self.more > 0 else 'fewer'} x {shown} in step {self.step}"


class OtherStepCount(Struct, frozen=True, tag=True):
    """How many steps another rank has instead."""

    steps: int
    instead_of: int

    def __str__(self) -> str:
        """Return "3 steps instead of 2"."""
        return f"{self.steps} steps instead of {self.instead_of}"


def kernel_differences(
    first: Sequence[StepKernels], other: Sequence[StepKernels]
) -> Iterator[OtherCount | OtherStepCount]:
    """Yield how the other's counts differ: of steps, and of kernels in the first step in which they do."""
    if len(first) != len(other):
        yield OtherStepCount(len(other), len(first))
    for number, (mine, theirs) in enumerate(zip(first, other, strict=False), 1):
        differs = False
        for name in {**mine, **theirs}:
            for types, count in _more(mine.get(name, {}), theirs.get(name, {})).items():
                differs = True
                yield OtherCount(count, decode(name).short or name, types, number)
        if differs:
            return


def _more(mine: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    """Return how many more kernels of a name the other rank runs, by type if both know the types and they differ."""
    together = sum(theirs.values()) - sum(mine.values())
    changed = {types: theirs.get(types, 0) - mine.get(types, 0) for types in {**mine, **theirs}}
    by_types = mine and theirs and "" not in changed
    return {types: count for types, count in (changed if by_types else {"": together}).items() if count}

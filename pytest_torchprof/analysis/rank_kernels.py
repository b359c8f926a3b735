"""How the kernels of one rank differ from those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    StepKernels = Mapping[str, Mapping[str, int]]


def kernel_differences(first: Sequence[StepKernels], other: Sequence[StepKernels]) -> Iterator[str]:
    """Yield what the other runs more or fewer of, in the first step in which they differ: "2 more x gemm in step 1"."""
    if len(first) != len(other):
        yield f"{len(other)} steps instead of {len(first)}"
    for number, (mine, theirs) in enumerate(zip(first, other, strict=False), 1):
        differs = False
        for name in {**mine, **theirs}:
            for types, count in _more(mine.get(name, {}), theirs.get(name, {})).items():
                differs = True
                shown = printable_line((decode(name).short or name) + (f" on {types}" if types else ""))
                yield f"{abs(count)} {'more' if count > 0 else 'fewer'} x {shown} in step {number}"
        if differs:
            return


def _more(mine: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    """Return how many more kernels of a name the other runs, by types where both ranks tell them and they differ."""
    together = sum(theirs.values()) - sum(mine.values())
    changed = {types: theirs.get(types, 0) - mine.get(types, 0) for types in {**mine, **theirs}}
    by_types = mine and theirs and "" not in changed
    return {types: count for types, count in (changed if by_types else {"": together}).items() if count}

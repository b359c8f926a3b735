"""How the kernels of one rank differ from those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def kernel_differences(first: Sequence[Mapping[str, int]], other: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Yield what the other runs more or fewer of, in the first step in which they differ: "2 more x gemm in step 1"."""
    if len(first) != len(other):
        yield f"{len(other)} steps instead of {len(first)}"
    for number, (mine, theirs) in enumerate(zip(first, other, strict=False), 1):
        changed = {name: theirs.get(name, 0) - mine.get(name, 0) for name in {**mine, **theirs}}
        found = [(count, name) for name, count in changed.items() if count]
        for count, name in found:
            shown = printable_line(decode(name).short or name)
            yield f"{abs(count)} {'more' if count > 0 else 'fewer'} x {shown} in step {number}"
        if found:
            return

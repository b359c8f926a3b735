"""The names of the ranges around each operator, from the outermost to its own; equal ones are kept once."""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.trace import Trace


class RangeChains:
    """The chains of a recording's operators, each made when it is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._chains: list[tuple[str, ...]] = [()]
        self._chain_of: dict[int, int] = {ABSENT: 0}
        self._longer: dict[tuple[int, int], int] = {}

    def of(self, op: int) -> tuple[str, ...]:
        """Return the names of the ranges around and including the operator, outermost first; none for ABSENT."""
        return self._chains[self.number(op)]

    def number(self, op: int) -> int:
        """Return the number of the operator's chain, which is that of all that are equal."""
        return self._chain_of[op] if op in self._chain_of else self.numbers((op,))[0]

    def numbers(self, ops: Iterable[int]) -> list[int]:
        """Return for each operator the number of its chain."""
        named, parent, chain_of, known = self._trace.ops.name, self._trace.nesting.parent, self._chain_of, self._longer
        listed = list(ops)
        # Most are asked about again.
        for op in filterfalse(chain_of.__contains__, listed):
            above, holder = [op], parent[op]
            while holder not in chain_of:
                above.append(holder)
                holder = parent[holder]
            number = chain_of[holder]
            for member in reversed(above):
                longer = number, named[member]
                if longer not in known:
                    known[longer] = len(self._chains)
                    self._chains.append((*self._chains[number], self._trace.names[named[member]]))
                number = chain_of[member] = known[longer]
        return list(map(chain_of.__getitem__, listed))

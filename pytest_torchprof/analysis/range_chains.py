"""The names of the ranges around each operator, from the outermost to its own; equal ones are kept once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
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
        chain_of = self._chain_of
        if op in chain_of:
            return chain_of[op]
        named, parent, above = self._trace.ops.name, self._trace.nesting.parent, [op]
        while (op := parent[op]) not in chain_of:
            above.append(op)
        number, known = chain_of[op], self._longer
        for member in reversed(above):
            longer = number, named[member]
            if longer not in known:
                known[longer] = len(self._chains)
                self._chains.append((*self._chains[number], self._trace.names[named[member]]))
            number = chain_of[member] = known[longer]
        return number

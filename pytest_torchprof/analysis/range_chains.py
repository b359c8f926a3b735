"""The names of the ranges around each operator, from the outermost to its own; equal ones are kept once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.trace.columns import picked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.trace import Trace

_UNKNOWN = -1


class RangeChains:
    """The chains of a recording's operators, each made when it is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._chains: list[tuple[str, ...]] = [()]
        # Behind the last operator, which is where ABSENT finds it, the chain of none.
        self._chain_of = [_UNKNOWN] * len(trace.ops) + [0]
        # Of each chain the numbers of those that are longer by one range, by its name.
        self._longer: list[dict[int, int]] = [{}]

    def of(self, op: int) -> tuple[str, ...]:
        """Return the names of the ranges around and including the operator, outermost first; none for ABSENT."""
        return self._chains[self.number(op)]

    def number(self, op: int) -> int:
        """Return the number of the operator's chain, which is that of all that are equal."""
        number = self._chain_of[op]
        return self.numbers((op,))[0] if number == _UNKNOWN else number

    def numbers(self, ops: Iterable[int]) -> list[int]:
        """Return for each operator the number of its chain."""
        named, parent, chain_of, longer = self._trace.ops.name, self._trace.nesting.parent, self._chain_of, self._longer
        listed = list(ops)
        for op in listed:
            # Most are asked about again.
            if chain_of[op] != _UNKNOWN:
                continue
            above, holder = [op], parent[op]
            while (number := chain_of[holder]) == _UNKNOWN:
                above.append(holder)
                holder = parent[holder]
            for member in reversed(above):
                known = longer[number].get(named[member])
                number = chain_of[member] = self._longer_by(number, named[member]) if known is None else known
        return picked(chain_of, listed)

    def _longer_by(self, number: int, name: int) -> int:
        self._longer[number][name] = len(self._chains)
        self._chains.append((*self._chains[number], self._trace.names[name]))
        self._longer.append({})
        return self._longer[number][name]

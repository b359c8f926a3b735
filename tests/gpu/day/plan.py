"""Which steps are done side by side, which by themselves, and how long that may take at most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steps import Step

LEAST_S = 15
"""A step that has less begins in vain."""


@dataclass(frozen=True)
class Plan:
    """The steps side by side, then those by themselves, each in their order."""

    beside: tuple[Step, ...]
    alone: tuple[Step, ...]
    at_once: int
    without_locks: int
    """How many of those by themselves would be among the others if each could have a lock of its own."""

    @classmethod
    def of(cls, steps: Sequence[Step], at_once: int, *, locks: bool) -> Plan:
        """Part the steps; those that measure are by themselves too unless each can have a lock of its own."""
        alone = [step for step in steps if at_once == 1 or step.alone]
        without = [step for step in steps if step.measures and not locks and step not in alone]
        beside = tuple(step for step in steps if step not in alone and step not in without)
        return cls(beside, tuple(step for step in steps if step not in beside), at_once, len(without))

    def said(self, limit_s: float) -> Iterator[str]:
        """Say how long it may take, and what has no time in this limit if all before it takes as long as it may."""
        begins, beside_s, total_s = self._at_the_latest()
        count = len(self.beside) + len(self.alone)
        parts = f": {len(self.beside)}, {self.at_once} at once, in {beside_s} s, then {len(self.alone)} by themselves"
        said = f"{count} {'step' if count == 1 else 'steps'}, in at most {total_s} of {limit_s:.0f} s"
        yield f"{said}{parts if self.beside else ''}"
        if self.without_locks:
            yield (
                f"{self.without_locks} of them could be among the others if each had a lock of the GPU of its own, which "
                "takes root and mount namespaces here"
            )
        late = [name for name, begin_s in begins.items() if begin_s > limit_s - LEAST_S]
        if late:
            yield f"where each takes as long as it may, there is no time for: {', '.join(late)}"

    def _at_the_latest(self) -> tuple[dict[str, int], int, int]:
        """Return when each step begins at the latest, and when the two parts end."""
        begins: dict[str, int] = {}
        free = [0] * self.at_once
        for step in self.beside:
            begins[step.name] = heapq.heappop(free)
            heapq.heappush(free, begins[step.name] + step.limit_s)
        beside_s = now = max(free)
        for step in self.alone:
            begins[step.name] = now
            now += step.limit_s
        return begins, beside_s, now

"""The durations of the calls in a table's row: together, one by one, and step by step."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

Key = TypeVar("Key", bound="Hashable")


class CallTimes(Struct, frozen=True, kw_only=True, eq=False):
    """The times of a row's calls; without a call all are 0."""

    count: int = 0
    min_us: float = 0.0
    max_us: float = 0.0
    steps_ns: tuple[int, ...]
    """How long the calls of each step took together; where they may run at once, how long at least one of them did."""
    calls_ns: int | None = None
    """How long the calls took one by one, where several may run at once; None where that is the sum over steps."""

    @property
    def time_us(self) -> float:
        """How long they took together."""
        return sum(self.steps_ns) / 1000

    @property
    def mean_us(self) -> float:
        """How long one of them took on average."""
        together_us = self.time_us if self.calls_ns is None else self.calls_ns / 1000
        return together_us / self.count if self.count else 0.0

    @property
    def worst_step(self) -> int | None:
        """The index of the first step in which they took longest; None if there is only one step."""
        return self.steps_ns.index(max(self.steps_ns)) if len(self.steps_ns) > 1 else None

    @property
    def worst_step_us(self) -> float | None:
        """How long they took in that step, together."""
        return max(self.steps_ns) / 1000 if len(self.steps_ns) > 1 else None


def times_by_key(steps: Sequence[Iterable[tuple[Key, int]]]) -> dict[Key, CallTimes]:
    """Return the times of calls by their keys; ``steps`` holds each step's calls as (key, ns)."""
    durations: dict[Key, dict[int, list[int]]] = defaultdict(dict)
    for step, calls in enumerate(steps):
        of_step: dict[Key, list[int]] = defaultdict(list)
        for key, took_ns in calls:
            of_step[key].append(took_ns)
        for key, several in of_step.items():
            durations[key][step] = several
    return {
        key: CallTimes(
            count=sum(map(len, by_step.values())),
            min_us=min(map(min, by_step.values())) / 1000,
            max_us=max(map(max, by_step.values())) / 1000,
            steps_ns=tuple([sum(by_step.get(step, ())) for step in range(len(steps))]),
        )
        for key, by_step in durations.items()
    }


def times_together(rows: Sequence[CallTimes]) -> CallTimes:
    """Return the times of all calls of several rows, of which there is at least one."""
    return CallTimes(
        count=sum(row.count for row in rows),
        min_us=min(row.min_us for row in rows),
        max_us=max(row.max_us for row in rows),
        steps_ns=tuple(map(sum, zip(*(row.steps_ns for row in rows), strict=True))),
    )

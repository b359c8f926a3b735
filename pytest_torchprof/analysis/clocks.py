"""The clock of the times of a job's ranks: their host's, or the clocks of several hosts, which collectives align."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.analysis.numbers import middle

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.ranks import RankPart

TOGETHER: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Collectives that no rank leaves before all have come: they end at the same time on each."""


class Clocks(Struct, frozen=True, kw_only=True):
    """The offsets that put the instants of several ranks on one clock."""

    offsets_ns: Mapping[int, int]
    """The offset to add to a rank's instants, by rank."""
    parts: Mapping[int, int]
    """By rank, the part of the job within which instants may be compared."""
    are_same: bool
    residue_us: float
    """How far apart the ends of a collective are in the middle; 0 with one clock."""

    def are_comparable(self, ranks: Iterable[int]) -> bool:
        """Return whether instants of these ranks may be compared."""
        return len({self.parts[rank] for rank in ranks}) == 1


def aligned(ranks: Sequence[RankPart], timed: Collection[Mapping[int, Collective]]) -> Clocks:
    """Return the clocks of the ranks, aligned so that collectives end together in the middle.

    Clocks of different hosts are never compared themselves; one that a recording does not tell is its own.
    """
    clock_of = {part.rank: f"clock {part.clock}" if part.clock is not None else f"rank {part.rank}" for part in ranks}
    own = {part.rank: part.offset_ns for part in ranks}
    edges = _edges(clock_of, own, timed)
    ahead: dict[str, int] = {}
    part_of: dict[str, int] = {}
    rest: list[float] = []
    for number, first in enumerate(dict.fromkeys(clock_of.values())):
        if first in part_of:
            continue
        ahead[first], part_of[first], waiting = 0, number, [first]
        while waiting:
            clock = waiting.pop(0)
            for other, apart in edges[clock].items():
                if other in part_of:
                    continue
                by = round(middle(apart))
                ahead[other], part_of[other] = ahead[clock] + by, number
                rest += [abs(difference_ns - by) / 1000 for difference_ns in apart]
                waiting.append(other)
    return Clocks(
        offsets_ns={rank: own[rank] - ahead[clock] for rank, clock in clock_of.items()},
        parts={rank: part_of[clock] for rank, clock in clock_of.items()},
        are_same=len(set(clock_of.values())) == 1,
        residue_us=middle(rest) if rest else 0.0,
    )


def _edges(
    clock_of: Mapping[int, str], own: Mapping[int, int], timed: Iterable[Mapping[int, Collective]]
) -> Mapping[str, Mapping[str, list[int]]]:
    edges: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for of_rank in timed:
        if any(collective.name not in TOGETHER for collective in of_rank.values()):
            continue
        ends: dict[str, int] = {}
        for rank, collective in of_rank.items():
            end = (collective.start_ns or 0) + (collective.dur_ns or 0) + own[rank]
            # Of the ranks of a host the last one is the nearest to when all were done.
            ends[clock_of[rank]] = max(end, ends.get(clock_of[rank], end))
        first, *others = ends
        for other in others:
            edges[first][other].append(ends[other] - ends[first])
            edges[other][first].append(ends[first] - ends[other])
    return edges

"""Which versions of a series follow one another, and which are in use side by side.

What follows one another is compared: an upgrade is a step, also where the old versions were used once more after it, or
came back for good. What is side by side, as in a matrix of two versions, is not, as long as both go on.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final

from pytest_torchprof.history.stopped import lacks_more_than_ever

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.history.series import Point, SameRuns, Series

_TURNS: Final = 4
"""How often two versions take turns, each coming back, before they count as side by side: one rolled back takes two."""


class _Span:
    """All stretches of the same versions."""

    def __init__(self, series: Series, stretches: list[SameRuns]) -> None:
        self.places = series.branch.places
        self.stretches = stretches
        self.first, self.last = stretches[0].indices[0], stretches[-1].indices[-1]
        self.first_place, self.last_place = self.places[self.first], self.places[self.last]
        self._commits: frozenset[int] | None = None

    @property
    def commits(self) -> frozenset[int]:
        """The places of its commits."""
        if self._commits is None:
            self._commits = frozenset(self.places[index] for index in self.indices)
        return self._commits

    @property
    def indices(self) -> Iterator[int]:
        """Where its runs stand, in order."""
        return (index for stretch in self.stretches for index in stretch.indices)


def lanes_of(series: Series) -> list[list[SameRuns]]:
    """Return lanes of stretches, each in the order of its runs, whose versions follow one another.

    A project that tests each commit with two versions of torch has two lanes, and an upgrade is a step in one. A single
    run with versions that others had left for good before it has a lane of its own.
    """
    spans: dict[object, list[SameRuns]] = {}
    for stretch in sorted(series.stretches, key=lambda stretch: stretch.indices[0]):
        spans.setdefault(stretch.versions, []).append(stretch)
    lanes: list[list[_Span]] = []
    for own in (_Span(series, stretches) for stretches in spans.values()):
        fitting = [lane for lane in lanes if _ended_before(lane, own) or not _any_beside(lane, own)]
        if fitting:
            max(fitting, key=lambda lane: (_ended_before(lane, own), max(span.last for span in lane))).append(own)
        else:
            lanes.append([own])
    return [stretches for lane in lanes for stretches in _in_turn(lane)]


def points_by_lane(series: Series) -> Iterator[list[Point]]:
    """Yield the points of each lane in order, without those that are compared with none."""
    known: set[object] = set()
    for lane in lanes_of(series):
        versions = {stretch.versions for stretch in lane}
        if not versions <= known:
            known |= versions
            yield [series.point(stretch, index) for stretch in lane for index in stretch.indices]


def ended_lanes(series: Series, lanes: Sequence[Sequence[SameRuns]]) -> Iterator[tuple[list[SameRuns], list[SameRuns]]]:
    """Yield each lane that has ended while others go on, and what these measured at later commits.

    It has ended if it lacks more commits than ever between two of its own, since there were others.
    """
    if len(lanes) == 1:
        return
    places = series.branch.places
    commits = [sorted({places[index] for stretch in lane for index in stretch.indices}) for lane in lanes]
    rank = {place: at for at, place in enumerate(sorted({place for own in commits for place in own}))}
    for at, (lane, own) in enumerate(zip(lanes, commits, strict=True)):
        company = min(other[0] for number, other in enumerate(commits) if number != at)
        turns = [rank[place] for place in own if place >= company]
        if lacks_more_than_ever(turns, len(rank)):
            others = [stretch for number, other in enumerate(lanes) if number != at for stretch in other]
            yield list(lane), _joined(run for run in _runs(others) if places[run[0]] > own[-1])


def _ended_before(lane: Iterable[_Span], own: _Span) -> bool:
    return all(span.last_place < own.first_place for span in lane)


def _any_beside(lane: Iterable[_Span], own: _Span) -> bool:
    return any(span.last_place >= own.first_place and _are_beside(span, own) for span in lane)


def _are_beside(first: _Span, second: _Span) -> bool:
    """Whether two versions, of which the second began later, are in use side by side."""
    shared = first.commits & second.commits
    if len(shared) > 1 or (shared == second.commits and first.last_place > second.last_place):
        return True
    runs = sorted([*((index, False) for index in first.indices), *((index, True) for index in second.indices)])
    return sum(earlier[1] != later[1] for earlier, later in pairwise(runs)) >= _TURNS


def _in_turn(lane: Sequence[_Span]) -> list[list[SameRuns]]:
    """Return the stretches of a lane in the order of its runs, then those that are no part of it."""
    stretches = [stretch for span in lane for stretch in span.stretches]
    if all(earlier.last_place <= later.first_place for earlier, later in pairwise(lane)):
        return [stretches]
    # At one commit those that were there first come first, whichever run was the earlier one.
    places = lane[0].places
    age = {span.stretches[0].versions: at for at, span in enumerate(lane)}
    runs = sorted(_runs(stretches), key=lambda run: (places[run[0]], age[run[1].versions]))
    visits = [list(visit) for _, visit in groupby(runs, lambda run: run[1].versions)]
    # Who was late with an upgrade, or tried a commit again: the versions were left before, and are left after it.
    last = {visit[0][1].versions: at for at, visit in enumerate(visits)}
    first = {visit[0][1].versions: at for at, visit in reversed([*enumerate(visits)])}
    late = {
        at
        for at, visit in enumerate(visits)
        if len(visit) == 1 and first[visit[0][1].versions] < at == last[visit[0][1].versions] < len(visits) - 1
    }
    kept = _joined(run for at, visit in enumerate(visits) if at not in late for run in visit)
    return [kept, *(_joined(visits[at]) for at in sorted(late))]


def _runs(stretches: Iterable[SameRuns]) -> list[tuple[int, SameRuns]]:
    """Return the runs of stretches in order, each with its stretch."""
    return sorted(((index, own) for own in stretches for index in own.indices), key=lambda run: run[0])


def _joined(runs: Iterable[tuple[int, SameRuns]]) -> list[SameRuns]:
    """Return stretches of runs that follow one another."""
    made = []
    for _, group in groupby(runs, lambda run: id(run[1])):
        own = list(group)
        stretch = own[0][1]
        made.append(stretch if len(own) == len(stretch.indices) else stretch.only({index for index, _ in own}))
    return made

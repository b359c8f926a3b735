"""The runs of a series in lanes: versions that follow one another are in one, versions side by side in several."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.following import How, followed
from pytest_torchprof.history.spans import late_turn, spans_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.following import Followed
    from pytest_torchprof.history.points import Point, SameRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.spans import VersionRun, VersionSpan


class VersionLane(Struct, frozen=True, kw_only=True):
    """Stretches in the order of their runs, each compared with the next, and what else these are compared with."""

    stretches: list[SameRuns]
    before: list[SameRuns] = []
    """The stretches of another lane that they follow."""
    after: list[SameRuns] = []
    """The stretches of another lane that follow them."""
    is_aside: bool = False
    """Whether its versions have another lane: a run that came late, or runs beside versions that had not ended yet."""


def lanes_of(series: Series) -> list[VersionLane]:
    """Return the lanes of a series, each of whose runs is in one of them.

    A project that tests each commit with two versions of torch has two lanes, and an upgrade is a step in one.
    """
    if len({stretch.versions for stretch in series.stretches}) <= 1:
        return [VersionLane(stretches=sorted(series.stretches, key=lambda stretch: stretch.indices[0]))]
    spans = spans_of(series)
    links = followed(spans)
    kept, aside = _kept(spans, links)
    members: dict[int, list[int]] = {}
    root = [*range(len(spans))]
    for own in range(len(spans)):
        if own in links and links[own].how is not How.BESIDE:
            root[own] = root[links[own].number]
        members.setdefault(root[own], []).append(own)
    lanes = [
        VersionLane(stretches=_joined(_in_order(kept, own)), before=_followed_beside(spans, links, first))
        for first, own in members.items()
    ]
    return [*lanes, *aside]


def points_by_lane(series: Series) -> Iterator[list[Point]]:
    """Yield the points of each lane in order, but for runs aside of it."""
    for lane in lanes_of(series):
        if not lane.is_aside:
            yield [series.point(stretch, index) for stretch in lane.stretches for index in stretch.indices]


def _kept(
    spans: Sequence[VersionSpan], links: Mapping[int, Followed]
) -> tuple[list[list[VersionRun]], list[VersionLane]]:
    """Return of each of the versions the runs that follow one another, and those aside of them."""
    kept = [span.runs for span in spans]
    aside = []
    for own, link in links.items():
        old, new = spans[link.number], spans[own]
        late = late_turn(old, new)
        if link.how is How.OVERLAPPING:
            early = [run for run in kept[own] if run[0] < old.last]
            kept[own] = [run for run in kept[own] if run[0] >= old.last]
            aside.append(VersionLane(stretches=_joined(early), after=_joined(kept[own]), is_aside=True))
        elif link.how is How.AFTER and late is not None:
            came_late = [run for run in kept[link.number] if run[0] >= late]
            kept[link.number] = [run for run in kept[link.number] if run[0] < late]
            aside.append(VersionLane(stretches=_joined(came_late), before=_joined(kept[link.number]), is_aside=True))
    return kept, aside


def _followed_beside(spans: Sequence[VersionSpan], links: Mapping[int, Followed], own: int) -> list[SameRuns]:
    """Return the runs of the version that a lane's first one follows and that goes on beside it, up to its start."""
    link = links.get(own)
    return [] if link is None else _joined(run for run in spans[link.number].runs if run[0] <= spans[own].first)


def _in_order(kept: Sequence[Sequence[VersionRun]], members: Iterable[int]) -> list[VersionRun]:
    """Return the runs of versions by their commits; of one commit first those of the versions that were in use before.

    Whichever run was the earlier one.
    """
    runs = sorted(((run[0], own, run) for own in members for run in kept[own]), key=itemgetter(0, 1))
    ordered: list[VersionRun] = []
    newest: int | None = None
    for _, group in groupby(runs, itemgetter(0)):
        at_commit = sorted(group, key=lambda run: run[1] != newest)
        ordered += [run for _, _, run in at_commit]
        newest = at_commit[-1][1]
    return ordered


def _joined(runs: Iterable[VersionRun]) -> list[SameRuns]:
    """Return stretches of runs that follow one another."""
    made = []
    for _, group in groupby(runs, lambda run: id(run[2])):
        own = list(group)
        stretch = own[0][2]
        made.append(stretch if len(own) == len(stretch.indices) else stretch.only({index for _, index, _ in own}))
    return made

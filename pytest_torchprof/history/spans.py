"""When the versions of a series were in use, and how two of them stand to each other."""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.history.points import SameRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.trace.metadata import Environment

VersionRun = tuple[int, int, "SameRuns"]
"""A run: the number of its commit among those at which the series has a point, where it stands among the runs of the
branch, and its stretch."""


class VersionSpan(Struct, frozen=True, kw_only=True, eq=False):
    """All that a series has of the same versions."""

    versions: Environment
    runs: list[VersionRun]
    """In the order of the branch."""
    turns: tuple[int, ...]
    """Its commits."""
    count: int
    """At how many commits the series has a point."""

    @property
    def first(self) -> int:
        """Where it begins."""
        return self.turns[0]

    @property
    def last(self) -> int:
        """Where it was measured last."""
        return self.turns[-1]

    @property
    def has_stopped(self) -> bool:
        """Whether it lacks more commits than ever; of one commit alone, more than one."""
        usual = max((later - earlier for earlier, later in pairwise(self.turns)), default=1)
        return self.count - 1 - self.last > usual

    @property
    def is_newest(self) -> bool:
        """Whether it was measured at the newest commit, so that nobody knows yet whether it goes on."""
        return self.last == self.count - 1

    def lacks_at(self, turn: int) -> bool:
        """Whether at a later commit it has been missing for longer than ever before."""
        return _lacks_more_than_ever(self.turns, turn)

    def since(self, turn: int) -> tuple[int, ...]:
        """Return its commits from one on."""
        return self.turns[bisect_left(self.turns, turn) :]


def spans_of(series: Series) -> list[VersionSpan]:
    """Return the span of each version of a series, in the order in which the versions began."""
    commit_of = series.branch.commit_of
    by_versions: dict[Environment, list[tuple[int, SameRuns]]] = {}
    runs = [(index, stretch) for stretch in series.stretches for index in stretch.indices]
    for index, stretch in sorted(runs, key=itemgetter(0)):
        by_versions.setdefault(stretch.versions, []).append((index, stretch))
    measured = sorted({commit_of[index] for index, _ in runs})
    turns = {commit: turn for turn, commit in enumerate(measured)}
    return [
        VersionSpan(
            versions=versions,
            runs=[(turns[commit_of[index]], index, stretch) for index, stretch in own],
            turns=tuple(dict.fromkeys(turns[commit_of[index]] for index, _ in own)),
            count=len(turns),
        )
        for versions, own in by_versions.items()
    ]


def late_turn(old: VersionSpan, new: VersionSpan) -> int | None:
    """Return the commit from which versions came back now and then after they had been left for others; None for none.

    Somebody was late with the upgrade, or tries an old version once in a while: each time it had been away for longer
    than ever before the upgrade.
    """
    after = tuple(turn for turn in old.since(new.first) if turn > new.first)
    earlier = old.turns[: len(old.turns) - len(after)]
    if not after or not earlier or after[-1] > new.last:
        return None
    usual = max((later - before for before, later in pairwise(earlier)), default=0)
    if len(after) > 1:
        # One commit does not show the pace of a version that is measured now and then from its beginning.
        usual = max(usual, 2) if len(earlier) > 1 else old.count
    return after[0] if min(later - before for before, later in pairwise((earlier[-1], *after))) > usual else None


def ended_before(old: VersionSpan, new: VersionSpan) -> bool:
    """Whether versions have ended where others begin, but for a commit of both and a run that came late."""
    return old.last <= new.first or late_turn(old, new) is not None


def gave_way(old: VersionSpan, new: VersionSpan) -> bool:
    """Whether versions have ended beside others that began later and outlive them."""
    after = old.since(new.first)
    pace = after if len(after) > 1 else old.turns
    return old.last < new.last and _lacks_more_than_ever(pace, old.count)


def came_back(old: VersionSpan, new: VersionSpan) -> bool:
    """Whether versions were left for others, and these for them again.

    One commit of both is where they changed, unless the others have no second one: then they were tried beside them.
    """
    if old.last <= new.last:
        return False
    inside = [turn for turn in old.since(new.first) if turn <= new.last]
    at_an_end = len(inside) == 1 and inside[0] in (new.first, new.last) and new.first < new.last
    return not inside or at_an_end or (new.has_stopped and took_turns(old, new))


def took_turns(old: VersionSpan, new: VersionSpan) -> bool:
    """Whether one of two versions was in use at a time, each for more than one commit before the other came back."""
    if not set(old.turns).isdisjoint(new.turns):
        return False
    turns = sorted([*((turn, "old") for turn in old.turns), *((turn, "new") for turn in new.turns)])
    stays = [len([*stay]) for _, stay in groupby(turns, itemgetter(1))]
    return 1 not in stays[1:-1]


def _lacks_more_than_ever(turns: Sequence[int], count: int) -> bool:
    """Whether more commits are missing at the end of so many than ever between two of those at which it was there."""
    pauses = [later - earlier for earlier, later in pairwise(turns)]
    return bool(pauses) and count - 1 - turns[-1] > max(pauses)

"""Which versions of a series others follow, decided in hindsight: upgrades, and what was in use side by side."""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.nearness import Nearness
from pytest_torchprof.history.spans import came_back, ended_before, gave_way, took_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.spans import VersionSpan


class How(StrEnum):
    """How versions follow others."""

    AFTER = "after"
    """The others had ended."""
    OVERLAPPING = "overlapping"
    """The others ended beside them."""
    IN_TURN = "in turn"
    """The others came back, once or often."""
    BESIDE = "beside"
    """The others go on, or are followed by nearer ones too."""


class Followed(Struct, frozen=True):
    """The version that another one follows, by its number in the order in which versions began."""

    number: int
    how: How


def followed(spans: Sequence[VersionSpan]) -> dict[int, Followed]:
    """Return the version that each version follows, by the later one's number; without those that follow none."""
    choice = _Choice(spans)
    choice.follow_what_ended()
    choice.follow_what_goes_on()
    choice.follow_at_the_first_commit()
    choice.forget_trials()
    return choice.made


class _Choice:
    """The choice of what each of several versions follows."""

    def __init__(self, spans: Sequence[VersionSpan]) -> None:
        self.spans = spans
        self.near = Nearness([span.versions for span in spans])
        self.made: dict[int, Followed] = {}
        self.heirs: dict[int, int] = {}
        """By which others versions are followed, so that no later ones follow them."""
        self.tried: set[int] = set()
        """The versions that follow none, and ended while older ones went on."""

    def follow_what_ended(self) -> None:
        """Let versions follow the nearest that ended where they begin, and had not been tried beside others only."""
        left: list[int] = []
        reach = -1
        for _, group in groupby(range(len(self.spans)), lambda number: self.spans[number].first):
            new = [*group]
            left = [number for number in left if number not in self.heirs]
            pairs = [(old, own) for own in new for old in left if ended_before(self.spans[old], self.spans[own])]
            for old, own in sorted(pairs, key=self._doubt):
                if own in self.made or self._between(old, own, left) or self._may_be_tried_again(old, own):
                    continue
                self._take(old, own, How.BESIDE if old in self.heirs else How.AFTER)
            self.tried |= {own for own in new if own not in self.made and self.spans[own].last < reach}
            left += [own for own in new if own not in self.tried]
            reach = max(reach, *(self.spans[own].last for own in new))

    def _doubt(self, pair: tuple[int, int]) -> tuple[object, ...]:
        """Return a sort key: the greater, the less sure it is that the old version ended and this one follows it."""
        old, own = pair
        span, begin = self.spans[old], self.spans[own].first
        return span.last == begin, span.lacks_at(begin), span.first, self.near.rank(old, own)

    def _may_be_tried_again(self, old: int, own: int) -> bool:
        """Whether old versions may go on, where those beside them at the newest commit are nearer to what was tried."""
        return self.spans[old].is_newest and any(self.near.is_between(tried, old, own) for tried in self.tried)

    def follow_what_goes_on(self) -> None:
        """Let versions follow what was in use when they began, and ended later, came back, or moved on with them."""
        for own, new in enumerate(self.spans):
            if own in self.made:
                continue
            beside = [old for old in range(own) if self.spans[old].first < new.first < self.spans[old].last]
            if not (self._follow_moved_on(own, beside) or self._follow_what_stopped(own, beside)):
                tried = [old for old in self.tried if self._is_open(old, own) and not self._between(old, own, beside)]
                if tried:
                    self._take(self._nearest(tried, own), own, How.AFTER)

    def _follow_moved_on(self, own: int, beside: Sequence[int]) -> bool:
        """Let versions follow those that are between them and others that had ended: a window of versions moved on."""
        for old in range(own):
            between = [] if old in self.tried or not self._is_open(old, own) else self._between(old, own, beside)
            nearest = self._nearest(between, own) if between else old
            # Where several are, and none of them is the nearest in all, the others that had ended are of another lane.
            if between and all(other == nearest or self.near.is_between(nearest, other, own) for other in between):
                self.made[own] = Followed(nearest, How.BESIDE)
                self.heirs[old] = own
                return True
        return False

    def _follow_what_stopped(self, own: int, beside: Sequence[int]) -> bool:
        """Let versions follow those that ended or came back after they began."""
        new = self.spans[own]
        stopped = [
            old
            for old in beside
            if came_back(self.spans[old], new) or (old not in self.heirs and gave_way(self.spans[old], new))
        ]
        stopped = [old for old in stopped if not self._between(old, own, beside)]
        if stopped:
            old = self._nearest(stopped, own)
            turned = self.spans[old].last > new.last or took_turns(self.spans[old], new)
            self._take(old, own, How.IN_TURN if turned else How.OVERLAPPING)
        return bool(stopped)

    def _is_open(self, old: int, own: int) -> bool:
        """Whether versions had ended where others begin, not long ago, and none follow them."""
        was, new = self.spans[old], self.spans[own]
        is_open = was.first < new.first and old not in self.heirs and not was.lacks_at(new.first)
        return is_open and ended_before(was, new)

    def follow_at_the_first_commit(self) -> None:
        """Let versions follow those that were measured at the first commit alone, before all of their runs."""
        for own, span in enumerate(self.spans):
            if span.first:
                continue
            left = [old for old in range(own) if old not in self.heirs]
            if before := [old for old in left if self.spans[old].runs[-1][1] < span.runs[0][1]]:
                self._take(self._nearest(before, own), own, How.AFTER)

    def forget_trials(self) -> None:
        """Let versions follow none that were tried beside others, as these went on, and given up."""
        for own, other in [*self.made.items()]:
            span = self.spans[own]
            if other.how is How.BESIDE and own not in self.heirs and span.has_stopped:
                del self.made[own]

    def _take(self, old: int, own: int, how: How) -> None:
        self.made[own] = Followed(old, how)
        self.heirs.setdefault(old, own)

    def _between(self, old: int, own: int, others: Iterable[int]) -> list[int]:
        """Return the others that are nearer to versions than old ones are, and in no field farther from them."""
        return [other for other in others if self.near.is_between(other, old, own)]

    def _nearest(self, some: Iterable[int], own: int) -> int:
        return min(some, key=lambda old: self.near.rank(old, own))

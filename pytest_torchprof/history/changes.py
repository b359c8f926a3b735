"""Changes of what the code decides: exact, in both directions, without a threshold.

A series is cut where a number or the kernels in launch order differ from those of the points before. What the same
commit launches differently under the same versions is no change: the series is unsteady there, and is not cut.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.enclosing import Enclosed
from pytest_torchprof.history.lanes import lanes_of
from pytest_torchprof.history.record import KernelCount
from pytest_torchprof.history.series import EXACT

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.lanes import VersionLane
    from pytest_torchprof.history.points import Point, SameRuns, SeriesKey
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series


class State(StrEnum):
    """Whether a change still holds."""

    CONFIRMED = "confirmed"
    """Later runs have it too."""
    LATEST = "latest"
    """Only one run has it so far: the newest of the test."""
    UNDONE = "undone"
    """A later commit launches again what was launched before it."""
    UNSTEADY = "unsteady"
    """Runs of one commit, with the same versions, disagree."""


class Cause(StrEnum):
    """The possible causes of a change."""

    COMMIT = "commit"
    RANGE = "range"
    """One of several commits, of which none was measured."""
    ENVIRONMENT = "environment"
    """Versions or settings: the commit is the same."""
    TEST = "test"
    """The test itself was edited."""
    UNDECIDABLE = "undecidable"
    """Commit and versions changed together."""
    NONE = "none"
    """Nothing that is recorded changed: the series is unsteady, or what is not recorded moved a time."""


class SeriesChange(Struct, frozen=True, kw_only=True):
    """One series at a point where it changes: the points before and after."""

    key: SeriesKey
    before: Point
    after: Point
    numbers: Mapping[str, tuple[float, float]]
    """The numbers that differ, as old and new."""
    came: tuple[KernelCount, ...]
    went: tuple[KernelCount, ...]
    state: State
    moved: Mapping[str, tuple[object, object]]
    """The versions and settings that changed, and what may have been the machine's, as old and new."""
    undone_at: str | None = None
    """The commit that launches again what was launched before."""


class BranchEvent(Struct, frozen=True, kw_only=True):
    """A change on a branch between two commits, and its possible cause."""

    cause: Cause
    before: str
    """The last commit that was measured, and surely is without it."""
    after: str
    """The first commit that surely has it."""
    commits: tuple[str, ...] | None
    """The commits that can have made it, oldest first; None if their order is not known."""
    moved: Mapping[str, tuple[object, object]]
    """The versions and settings that changed, and of counts what may have been the machine's, as old and new."""


class HistoryEvent(BranchEvent, frozen=True, kw_only=True):
    """The same change in one or several tests."""

    changes: tuple[SeriesChange, ...]

    @property
    def came(self) -> tuple[KernelCount, ...]:
        """The kernels that came, over all its tests, the most frequent first."""
        return _summed(kernel for change in self.changes for kernel in change.came)

    @property
    def went(self) -> tuple[KernelCount, ...]:
        """The kernels that went."""
        return _summed(kernel for change in self.changes for kernel in change.went)

    @property
    def holds(self) -> bool:
        """Whether the newest code still has the change, in one of its tests."""
        return any(change.state in (State.CONFIRMED, State.LATEST) for change in self.changes)


def events_of(branch: BranchRuns, all_series: Iterable[Series]) -> list[HistoryEvent]:
    """Return the changes of all series in the order of their commits; a change that many tests share is one event.

    The same change: the same kernels came and went, or, where these are as before, the same numbers moved as far.

    A test that was not measured beside a change knows a range of commits for it. Where just one change of others, with
    the same kernels, lies in that range, it is theirs, and its commits are those that all of them have in common.
    """
    order = {sha: at for at, sha in enumerate(branch.commits)}
    changes = [change for series in all_series for change in _changes(series)]
    alike: dict[tuple[object, ...], list[Enclosed[SeriesChange]]] = {}
    for change in sorted(changes, key=lambda change: (order[change.after.commit], order[change.before.commit])):
        kind = (somewhere(_cause(branch, change)), str(change.moved))
        own = Enclosed(kind, order[change.before.commit], order[change.after.commit], [change])
        others = alike.setdefault((*own.kind, *_kernels(change)), [])
        met = [other for other in others if other.meets(own)]
        if len(met) == 1:
            met[0].narrow(own)
        else:
            others.append(own)
    listed = {id(change): at for at, change in enumerate(changes)}
    events = [_event(branch, own, listed) for others in alike.values() for own in others]
    return sorted(
        events,
        key=lambda event: (order[event.after], order[event.before], event.cause, listed[id(event.changes[0])]),
    )


def _event(branch: BranchRuns, own: Enclosed[SeriesChange], listed: Mapping[int, int]) -> HistoryEvent:
    """Return an event, with the changes of the tests that know most of it first, as they are listed."""
    before, after = branch.commits[own.before], branch.commits[own.after]
    changes = sorted(own.changes, key=lambda change: (change.after.commit != after, listed[id(change)]))
    return HistoryEvent(
        cause=cause_within(branch, _cause(branch, changes[0]), before, after),
        before=before,
        after=after,
        commits=branch.between(before, after),
        moved=changes[0].moved,
        changes=tuple(changes),
    )


def _kernels(change: SeriesChange) -> tuple[object, ...]:
    """Return the trait that several tests' changes share: the kernels that came and went, or the numbers that moved."""
    came, went = (frozenset(kernel.name for kernel in kernels) for kernels in (change.came, change.went))
    moved = {} if came or went else {name: new - old for name, (old, new) in change.numbers.items()}
    return came, went, str(moved)


def unchanged(series: Series) -> list[list[Point]]:
    """Return the points of a series in groups in which nothing changes, side by side where versions are."""
    return [
        [series.point(stretch, index) for stretch in segment for index in stretch.indices]
        for segment in unchanged_stretches(series)
    ]


def unchanged_stretches(series: Series) -> list[list[SameRuns]]:
    """Return the groups of ``unchanged`` as stretches of runs, without a point for each run."""
    return [segment for lane in lanes_of(series) for segment in _segments(lane.stretches)]


def _commit_index(series: Series, stretch: SameRuns, *, first: bool = False) -> int:
    """Return the position of the commit of its first or last run."""
    return series.branch.commit_of[stretch.indices[0 if first else -1]]


def _changes(series: Series) -> Iterator[SeriesChange]:
    return (change for lane in lanes_of(series) for change in _changes_in(series, lane))


def _changes_in(series: Series, lane: VersionLane) -> Iterator[SeriesChange]:
    """Yield the changes of a lane, but for those among what else it is compared with."""
    stretches = [*lane.before, *lane.stretches, *lane.after]
    others = {index for stretch in (*lane.before, *lane.after) for index in stretch.indices}
    unsteady: set[int] = set()
    for old, new in pairwise(stretches):
        before, after = series.point(old, old.indices[-1]), series.point(new, new.indices[0])
        if before.commit == after.commit and old.versions == new.versions and _differ(old, new):
            if _commit_index(series, old) not in unsteady and not {old.indices[-1], new.indices[0]} <= others:
                yield _change(series, before, after, State.UNSTEADY, before.machine_moved(after))
            unsteady.add(_commit_index(series, old))
    segments = list(_segments(_without(series, stretches, unsteady)))
    for at, (was, now) in enumerate(pairwise(segments)):
        if not {was[-1].indices[-1], now[0].indices[0]} <= others:
            yield _change_at(series, segments, at)


def _change_at(series: Series, segments: Sequence[Sequence[SameRuns]], at: int) -> SeriesChange:
    """Return the change between a segment and the one after it."""
    was, now = segments[at], segments[at + 1]
    before, after = series.point(was[-1], was[-1].indices[-1]), series.point(now[0], now[0].indices[0])
    moved = {**before.moved(after), **_machine_moved(series, was, now)}
    again = next((later[0] for later in segments[at + 2 :] if not _differ(was[-1], later[0])), None)
    if again is not None:
        undone_at = series.point(again, again.indices[0]).commit
        return _change(series, before, after, State.UNDONE, moved, undone_at)
    newest = at + 2 == len(segments) and sum(len(stretch.indices) for stretch in now) == 1
    return _change(series, before, after, State.LATEST if newest else State.CONFIRMED, moved)


def _machine_moved(
    series: Series, was: Sequence[SameRuns], now: Sequence[SameRuns]
) -> dict[str, tuple[object, object]]:
    """Return the facts of the machine that moved between two segments which no machine shares.

    Where one machine has both, it cannot have been the machine.
    """
    before, after = series.point(was[-1], was[-1].indices[-1]), series.point(now[0], now[0].indices[0])
    return {
        name: values
        for name, values in before.machine_moved(after).items()
        if _values(series, name, was).isdisjoint(_values(series, name, now))
    }


def _values(series: Series, name: str, segment: Iterable[SameRuns]) -> set[object]:
    """Return the values that the machines of a segment's runs have of one fact."""
    points = (series.point(stretch, index) for stretch in segment for index in stretch.indices)
    return {getattr(point.environment, name) for point in points}


def _without(series: Series, stretches: Iterable[SameRuns], unsteady: Container[int]) -> Iterator[SameRuns]:
    """Yield stretches without their runs of these commits."""
    for stretch in stretches:
        steady = {index for index in stretch.indices if series.branch.commit_of[index] not in unsteady}
        if steady:
            yield stretch if len(steady) == len(stretch.indices) else stretch.only(steady)


def _segments(stretches: Iterable[SameRuns]) -> Iterator[list[SameRuns]]:
    segment: list[SameRuns] = []
    for stretch in stretches:
        # A number that the last of them lacks may be known of an earlier one: each is compared with all.
        if any(_differ(earlier, stretch) for earlier in segment):
            yield segment
            segment = []
        segment.append(stretch)
    if segment:
        yield segment


def _differ(first: Point | SameRuns, second: Point | SameRuns) -> bool:
    """Whether something differs that is known on both sides."""
    structures = (first.measured.structure, second.measured.structure)
    return (None not in structures and structures[0] != structures[1]) or bool(_numbers(first, second))


def _numbers(first: Point | SameRuns, second: Point | SameRuns) -> dict[str, tuple[float, float]]:
    old, new = first.measured.counts, second.measured.counts
    return {name: (old[name], new[name]) for name in EXACT if name in old and name in new and old[name] != new[name]}


def _change(  # noqa: PLR0913, PLR0917 - what a change is made of
    series: Series,
    before: Point,
    after: Point,
    state: State,
    moved: Mapping[str, tuple[object, object]],
    undone_at: str | None = None,
) -> SeriesChange:
    known = (series.branch.kernels.get(point.measured.structure or "", ()) for point in (before, after))
    old, new = (Counter({kernel.name: kernel.count for kernel in kernels}) for kernels in known)
    return SeriesChange(
        key=series.key,
        before=before,
        after=after,
        numbers=_numbers(before, after),
        came=_counted(new - old) if old else (),
        went=_counted(old - new) if new else (),
        state=state,
        moved=moved,
        undone_at=undone_at,
    )


def _cause(branch: BranchRuns, change: SeriesChange) -> Cause:
    if change.state is State.UNSTEADY:
        return Cause.NONE
    return cause_of(branch, change.before, change.after, change.moved)


def cause_of(branch: BranchRuns, before: Point, after: Point, moved: Mapping[str, tuple[object, object]]) -> Cause:
    """Return the possible cause of a change between two points of a series, beside which this moved."""
    if before.commit == after.commit:
        return Cause.ENVIRONMENT if moved else Cause.NONE
    if moved:
        return Cause.UNDECIDABLE
    if before.measured.source != after.measured.source:
        return Cause.TEST
    between = branch.between(before.commit, after.commit)
    return Cause.COMMIT if between is not None and len(between) == 1 else Cause.RANGE


def somewhere(cause: Cause) -> Cause:
    """Return a cause without how many commits it leaves."""
    return Cause.RANGE if cause is Cause.COMMIT else cause


def cause_within(branch: BranchRuns, cause: Cause, before: str, after: str) -> Cause:
    """Return a cause where the changes of several series leave these commits."""
    commits = branch.between(before, after)
    return Cause.COMMIT if cause is Cause.RANGE and commits is not None and len(commits) == 1 else cause


def _summed(kernels: Iterable[KernelCount]) -> tuple[KernelCount, ...]:
    counts: Counter[str] = Counter()
    for kernel in kernels:
        counts[kernel.name] += kernel.count
    return _counted(counts)


def _counted(counts: Counter[str]) -> tuple[KernelCount, ...]:
    ordered = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return tuple(KernelCount(name, count) for name, count in ordered)

"""Which commits made a test slower or faster, as far as its times can tell.

Times are compared on one machine alone, under the same conditions, and among versions that follow one another.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from enum import StrEnum
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.numbers import middle
from pytest_torchprof.history.changes import BranchEvent, Cause, State, cause_of, cause_within, somewhere
from pytest_torchprof.history.enclosing import Enclosed
from pytest_torchprof.history.lanes import lanes_of
from pytest_torchprof.history.machines import Machines
from pytest_torchprof.history.steps import (
    Step,
    Steps,
    count_needed,
    largest_chance,
    next_chance,
    one_per_process,
    processes_needed,
    steps_of,
    tests_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.points import Point, SameRuns, SeriesKey
    from pytest_torchprof.history.reading import Conditions
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series


_Kind = tuple[str, "Conditions"]


class Launched(StrEnum):
    """Whether the kernels are others after a step of the times."""

    SAME = "same kernels"
    OTHER = "other kernels"
    UNKNOWN = "kernels not known"


class TimeSeries(Struct, frozen=True, kw_only=True):
    """The times of a series on one machine, one for each process, in the order of the commits."""

    series: Series
    machine: str
    """The digest of its GPU, CPU and driver."""
    conditions: Conditions
    """The conditions of untraced times; empty where it is the time that the GPU was busy in a recording."""
    stretches: tuple[SameRuns, ...]
    starts: tuple[int, ...]
    """Which of the values is the first of each stretch."""
    runs: array[int]
    """For each value where its run stands among those of the branch."""
    logs: array[float]
    """The natural logarithms of medians in microseconds."""

    @property
    def key(self) -> SeriesKey:
        """The key that its points share."""
        return self.series.key

    def point(self, at: int) -> Point:
        """Return the point of a value."""
        return self.series.point(self.stretches[bisect_right(self.starts, at) - 1], self.runs[at])


class Segment(Struct, frozen=True, kw_only=True):
    """Times between two steps."""

    first: Point
    last: Point
    count: int
    median_us: float


class TimeStep(Struct, frozen=True, kw_only=True):
    """A series of times at a step."""

    times: TimeSeries
    before: Point
    """The last point that surely, at 95 %, comes before it."""
    after: Point
    """The first that surely comes after it."""
    old_us: float
    new_us: float
    """The medians beside it."""
    share: float
    """By how much longer it takes, as a share of the time before; negative if it is faster."""
    chance: float
    """How probable such a step is anywhere in a series without one, 0..1."""
    launched: Launched
    cause: Cause
    state: State
    undone_at: str | None = None
    """The commit that takes it back."""


class JudgedTimes(Struct, frozen=True, kw_only=True):
    """A series of times with its steps, and what it could not show."""

    times: TimeSeries
    segments: tuple[Segment, ...]
    steps: tuple[TimeStep, ...]
    smallest: float | None
    """The smallest step that it could show, as a share; None where it is too short for any."""
    needed: int
    """After how many processes a large step shows; where it is too short for any, how many it must have itself."""


class TimeEvent(BranchEvent, frozen=True, kw_only=True):
    """Steps of one or several series, in the same direction, that the same commits can have made."""

    steps: tuple[TimeStep, ...]

    @property
    def holds(self) -> bool:
        """Whether the newest code still has it, in one of its series."""
        return any(step.state is State.CONFIRMED for step in self.steps)


def judged_times(branch: BranchRuns, all_series: Iterable[Series]) -> list[JudgedTimes]:
    """Return the times of all series, in their order, with the steps that are more than chance in so many series."""
    machines = Machines(branch.runs)
    all_times = [times for series in all_series for times in _times_of(machines, series)]
    stepped = [steps_of(times.logs) for times in all_times]
    testable = [steps.chance for steps in stepped if tests_of(steps.count)]
    allowed, allowed_next = largest_chance(testable), next_chance(testable)
    return [
        _judged(times, steps.within(allowed), allowed_next) for times, steps in zip(all_times, stepped, strict=True)
    ]


def time_events(branch: BranchRuns, judged: Iterable[JudgedTimes]) -> list[TimeEvent]:
    """Return the steps of all series in the order of their commits; what the same commits can have made is one event.

    Each step is known to lie in a range of commits, and those of an event share what their ranges have in common.
    """
    position = {sha: at for at, sha in enumerate(branch.commits)}
    events: list[Enclosed[TimeStep]] = []
    steps = [step for times in judged for step in times.steps]
    for step in sorted(steps, key=lambda step: (position[step.after.commit], position[step.before.commit])):
        own = Enclosed(_kind(step), position[step.before.commit], position[step.after.commit], [step])
        other = next((event for event in events if event.meets(own)), None)
        if other is None:
            events.append(own)
        else:
            other.narrow(own)
    return [_event(branch, own) for own in sorted(events, key=lambda event: (event.after, event.before))]


def _event(branch: BranchRuns, own: Enclosed[TimeStep]) -> TimeEvent:
    before, after = branch.commits[own.before], branch.commits[own.after]
    first = own.changes[0]
    return TimeEvent(
        cause=cause_within(branch, first.cause, before, after),
        before=before,
        after=after,
        commits=branch.between(before, after),
        moved=first.before.moved(first.after),
        steps=tuple(own.changes),
    )


def _kind(step: TimeStep) -> tuple[object, ...]:
    return somewhere(step.cause), step.share > 0, str(step.before.moved(step.after))


def _times_of(machines: Machines, series: Series) -> list[TimeSeries]:
    """Return the times of a series by machine and conditions, those of versions side by side for themselves."""
    made: list[TimeSeries] = []
    for lane in lanes_of(series):
        parts: dict[_Kind, list[tuple[SameRuns, list[int], list[float]]]] = {}
        for stretch in lane.stretches:
            for kind, (indices, logs) in _by_machine(machines, series, stretch).items():
                parts.setdefault(kind, []).append((stretch, indices, logs))
        made += [_joined(series, *kind, own) for kind, own in parts.items()]
    return made


def _joined(
    series: Series, machine: str, conditions: Conditions, parts: Sequence[tuple[SameRuns, list[int], list[float]]]
) -> TimeSeries:
    runs = array("I", [index for _, indices, _ in parts for index in indices])
    logs = array("d", [value for _, _, values in parts for value in values])
    counts = [len(indices) for _, indices, _ in parts]
    if len(set(runs)) < len(runs):
        # A run that has measured the same twice is still one process.
        counts = [len(set(indices)) for _, indices, _ in parts]
        runs, logs = array("I", dict.fromkeys(runs)), array("d", one_per_process(logs, runs))
    return TimeSeries(
        series=series,
        machine=machine,
        conditions=conditions,
        stretches=tuple(stretch for stretch, _, _ in parts),
        starts=tuple(accumulate(counts[:-1], initial=0)),
        runs=runs,
        logs=logs,
    )


def _by_machine(machines: Machines, series: Series, stretch: SameRuns) -> dict[_Kind, tuple[list[int], list[float]]]:
    """Return the runs of a stretch whose time is known, with its logarithm, by machine and conditions."""
    measured_on = machines[stretch.measured.environment]
    own = set(map(measured_on.__getitem__, stretch.indices))
    if len(own) == 1 and not any(stretch.under) and min(stretch.us) > 0 and max(stretch.us) < math.inf:
        return {(own.pop(), ()): (stretch.indices, list(map(math.log, stretch.us)))}
    made: dict[_Kind, tuple[list[int], list[float]]] = {}
    for index, us, under in zip_longest(stretch.indices, stretch.us, stretch.under, fillvalue=0):
        if 0 < us < math.inf:
            kind = measured_on[index], series.branch.runs[index].times.conditions[under]
            indices, logs = made.setdefault(kind, ([], []))
            indices.append(index)
            logs.append(math.log(us))
    return made


def _judged(times: TimeSeries, steps: Steps, allowed: float) -> JudgedTimes:
    bounds = [0, *(step.at for step in steps.steps), steps.count]
    medians = [middle(times.logs[first:last]) for first, last in pairwise(bounds)]
    smallest = steps.smallest(allowed)
    segments = tuple(
        Segment(first=times.point(first), last=times.point(last - 1), count=last - first, median_us=math.exp(median))
        for (first, last), median in zip(pairwise(bounds), medians, strict=True)
    )
    return JudgedTimes(
        times=times,
        segments=segments,
        steps=tuple(
            _step(times, step, _back(medians[at], medians[at + 2 :], segments[at + 2 :], step))
            for at, step in enumerate(steps.steps)
        ),
        smallest=None if smallest is None else math.expm1(smallest),
        needed=processes_needed(steps.count, allowed) or count_needed(allowed),
    )


def _step(times: TimeSeries, step: Step, undone_at: str | None) -> TimeStep:
    before, after = times.point(step.earliest - 1), times.point(step.latest)
    return TimeStep(
        times=times,
        before=before,
        after=after,
        old_us=math.exp(step.before),
        new_us=math.exp(step.after),
        share=math.expm1(step.after - step.before),
        chance=step.chance,
        launched=_launched(before, after),
        cause=cause_of(times.series.branch, before, after, before.moved(after)),
        state=State.CONFIRMED if undone_at is None else State.UNDONE,
        undone_at=undone_at,
    )


def _back(old: float, later: Sequence[float], segments: Sequence[Segment], step: Step) -> str | None:
    """Return the commit since which times are nearer to what they were before a step than to what it made of them."""
    near = abs(step.after - step.before) / 2
    return next(
        (segment.first.commit for median, segment in zip(later, segments, strict=True) if abs(median - old) < near),
        None,
    )


def _launched(before: Point, after: Point) -> Launched:
    structures = (before.measured.structure, after.measured.structure)
    if None in structures:
        return Launched.UNKNOWN
    return Launched.SAME if structures[0] == structures[1] else Launched.OTHER

"""The changes of a history as ``torchprof history changes --json`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from pytest_torchprof.history.changes import Cause, State  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.history.ci_knows import CiPause  # noqa: TC001 - as above
from pytest_torchprof.history.event_ids import (
    accepted_because,
    change_id,
    event_id,
    remarks_on_changes,
    remarks_on_steps,
    time_accepted_because,
    time_event_id,
)
from pytest_torchprof.history.lacking import ProjectBehind, projects_behind
from pytest_torchprof.history.points import SeriesKey
from pytest_torchprof.history.renamed import OldNameAgain, old_names_again
from pytest_torchprof.history.runs import OrderedBy  # noqa: TC001 - as above
from pytest_torchprof.history.series import all_lacking, all_stopped
from pytest_torchprof.history.times import Launched  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.changes import BranchEvent, HistoryEvent, SeriesChange
    from pytest_torchprof.history.lacking import LackingSeries
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.stopped import StoppedHardware
    from pytest_torchprof.history.times import JudgedTimes, TimeEvent, TimeSeries, TimeStep

SCHEMA: Final = 1
Value = str | int | float | bool | None
"""What a field of an environment may be."""


class ChangeRow(SeriesKey, frozen=True, kw_only=True):
    """A change of one series."""

    id: str
    before: str
    after: str
    state: State
    undone_at: str | None
    numbers: dict[str, tuple[float, float]]


class LackingRow(SeriesKey, frozen=True, kw_only=True):
    """A series without a point of the newest run that was to measure it."""

    id: str
    accepted: str | None
    last: str | None


class SeriesRow(SeriesKey, frozen=True, kw_only=True):
    """A series, and what is missing of it."""

    points: int
    gaps: dict[str, int]
    missing: int
    open_end: bool
    removed_at: str | None


class TimesKey(SeriesKey, frozen=True, kw_only=True):
    """The key of a series of times, which its values share."""

    machine: str
    number: str
    """"time" or "gpu_busy_us"."""
    conditions: dict[str, str | int]


class StepRow(TimesKey, frozen=True, kw_only=True):
    """A step of one series of times."""

    before: str
    after: str
    old_us: float
    new_us: float
    share: float
    chance: float
    kernels: Launched
    state: State
    undone_at: str | None


class SegmentRow(Struct, frozen=True, kw_only=True):
    """The part of a series of times between two steps."""

    first: str
    last: str
    points: int
    median_us: float


class TimesRow(TimesKey, frozen=True, kw_only=True):
    """A series of times, and what it could not show."""

    points: int
    smallest_step: float | None
    runs_needed: int
    segments: tuple[SegmentRow, ...]


class _EventOfCommits(Struct, frozen=True, kw_only=True):
    id: str
    accepted: str | None
    remarks: list[str]
    cause: Cause
    before: str
    after: str
    commits: tuple[str, ...] | None
    moved: dict[str, tuple[Value, Value]]


class EventRow(_EventOfCommits, frozen=True, kw_only=True):
    """Changes of several series that the same commits can have made."""

    came: dict[str, int]
    went: dict[str, int]
    tests: tuple[ChangeRow, ...]


class TimeEventRow(_EventOfCommits, frozen=True, kw_only=True):
    """Steps of several series of times that the same commits can have made."""

    tests: tuple[StepRow, ...]


class StoppedRow(Struct, frozen=True, kw_only=True):
    """A GPU model, or all CPUs, on which the newest runs of a project have measured nothing."""

    id: str
    accepted: str | None
    folder: str
    hardware: str | None
    until: str
    missed_from: str
    runs: int


class BranchChanges(Struct, frozen=True, kw_only=True):
    """The events of a branch with their tests, the steps of its times, and what was judged or is missing."""

    schema: int = SCHEMA
    branch: str
    runs: int
    ordered_by: OrderedBy
    left_out: dict[str, int]
    not_in_git: tuple[str, ...]
    not_pushed: tuple[str, ...]
    ci_pause: CiPause | None
    diverged: tuple[str, ...]
    ahead: tuple[str, ...]
    newest_was_due: bool
    behind: tuple[ProjectBehind, ...]
    events: tuple[EventRow, ...]
    stopped: tuple[StoppedRow, ...]
    lacking: tuple[LackingRow, ...]
    old_names: tuple[OldNameAgain, ...]
    series: tuple[SeriesRow, ...]
    time_events: tuple[TimeEventRow, ...]
    times: tuple[TimesRow, ...]


def changes_in(
    branch: BranchRuns,
    events: Iterable[HistoryEvent],
    all_series: Sequence[Series],
    time_steps: Iterable[TimeEvent],
    judged: Iterable[JudgedTimes],
) -> BranchChanges:
    """Return the events of a branch with their tests, the steps of its times, and what was judged or is missing."""
    notes = branch.notes
    return BranchChanges(
        branch=branch.branch,
        runs=len(branch.runs),
        ordered_by=branch.ordered_by,
        left_out={str(why): count for why, count in branch.left_out.items()},
        not_in_git=branch.not_in_git,
        not_pushed=branch.not_pushed,
        ci_pause=branch.ci_pause,
        diverged=branch.diverged,
        ahead=branch.ahead,
        newest_was_due=branch.newest_was_due,
        behind=tuple(projects_behind(branch)),
        events=tuple(_event(event, notes) for event in events),
        stopped=tuple(_stopped(stopped, notes) for stopped in all_stopped(all_series)),
        lacking=tuple(_lacking(lacking, notes) for lacking in all_lacking(all_series)),
        old_names=tuple(old_names_again(all_series)),
        series=tuple(map(_series, all_series)),
        time_events=tuple(_time_event(event, notes) for event in time_steps),
        times=tuple(map(_times, judged)),
    )


def _series(series: Series) -> SeriesRow:
    return SeriesRow(
        **asdict(series.key),
        points=series.count,
        gaps=dict(series.gaps),
        missing=series.missing,
        open_end=series.open_end,
        removed_at=series.removed_at,
    )


def _lacking(lacking: LackingSeries, notes: Notes) -> LackingRow:
    return LackingRow(
        **asdict(lacking.key),
        id=lacking.id,
        accepted=notes.accepted.get(lacking.id),
        last=None if lacking.last is None else lacking.last.commit,
    )


def _stopped(stopped: StoppedHardware, notes: Notes) -> StoppedRow:
    return StoppedRow(
        id=stopped.id,
        accepted=notes.accepted.get(stopped.id),
        folder=stopped.folder,
        hardware=stopped.hardware,
        until=stopped.until,
        missed_from=stopped.missed_from,
        runs=stopped.runs,
    )


def _event(event: HistoryEvent, notes: Notes) -> EventRow:
    return EventRow(
        id=event_id(event),
        accepted=accepted_because(event, notes),
        remarks=remarks_on_changes(event, notes),
        **_common_fields(event),
        came={kernel.name: kernel.count for kernel in event.came},
        went={kernel.name: kernel.count for kernel in event.went},
        tests=tuple(map(_change, event.changes)),
    )


def _time_event(event: TimeEvent, notes: Notes) -> TimeEventRow:
    return TimeEventRow(
        id=time_event_id(event),
        accepted=time_accepted_because(event, notes),
        remarks=remarks_on_steps(event, notes),
        **_common_fields(event),
        tests=tuple(map(_step, event.steps)),
    )


def _common_fields(event: BranchEvent) -> dict[str, Any]:
    """Return the fields that all events share: the commits that can have made them, and what moved there besides."""
    return {
        "cause": event.cause,
        "before": event.before,
        "after": event.after,
        "commits": event.commits,
        "moved": dict(event.moved),
    }


def _change(change: SeriesChange) -> ChangeRow:
    return ChangeRow(
        **asdict(change.key),
        id=change_id(change),
        before=change.before.commit,
        after=change.after.commit,
        state=change.state,
        undone_at=change.undone_at,
        numbers=dict(change.numbers),
    )


def _step(step: TimeStep) -> StepRow:
    return StepRow(
        **_key(step.times),
        before=step.before.commit,
        after=step.after.commit,
        old_us=step.old_us,
        new_us=step.new_us,
        share=step.share,
        chance=step.chance,
        kernels=step.launched,
        state=step.state,
        undone_at=step.undone_at,
    )


def _times(judged: JudgedTimes) -> TimesRow:
    segments = (
        SegmentRow(
            first=segment.first.commit, last=segment.last.commit, points=segment.count, median_us=segment.median_us
        )
        for segment in judged.segments
    )
    return TimesRow(
        **_key(judged.times),
        points=len(judged.times.runs),
        smallest_step=judged.smallest,
        runs_needed=judged.needed,
        segments=tuple(segments),
    )


def _key(times: TimeSeries) -> dict[str, Any]:
    number = "time" if times.conditions else "gpu_busy_us"
    return {**asdict(times.key), "machine": times.machine, "number": number, "conditions": dict(times.conditions)}

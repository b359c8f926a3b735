"""The changes of a history as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from msgspec.structs import asdict

from pytest_torchprof.history.event_ids import (
    accepted_because,
    change_id,
    event_id,
    remarks_on_changes,
    remarks_on_steps,
    time_accepted_because,
    time_event_id,
)
from pytest_torchprof.history.lacking import projects_behind
from pytest_torchprof.history.renamed import old_names_again
from pytest_torchprof.history.series import all_lacking, all_stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.changes import HistoryEvent, SeriesChange
    from pytest_torchprof.history.lacking import LackingSeries
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.stopped import StoppedHardware
    from pytest_torchprof.history.times import JudgedTimes, TimeEvent, TimeSeries, TimeStep

SCHEMA: Final = 1


def changes_json(
    branch: BranchRuns,
    events: Iterable[HistoryEvent],
    all_series: Sequence[Series],
    time_steps: Iterable[TimeEvent],
    judged: Iterable[JudgedTimes],
) -> dict[str, Any]:
    """Return the events of a branch with their tests, the steps of its times, and what was judged or is missing."""
    return {
        "schema": SCHEMA,
        "branch": branch.branch,
        "runs": len(branch.runs),
        "ordered_by": str(branch.ordered_by),
        "left_out": {str(why): count for why, count in branch.left_out.items()},
        "not_in_git": branch.not_in_git,
        "not_pushed": branch.not_pushed,
        "ci_pause": None if branch.ci_pause is None else to_builtins(branch.ci_pause),
        "diverged": branch.diverged,
        "ahead": branch.ahead,
        "newest_was_due": branch.newest_was_due,
        "behind": to_builtins(projects_behind(branch)),
        "events": [_event(event, branch.notes) for event in events],
        "stopped": [_stopped(stopped, branch.notes) for stopped in all_stopped(all_series)],
        "lacking": [_lacking(lacking, branch.notes) for lacking in all_lacking(all_series)],
        "old_names": to_builtins(old_names_again(all_series)),
        "series": [
            {
                **asdict(series.key),
                "points": series.count,
                "gaps": dict(series.gaps),
                "missing": series.missing,
                "open_end": series.open_end,
                "removed_at": series.removed_at,
            }
            for series in all_series
        ],
        "time_events": [_time_event(event, branch.notes) for event in time_steps],
        "times": [
            {
                **_times(own.times),
                "points": len(own.times.runs),
                "smallest_step": own.smallest,
                "runs_needed": own.needed,
                "segments": [
                    {
                        "first": segment.first.commit,
                        "last": segment.last.commit,
                        "points": segment.count,
                        "median_us": segment.median_us,
                    }
                    for segment in own.segments
                ],
            }
            for own in judged
        ],
    }


def _lacking(lacking: LackingSeries, notes: Notes) -> dict[str, Any]:
    return {
        **asdict(lacking.key),
        "id": lacking.id,
        "accepted": notes.accepted.get(lacking.id),
        "last": None if lacking.last is None else lacking.last.commit,
    }


def _stopped(stopped: StoppedHardware, notes: Notes) -> dict[str, Any]:
    return {
        "id": stopped.id,
        "accepted": notes.accepted.get(stopped.id),
        "folder": stopped.folder,
        "hardware": stopped.hardware,
        "until": stopped.until,
        "missed_from": stopped.missed_from,
        "runs": stopped.runs,
    }


def _event(event: HistoryEvent, notes: Notes) -> dict[str, Any]:
    return {
        "id": event_id(event),
        "accepted": accepted_because(event, notes),
        "remarks": remarks_on_changes(event, notes),
        "cause": str(event.cause),
        "before": event.before,
        "after": event.after,
        "commits": event.commits,
        "moved": {name: list(values) for name, values in event.moved.items()},
        "came": {kernel.name: kernel.count for kernel in event.came},
        "went": {kernel.name: kernel.count for kernel in event.went},
        "tests": [_change(change) for change in event.changes],
    }


def _time_event(event: TimeEvent, notes: Notes) -> dict[str, Any]:
    return {
        "id": time_event_id(event),
        "accepted": time_accepted_because(event, notes),
        "remarks": remarks_on_steps(event, notes),
        "cause": str(event.cause),
        "before": event.before,
        "after": event.after,
        "commits": event.commits,
        "moved": {name: list(values) for name, values in event.moved.items()},
        "tests": [_time_step(step) for step in event.steps],
    }


def _time_step(step: TimeStep) -> dict[str, Any]:
    return {
        **_times(step.times),
        "before": step.before.commit,
        "after": step.after.commit,
        "old_us": step.old_us,
        "new_us": step.new_us,
        "share": step.share,
        "chance": step.chance,
        "kernels": str(step.launched),
        "state": str(step.state),
        "undone_at": step.undone_at,
    }


def _times(times: TimeSeries) -> dict[str, Any]:
    number = "time" if times.conditions else "gpu_busy_us"
    return {**asdict(times.key), "machine": times.machine, "number": number, "conditions": dict(times.conditions)}


def _change(change: SeriesChange) -> dict[str, Any]:
    plain: dict[str, Any] = to_builtins(
        {
            "id": change_id(change),
            **asdict(change.key),
            "before": change.before.commit,
            "after": change.after.commit,
            "state": str(change.state),
            "undone_at": change.undone_at,
            "numbers": {name: list(values) for name, values in change.numbers.items()},
        }
    )
    return plain

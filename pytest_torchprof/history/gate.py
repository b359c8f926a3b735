"""The gate of a history: whether what changed holds, whether nothing did, or whether that cannot be told."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_torchprof.history.changes import State
from pytest_torchprof.history.event_ids import accepted_because, time_accepted_because
from pytest_torchprof.history.runs import OrderedBy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from pytest_torchprof.history.changes import HistoryEvent
    from pytest_torchprof.history.points import Point
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.times import JudgedTimes, TimeEvent


class GateVerdict(StrEnum):
    """The verdicts of a gate on a branch."""

    CHANGED = "changed"
    """Something changed, holds, and is not accepted."""
    UNKNOWN = "unknown"
    """It cannot be told."""
    UNCHANGED = "unchanged"


def joint_verdict(verdicts: Collection[GateVerdict]) -> GateVerdict:
    """Return the joint verdict of several gates: a change goes before an unknown verdict."""
    return next((own for own in (GateVerdict.CHANGED, GateVerdict.UNKNOWN) if own in verdicts), GateVerdict.UNCHANGED)


def verdict_on_counts(branch: BranchRuns, events: Iterable[HistoryEvent], *, lacking: bool) -> GateVerdict:
    """Return the verdict on changes of counts; ``lacking``: whether the newest commit was not measured in full."""
    unknown = [event for event in events if accepted_because(event, branch.notes) is None]
    states = [(event.holds, change.state) for event in unknown for change in event.changes]
    if any(holds for holds, _ in states):
        return GateVerdict.CHANGED
    unsure = any(state is State.UNSTEADY for _, state in states) or lacking
    return GateVerdict.UNKNOWN if unsure or is_unsure(branch) else GateVerdict.UNCHANGED


def verdict_on_times(
    branch: BranchRuns, judged: Iterable[JudgedTimes], steps: Iterable[TimeEvent], *, lacking: bool
) -> GateVerdict:
    """Return the verdict on steps of times: none can be told as long as every series is too short for any."""
    if any(event.holds and time_accepted_because(event, branch.notes) is None for event in steps):
        return GateVerdict.CHANGED
    shown = any(times.smallest is not None for times in judged)
    sure = shown and not lacking
    return GateVerdict.UNKNOWN if not sure or is_unsure(branch) else GateVerdict.UNCHANGED


def is_lacking(series: Series, since: datetime | None) -> bool:
    """Whether its newest commit was not measured; a loss that was due before the day that is asked for is no news."""
    if series.stopped is not None and since is not None and series.stopped.missed_date < since:
        return series.lacks_newest
    return series.newest_is_lacking


def is_unsure(branch: BranchRuns) -> bool:
    """Whether the runs of a branch, their order, or its newest commit are not known in full."""
    is_ordered = branch.ordered_by is not OrderedBy.DATES and not branch.not_in_git
    is_measured = bool(branch.runs) and branch.ci_pause is None and not branch.newest_was_due
    return not is_ordered or not is_measured or branch.refused > 0


def is_since(point: Point, since: datetime | None) -> bool:
    """Whether a point is one of this day or later."""
    commit = point.run.commit
    return since is None or commit is None or commit.date >= since

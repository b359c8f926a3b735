"""What a history tells of times, as lines: the steps of a branch, one test's times, and how small a step they show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME, middle
from pytest_torchprof.history.changes import Cause
from pytest_torchprof.history.event_ids import SHOWN, remarks_on_steps, time_accepted_because, time_event_id
from pytest_torchprof.history.texts import bisect_line, cause_text, date_of, sparkline
from pytest_torchprof.history.times import Launched
from pytest_torchprof.text import counted, printable, show_share, show_us, wrapped
from pytest_torchprof.text.tables import Column, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.times import JudgedTimes, Segment, TimeEvent, TimeSeries, TimeStep

_INDENT: Final = "    "
_DIGITS: Final = 8
"""How much of a machine's digest is shown."""


def time_event_lines(event: TimeEvent, notes: Notes, width: int, *, whole: bool = True) -> list[str]:
    """Return an event: the commits that can have made it, and the series that it made slower or faster.

    ``whole``: whether it has the steps of all series, without which its id is not known.
    """
    cause = f"{_cause(event)}  [{time_event_id(event)[:SHOWN]}]" if whole else _cause(event)
    lines = wrapped(f"{date_of(event.steps[0].after)}  {cause}", _INDENT, first="", width=width)
    for step in event.steps:
        lines += wrapped(_step(step), f"{_INDENT}  ", first=_INDENT, width=width)
    accepted = time_accepted_because(event, notes)
    remarks = [f"known: {accepted}"] if accepted is not None else []
    remarks += [f"note: {text}" for text in remarks_on_steps(event, notes)]
    remarks += [f"note: {text}" for sha in event.commits or (event.after,) for text in notes.remarks.get(sha, ())]
    for remark in remarks:
        lines += wrapped(remark, f"{_INDENT}  ", first=_INDENT, width=width)
    lines = [printable(line) for line in lines]
    if event.cause is Cause.RANGE and all(step.launched is Launched.OTHER for step in event.steps):
        lines.append(bisect_line(event, event.steps[0].times.key))
    return lines


def time_census_lines(judged: Sequence[JudgedTimes], width: int) -> list[str]:
    """Return how many times were judged, and how small a step of them could be shown."""
    if not judged:
        return ["times: none are known"]
    points = sum(len(times.times.runs) for times in judged)
    known = sorted(times.smallest for times in judged if times.smallest is not None)
    lacking = len(judged) - len(known)
    parts = [f"times: {counted(points, 'measurement')} in {len(judged)} series"]
    if known:
        from_to = f"{_at_least(known[0])} to {_at_least(known[-1])}, {_at_least(middle(known))} in the middle"
        parts.append(
            f"the smallest step that a series could show is {_at_least(known[0]) if len(known) == 1 else from_to}"
        )
    if lacking:
        parts.append(
            f"{lacking} series are too short to show any" if lacking > 1 else "1 series is too short to show any"
        )
    return wrapped("; ".join(parts), "  ", first="", width=width)


def time_log_lines(judged: JudgedTimes, width: int) -> list[str]:
    """Return the times of a series on one machine: drawn, a row for each stretch between steps, what could be shown."""
    times = judged.times
    us = [math.exp(value) for value in times.logs]
    title = _title(times)
    columns = [
        Column("commits", _commits, "left"),
        Column("date", lambda segment: date_of(segment.first), "left", leaves=2),
        Column("runs", lambda segment: str(segment.count)),
        Column(title, lambda segment: show_us(segment.median_us)),
    ]
    drawn = f"{title} {sparkline(us)}  {show_us(min(us))} to {show_us(max(us))}, on {_machine(times)}"
    lines = wrapped(drawn, "  ", first="", width=width)
    return [printable(line) for line in [*lines, *table_lines(judged.segments, columns, width), could_show(judged)]]


def could_show(judged: JudgedTimes) -> str:
    """Return how small a step the times of a series could show."""
    if judged.smallest is None:
        return f"no step could be shown yet: {len(judged.times.runs)} of at least {judged.needed} runs"
    return f"smallest step that could be shown: {_at_least(judged.smallest)}; a large one after {judged.needed} runs"


def _cause(event: TimeEvent) -> str:
    if event.cause is Cause.NONE:
        return f"{event.after[:7]}: between runs of this commit, and nothing that is recorded changed"
    return cause_text(event)


def _step(step: TimeStep) -> str:
    times = step.times
    moved = f"{_title(times)} {show_us(step.old_us)} -> {show_us(step.new_us)} ({_signed(step.share)})"
    undone = f"; undone at {step.undone_at[:7]}" if step.undone_at else ""
    return f"{times.key.name} ({times.key.hardware}, {_machine(times)}): {moved}, {step.launched}{undone}"


def _title(times: TimeSeries) -> str:
    """Return what was timed: the untraced code, or the GPU's work in a recording."""
    return "time" if times.conditions else BY_NAME["gpu_busy_us"].title_on(gpu=times.key.device != "cpu")


def _machine(times: TimeSeries) -> str:
    return f"machine {times.machine[:_DIGITS]}"


def _commits(segment: Segment) -> str:
    first, last = segment.first.commit[:7], segment.last.commit[:7]
    return first if first == last else f"{first}..{last}"


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{show_share(share)}"


def _at_least(share: float) -> str:
    """Return a share of which nothing below a tenth of a percent is told."""
    return show_share(share) if share >= 0.001 else "below 0.1%"

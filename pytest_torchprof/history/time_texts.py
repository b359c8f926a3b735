"""The texts of a history on times, as lines: the steps of a branch, one test's times, and the least step they show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.numbers import BY_NAME, middle
from pytest_torchprof.history.changes import Cause
from pytest_torchprof.history.event_ids import (
    SHOWN,
    remarks_on_steps,
    step_accepted_because,
    time_accepted_because,
    time_event_id,
)
from pytest_torchprof.history.texts import bisect_line, cause_text, date_of, sparkline, with_remarks
from pytest_torchprof.history.times import Launched
from pytest_torchprof.text import counted, printable
from pytest_torchprof.text.tables import Column, table_lines
from pytest_torchprof.text.units import show_share, show_us
from pytest_torchprof.text.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.points import Point
    from pytest_torchprof.history.times import JudgedTimes, Segment, TimeEvent, TimeSeries, TimeStep

_INDENT: Final = "    "
_DIGITS: Final = 8
"""How much of a machine's digest is shown."""


def time_event_lines(event: TimeEvent, notes: Notes, width: int, *, whole: bool = True) -> list[str]:
    """Return an event: the commits that can have made it, and the series that it made slower or faster.

    ``whole``: whether it has the steps of all series, without which its id is not known.
    """
    cause = time_cause_text(event)
    cause = f"{cause}  [{time_event_id(event)[:SHOWN]}]" if whole else cause
    lines = wrapped(f"{date_of(event.steps[0].after)}  {cause}", _INDENT, first="", width=width)
    for step in step_texts(event, notes):
        lines += wrapped(step, f"{_INDENT}  ", first=_INDENT, width=width)
    for word, text in time_remarks_on(event, notes):
        lines += wrapped(f"{word}: {text}", f"{_INDENT}  ", first=_INDENT, width=width)
    lines = [printable(line) for line in lines]
    bisects = time_bisect_line(event)
    return lines if bisects is None else [*lines, bisects]


def time_remarks_on(event: TimeEvent, notes: Notes) -> list[tuple[str, str]]:
    """Return the remarks on an event and on the commits that can have made it."""
    return with_remarks(time_accepted_because(event, notes), remarks_on_steps(event, notes), event, notes)


def time_bisect_line(event: TimeEvent) -> str | None:
    """Return the command that finds the commit of an event; None where there is no such command.

    What can be looked for is a change of kernels.
    """
    looked_for = event.cause is Cause.RANGE and all(step.launched is Launched.OTHER for step in event.steps)
    return bisect_line(event, event.steps[0].times.key) if looked_for else None


def time_census_lines(judged: Sequence[JudgedTimes], width: int) -> list[str]:
    """Return how many times were judged, and how small a step of them could be shown."""
    return wrapped(time_census_text(judged), "  ", first="", width=width)


def time_census_text(judged: Sequence[JudgedTimes]) -> str:
    """Return how many times were judged, and how small a step of them could be shown, as a paragraph."""
    if not judged:
        return "times: none are known"
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
    return "; ".join(parts)


def time_log_lines(judged: JudgedTimes, width: int, is_shown: Callable[[Point], bool]) -> list[str]:
    """Return the times of a series on one machine: drawn, a row for each stretch between steps, what could be shown.

    Stretches are told whole if the last of their points is shown; there are no lines where none is.
    """
    times = judged.times
    us = [math.exp(value) for at, value in enumerate(times.logs) if is_shown(times.point(at))]
    segments = [segment for segment in judged.segments if is_shown(segment.last)]
    if not us:
        return []
    title = title_of(times)
    columns = [
        Column("commits", _commits, "left"),
        Column("date", lambda segment: date_of(segment.first), "left", leaves=2),
        Column("runs", lambda segment: str(segment.count)),
        Column(title, lambda segment: show_us(segment.median_us)),
    ]
    drawn = f"{title} {sparkline(us)}  {show_us(min(us))} to {show_us(max(us))}, on {machine_of(times)}"
    lines = wrapped(drawn, "  ", first="", width=width)
    return [printable(line) for line in [*lines, *table_lines(segments, columns, width), could_show(judged)]]


def could_show(judged: JudgedTimes) -> str:
    """Return how small a step the times of a series could show."""
    if judged.smallest is None:
        return f"no step could be shown yet: {len(judged.times.runs)} of at least {judged.needed} runs"
    return f"smallest step that could be shown: {_at_least(judged.smallest)}; a large one after {judged.needed} runs"


def time_cause_text(event: TimeEvent) -> str:
    """Return the possible cause of an event, with its commits."""
    if event.cause is Cause.NONE:
        return f"{event.after[:7]}: between runs of this commit, and nothing that is recorded changed"
    return cause_text(event)


def step_texts(event: TimeEvent, notes: Notes) -> list[str]:
    """Return the step of each series at an event; where some are accepted, the reason stands beside each of these."""
    all_known = time_accepted_because(event, notes) is not None
    reasons = [None if all_known else step_accepted_because(step, notes) for step in event.steps]
    return [
        f"{_step(step)}{'' if why is None else f'; known: {why}'}"
        for step, why in zip(event.steps, reasons, strict=True)
    ]


def _step(step: TimeStep) -> str:
    times = step.times
    return f"{times.key.name} ({times.key.hardware}, {machine_of(times)}): {title_of(times)} {moved_text(step)}"


def moved_text(step: TimeStep) -> str:
    """Return by how much a series took longer from a step on, and whether its kernels are others."""
    moved = f"{show_us(step.old_us)} -> {show_us(step.new_us)} ({_signed(step.share)})"
    return f"{moved}, {step.launched}{f'; undone at {step.undone_at[:7]}' if step.undone_at else ''}"


def title_of(times: TimeSeries) -> str:
    """Return the title of the times: of the untraced code, or of the GPU's work in a recording."""
    return "time" if times.conditions else BY_NAME["gpu_busy_us"].title_on(gpu=times.key.device != "cpu")


def machine_of(times: TimeSeries) -> str:
    """Return the name of its machine."""
    return f"machine {times.machine[:_DIGITS]}"


def _commits(segment: Segment) -> str:
    first, last = segment.first.commit[:7], segment.last.commit[:7]
    return first if first == last else f"{first}..{last}"


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{show_share(share)}"


def _at_least(share: float) -> str:
    """Return a share of which nothing below a tenth of a percent is told."""
    return show_share(share) if share >= 0.001 else "below 0.1%"

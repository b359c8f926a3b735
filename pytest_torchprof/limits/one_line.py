"""A failure in one line: for `-q`, and for reports with room for no more."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.limits.evidence import FindingLine, GraphBreakLine, WhyNothingIsCompiled, WorkRow
from pytest_torchprof.limits.failure_lines import (
    causes_first,
    first_moved,
    gist,
    moved_kinds,
    moved_lines,
    named_first,
    shown_lines,
    with_room,
)
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.limit_line import measured_text, says_more
from pytest_torchprof.limits.screen import fitting
from pytest_torchprof.text import first_line, path_from_here, printable, reason_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.limits.failure_lines import FailureLine
    from pytest_torchprof.limits.limit import Verdict
    from pytest_torchprof.limits.screen import Screen

_MOST_BELOW = 6
"""The most lines below the line on what fails, of all that came, went or changed."""


def brief_text(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...], screen: Screen) -> str:
    """Return the line on what fails, and below it what else came, went or changed against a baseline, and what to do.

    It is the line of the short summary: wrapped where the width is known, whole in a file, where one searches for it.
    """
    moved = causes_first(moved_lines(others))[named_first(moved_lines(others)) :]
    shown = [shown_lines([_with_place(line)], screen) for line in moved]
    below, left_out = fitting(shown, _MOST_BELOW), []
    if len(below) < len(moved):
        fit = with_room(moved, shown, _MOST_BELOW)
        below, left_out = [shown[at] for at in fit], [line for at, line in enumerate(moved) if at not in fit]
    left = screen.left_out(len(left_out), "line", indent=2, which=moved_kinds(left_out))
    remedy = [line for line in others[1:] if line.about == "remedy"]
    head = screen.broken(in_one_line(verdicts, others))
    return "\n".join([*head, *chain.from_iterable(below), *left, *shown_lines(remedy, screen)])


def _with_place(line: FailureLine) -> FailureLine:
    """Return a line of a kernel with the place at which it is launched, which elsewhere stands below it."""
    return line._replace(text=f"{line.text} at {line.file_line}") if line.file_line else line


def in_one_line(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...]) -> str:
    """Return one line on what fails, for reports that have no room for more: what is new, or else the most frequent."""
    moved = moved_lines(others)
    cause = first_moved(moved)
    if not verdicts:
        return ": ".join(filter(None, [gist(others[0]), cause or others[0].numbers]))
    # What came or went against a baseline is the cause of all: then the limits keep their order.
    first, *more = sorted(verdicts, key=lambda own: (not cause and not own.has_known_cause, own.status != MISSED))
    is_missed = first.status == MISSED
    seen = reason_line(replace(first, in_step=None).text) if is_missed else measured_text(first)
    is_of_break = isinstance(next(iter(first.evidence), None), GraphBreakLine)
    cause = (f"; {cause}" if cause and not is_of_break else _brief_cause(first)) if is_missed else ""
    also = "".join(
        f"; {word}: {', '.join(names)}"
        for word, names in (
            ("also", [verdict.name for verdict in more if verdict.status == first.status]),
            ("not measured", [verdict.name for verdict in more if verdict.status != first.status]),
        )
        if names
    )
    worse = f"; {gist(others[0])}" if others and not moved else ""
    return f"{first.written}: {seen}{cause}{also}{worse}"


def _brief_cause(verdict: Verdict) -> str:
    """Return the cause of a missed limit: the largest row of work, else the first line about it."""
    row = verdict.culprit
    if row is not None and not says_more(row, verdict):
        return ""
    if row is not None:
        return f"; {_rank_of(row, verdict)}{_brief_row(row)}"
    first = next(iter(verdict.evidence), None)
    if isinstance(first, FindingLine):  # Its code precedes it.
        return f"; {printable(first_line(first.finding.message_with_place))}"
    # What usually is the cause fills a paragraph.
    return (
        ""
        if first is None or isinstance(first, WorkRow | WhyNothingIsCompiled)
        else f"; {first_line(first.text.strip())}"
    )


def _rank_of(row: WorkRow, verdict: Verdict) -> str:
    """Return the rank of the row among those that missed the limit; empty if it is the only one."""
    if sum(not other.also_ran for other in verdict.rows) == 1:
        return ""
    if verdict.unit == "us":
        return "longest: "
    if row.count > 1:
        return "most: "
    return "earliest: " if verdict.is_of_several else "first: "


def _brief_row(row: WorkRow) -> str:
    place = f", {path_from_here(row.line[0])}:{row.line[1]}" if row.line is not None else ""
    return f"{f'{row.count} x ' if row.count > 1 else ''}{row.name}{place}"

"""A failure in one line: for `-q`, and for reports with room for no more."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.limits.evidence import FindingLine, GraphBreakLine, WorkRow
from pytest_torchprof.limits.failure_lines import (
    causes_first,
    first_moved,
    gist,
    has_details,
    moved_lines,
    shown_lines,
    unbroken,
    with_colon,
    with_numbers_after,
)
from pytest_torchprof.limits.limit import MISSED
from pytest_torchprof.limits.limit_line import measured_text, says_more
from pytest_torchprof.limits.screen import fitting
from pytest_torchprof.text import first_line, reason_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.limits.failure_lines import FailureLine
    from pytest_torchprof.limits.limit import Verdict
    from pytest_torchprof.limits.screen import Screen


def brief_text(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...], screen: Screen) -> str:
    """Return a line on what fails, and below it what came, went or changed against a baseline, and what to do."""
    moved = moved_lines(others)
    remedy = [line for line in others[1:] if line.about == "remedy"]
    if verdicts:
        first, more = verdicts[0], [verdict.name for verdict in verdicts[1:]]
        also = f"; also: {', '.join(more)}" if more else ""
        worse = f"; {with_numbers_after(others[0])}" if others else ""
        head = f"{first.written}: {measured_text(first)}{_brief_cause(first)}{also}{worse}"
    else:
        # The details after the headline's colon: a kernel that came is more likely to be the cause than one that went.
        first_detail = [*causes_first(moved), *others[1:]][:1]
        about = first_detail if has_details(others) else []
        moved = [line for line in moved if line not in about]
        headline = unbroken(with_colon(others)[0])
        between = "; " if others[0].numbers else " "
        head = reason_line(between.join([headline, *(line.text.strip() for line in about)]))
    below = fitting([shown_lines([line], screen) for line in moved], screen.lines)
    left = screen.left_out(len(moved) - len(below), "line", indent=2)
    return "\n".join([*screen.broken(head), *chain.from_iterable(below), *left, *shown_lines(remedy, screen)])


def in_one_line(verdicts: Sequence[Verdict], others: tuple[FailureLine, ...]) -> str:
    """Return one line on what fails, for reports with room for no more: what is new, or what there is most of."""
    moved = moved_lines(others)
    cause = first_moved(moved)
    if not verdicts:
        return ": ".join(filter(None, [gist(others[0]), cause or others[0].numbers]))
    first, more = verdicts[0], [verdict.name for verdict in verdicts[1:]]
    is_missed = first.status == MISSED
    seen = reason_line(replace(first, in_step=None).text) if is_missed else measured_text(first)
    is_of_break = isinstance(next(iter(first.evidence), None), GraphBreakLine)
    cause = (f"; {cause}" if cause and not is_of_break else _brief_cause(first)) if is_missed else ""
    also = f"; also: {', '.join(more)}" if more else ""
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
        return f"; {first_line(first.finding.message)}"
    return "" if first is None or isinstance(first, WorkRow) else f"; {first_line(first.text.strip())}"


def _rank_of(row: WorkRow, verdict: Verdict) -> str:
    """Return the rank of the row among those that missed the limit; empty if it is the only one."""
    if sum(not other.also_ran for other in verdict.rows) == 1:
        return ""
    if verdict.unit == "us":
        return "longest: "
    return "first: " if row.count == 1 else "most: "


def _brief_row(row: WorkRow) -> str:
    place = f" ({row.places[0][1]})" if row.places else ""
    return f"{f'{row.count} x ' if row.count > 1 else ''}{row.name}{place}"

"""The text of a failure: which limits, what was seen instead, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.limits.bearing import bearing_on
from pytest_torchprof.limits.verdict import MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.profile import Profile

LONGEST_REASON = 600
WIDTH = 32
"""Column at which what was seen starts, where the limit leaves room for it."""


def failure_text(failed: Iterable[Verdict], profile: Profile | None, *, also: Iterable[str] = ()) -> str:
    """Return the text for limits that do not hold; lines that several share are printed once."""
    verdicts = tuple(failed)
    lines = [_headline(verdicts, profile), ""]
    shown: set[tuple[str, ...]] = set()
    for verdict in verdicts:
        lines.append(one_line(verdict))
        if verdict.details and verdict.details not in shown:
            shown.add(verdict.details)
            lines.extend(f"      {printable_line(line)}" for line in verdict.details)
        if verdict.status == MISSED and profile is not None:
            lines.extend(f"      why: {printable_line(line)}" for line in bearing_on(verdict.limit, profile.findings))
    lines += ["", *map(printable_line, also)] if also else []
    return "\n".join([*lines, "", *(f"  do: {line}" for line in _what_to_do(verdicts))])


def _headline(verdicts: tuple[Verdict, ...], profile: Profile | None) -> str:
    parts = []
    for status in (MISSED, NOT_MEASURED):
        names = [verdict.limit for verdict in verdicts if verdict.status == status]
        if names:
            parts.append(f"{len(names)} limit{'s' * (len(names) != 1)} {status}: {', '.join(names)}")
    steps = len(profile.trace.steps) if profile is not None else 1
    return "; ".join(parts) + (f" (worst of {steps} steps)" if steps > 1 else "")


def one_line(verdict: Verdict) -> str:
    """Return the limit as it was written, and what was seen."""
    limit = f"  {verdict.limit}={printable_line(verdict.expected)}"
    measured = printable_line(verdict.measured, LONGEST_REASON)
    said = f"not measured: {measured}" if verdict.status == NOT_MEASURED else measured
    if len(limit) >= WIDTH:
        return f"{limit}\n{' ' * 6}{said}"
    return f"{limit:<{WIDTH}}{said}"


def _what_to_do(verdicts: tuple[Verdict, ...]) -> list[str]:
    todo = []
    if any(verdict.status == MISSED for verdict in verdicts):
        todo.append("look at the kernels above and change the code, or change the limit where the new number is meant")
    if any(verdict.status == NOT_MEASURED for verdict in verdicts):
        todo.append("see docs/messages.md#not-measured: what was not measured never counts as kept")
    return todo

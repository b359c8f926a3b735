"""A limit in words: as it was written, and what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.limits.evidence import WorkRow
from pytest_torchprof.limits.limit import NOT_MEASURED
from pytest_torchprof.limits.screen import INDENT
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.text import reason_line

if TYPE_CHECKING:
    from pytest_torchprof.limits.evidence import AnyEvidence
    from pytest_torchprof.limits.limit import Verdict

COLUMN = 32
"""The column at which the measured value starts, if the limit leaves room for it."""

_LEAST_BESIDE = 20
"""With fewer columns than these what was seen stands below its limit."""


def limit_line(verdict: Verdict, columns: int | None = None) -> str:
    """Return the limit as it was written, and what was seen: beside it, or below it where there is no room."""
    limit = f"  {verdict.written}"
    if len(limit) >= COLUMN or (columns is not None and columns - COLUMN < _LEAST_BESIDE):
        return f"{limit}\n{' ' * INDENT}{measured_text(verdict)}"
    return f"{limit:<{COLUMN}}{measured_text(verdict)}"


def limit_in_one_line(verdict: Verdict) -> str:
    """Return the limit as it was written and what was seen, in one line however long it is."""
    return f"{verdict.written}: {measured_text(verdict)}"


def measured_text(verdict: Verdict) -> str:
    """Return the measured value in words, or the reason why there is none."""
    measured = reason_line(verdict.text)
    return unmeasured_text(measured) if verdict.status == NOT_MEASURED else measured


def says_more(fact: AnyEvidence, verdict: Verdict) -> bool:
    """Return whether a row says more than how often an operator ran that what was seen names already."""
    if not isinstance(fact, WorkRow) or verdict.evidence != (fact,):
        return True
    is_named = any(isinstance(part, ForbiddenMatches) and part.pattern == fact.name for part in verdict.seen)
    return bool(fact.places or fact.note or fact.time_us is not None or not is_named)

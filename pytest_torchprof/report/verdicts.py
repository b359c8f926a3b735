"""Verdicts on limits as JSON values, for programs that act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED
from pytest_torchprof.limits.remedies import remedies_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits import Verdict
    from pytest_torchprof.reasons.reason import Reason

SCHEMA: Final = 1


def no_finding(_: str) -> Sequence[Finding]:
    """Return that no finding is known to explain a limit."""
    return ()


def words_for(verdict: Verdict, why: Callable[[str], Sequence[Finding]] = no_finding) -> dict[str, Any]:
    """Return the words for a verdict's facts, with the code of its reason and what to do where it does not hold.

    ``why`` returns the findings that may explain why the limit of a name was missed, as for `remedies_of`.
    """
    return {
        "name": verdict.limit,
        "measured": measured_of(verdict),
        "message": verdict.text,
        "details": evidence_lines(verdict),
        **_about(verdict.reason),
        **({"remedy": "; ".join(remedies_of([verdict], why))} if verdict.status == MISSED else {}),
    }


def measured_of(verdict: Verdict) -> float | str | None:
    """Return the measured value, in words where it is no number; None where nothing was measured."""
    if verdict.status == NOT_MEASURED:
        return None
    return verdict.text if verdict.number is None else verdict.number


def evidence_lines(verdict: Verdict) -> list[str]:
    """Return the facts to act on, a line each."""
    return [line.strip() for evidence in verdict.evidence for line in evidence.lines]


def verdicts_json(
    verdicts: Collection[Verdict],
    reason: Reason | None = None,
    why: Callable[[str], Sequence[Finding]] = no_finding,
) -> dict[str, Any]:
    """Return verdicts with their outcomes.

    ``reason``: why nothing is measured, where that is so. ``why``: as for `words_for`.
    """
    statuses = {verdict.status for verdict in verdicts}
    if reason is not None or not verdicts:
        statuses.add(NOT_MEASURED)
    return {
        "schema": SCHEMA,
        "status": next((status for status in (MISSED, NOT_MEASURED) if status in statuses), HOLDS),
        "message": None if reason is None else reason.sentence,
        **_about(reason),
        "limits": [{**to_builtins(verdict, enc_hook=str), **words_for(verdict, why)} for verdict in verdicts],
    }


def _about(reason: Reason | None) -> dict[str, str | None]:
    code = None if reason is None else reason.code
    return {"code": None if code is None else str(code), "remedy": (reason.remedy or None) if reason else None}

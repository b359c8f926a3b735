"""Verdicts on limits as JSON has them, for programs that act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED
from pytest_torchprof.limits.evidence import AnyEvidence  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.limits.limit import OnRanks, Status, Unit  # noqa: TC001 - as above
from pytest_torchprof.limits.remedies import remedies_of
from pytest_torchprof.limits.seen import AnySeen  # noqa: TC001 - as above
from pytest_torchprof.reasons import decoding  # noqa: TC001 - as above
from pytest_torchprof.reasons.step_title import StepTitle  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits import Verdict
    from pytest_torchprof.reasons.reason import Reason

SCHEMA: Final = 1


def no_finding(_: str) -> Sequence[Finding]:
    """Return that no finding is known to explain a limit."""
    return ()


class VerdictJson(Struct, frozen=True, kw_only=True):
    """The fields of a limit's verdict, in its order, and the words for them, with what to do where it does not hold."""

    limit: str
    range: str | None
    expected: str
    bound: float | None
    status: Status
    seen: tuple[AnySeen, ...]
    number: float | None
    unit: Unit | None
    reason: decoding.AnyReason | None
    step: str | None
    in_step: StepTitle | str | None
    not_counted: tuple[tuple[str, int], ...]
    rank: int | None
    on_ranks: OnRanks | None
    evidence: tuple[AnyEvidence, ...]
    line: tuple[str, int] | None
    wants_lines: bool
    of_rule: bool | None
    name: str
    """The keyword, without the range."""
    measured: float | str | None
    """The number, or what was seen in words; None where it is not measured."""
    message: str
    details: list[str]
    code: str | None
    remedy: str | None


class VerdictsJson(Struct, frozen=True, kw_only=True):
    """The verdicts on limits, and what they come to."""

    schema: int = SCHEMA
    status: Status
    message: str | None
    """Why nothing is measured, where that is so."""
    code: str | None
    remedy: str | None
    limits: list[VerdictJson]


def verdict_json(verdict: Verdict, why: Callable[[str], Sequence[Finding]] = no_finding) -> VerdictJson:
    """Return a verdict with its words.

    ``why`` returns the findings that may explain why the limit of a name was missed, as for `remedies_of`.
    """
    code, remedy = _about(verdict.reason)
    return VerdictJson(
        **asdict(verdict),
        name=verdict.limit,
        measured=measured_of(verdict),
        message=verdict.text,
        details=evidence_lines(verdict),
        code=code,
        remedy="; ".join(remedies_of([verdict], why)) if verdict.status == MISSED else remedy,
    )


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
) -> VerdictsJson:
    """Return verdicts with their outcomes.

    ``reason``: why nothing is measured, where that is so. ``why``: as for `verdict_json`.
    """
    statuses = {verdict.status for verdict in verdicts}
    if reason is not None or not verdicts:
        statuses.add(NOT_MEASURED)
    code, remedy = _about(reason)
    return VerdictsJson(
        status=next((status for status in (MISSED, NOT_MEASURED) if status in statuses), HOLDS),
        message=None if reason is None else reason.sentence,
        code=code,
        remedy=remedy,
        limits=[verdict_json(verdict, why) for verdict in verdicts],
    )


def verdict_values(document: VerdictJson | VerdictsJson) -> dict[str, Any]:
    """Return verdicts as JSON values."""
    # What a plugin's limit has seen may be of any type.
    return dict(to_builtins(document, enc_hook=str))


def _about(reason: Reason | None) -> tuple[str | None, str | None]:
    """Return the code of a reason, and its remedy."""
    if reason is None:
        return None, None
    return None if reason.code is None else str(reason.code), reason.remedy or None

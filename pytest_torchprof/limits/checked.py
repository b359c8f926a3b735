"""What the check of a limit returned, looked at before it is believed: another plugin's may return anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from pytest_torchprof.limits import evidence, seen
from pytest_torchprof.limits.evidence import LineInWords
from pytest_torchprof.limits.limit import HOLDS, NOT_MEASURED, Verdict, unmeasured
from pytest_torchprof.limits.seen import InWords
from pytest_torchprof.reasons.catalogue import portable
from pytest_torchprof.reasons.limits import NoVerdict, UnreadableVerdict, WithoutReason
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_torchprof.reasons.statement import Statement


def verdicts_of(limit: str, returned: object) -> tuple[Verdict, ...]:
    """Return the verdicts that the check of a limit returned, at least one.

    What is none, or cannot travel as data, is *not measured*: a limit must not pass because nobody could read what
    became of it.
    """
    given = returned if isinstance(returned, tuple) else (returned,)
    if not given or not all(isinstance(verdict, Verdict) for verdict in given):
        return (unmeasured(NoVerdict(limit, printable_line(repr(returned), 60))),)
    return tuple(_readable(limit, verdict) for verdict in given)


def _readable(limit: str, verdict: Verdict) -> Verdict:
    try:
        given = _in_known_kinds(verdict)
        # NaN is no JSON, and no number that can be compared with a bound.
        converted = convert(json.loads(json.dumps(to_builtins(given), allow_nan=False)), Verdict)
    except (TypeError, ValueError, ValidationError) as problem:
        return unmeasured(UnreadableVerdict(limit, str(problem)))
    if converted.reason is not None and converted.status == HOLDS:
        return replace(converted, status=NOT_MEASURED)
    if converted.status == NOT_MEASURED and not converted.text:
        return replace(converted, reason=WithoutReason(limit))
    # Where a float is expected, a whole number is one, and stays whole in reports.
    return given if given == converted else converted


def _in_known_kinds(verdict: Verdict) -> Verdict:
    """Return the verdict with statements of kinds that only another plugin knows in their words."""
    return replace(
        verdict,
        reason=portable(verdict.reason) if isinstance(verdict.reason, Reason) else verdict.reason,
        seen=tuple(InWords(fact.text) if _is_foreign(fact, seen.Seen, seen.KINDS) else fact for fact in verdict.seen),
        evidence=tuple(
            LineInWords(fact.text) if _is_foreign(fact, evidence.Evidence, evidence.KINDS) else fact
            for fact in verdict.evidence
        ),
    )


def _is_foreign(fact: object, base: type[Statement], kinds: Collection[type[Statement]]) -> bool:
    return isinstance(fact, base) and type(fact) not in kinds

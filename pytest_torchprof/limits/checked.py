"""Limits of other plugins, checked before they are used: the limits themselves, and what their checks return."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from pytest_torchprof.limits import evidence, seen
from pytest_torchprof.limits.evidence import LineInWords
from pytest_torchprof.limits.limit import COMPILE, GPU, HOLDS, MISSED, NOT_MEASURED, Limit, Unit, Verdict, unmeasured
from pytest_torchprof.limits.seen import InWords, Unworded
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.errors import NotMeasured, UnknownLimit, describe, is_of_the_code
from pytest_torchprof.reasons.limits import CheckRaised, NoVerdict, UnreadableVerdict, WithoutReason
from pytest_torchprof.reasons.plugins import (
    Brings,
    BringsSomethingElse,
    FieldOfLimit,
    KeywordTaken,
    Lack,
    UnusableLimit,
)
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import enumerated, printable_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_torchprof.reasons.statement import Statement


def checked_limits(brought: object, known: Iterable[Limit], options: Iterable[str]) -> tuple[Limit, ...]:
    """Return the limits that another plugin brings, beside those that are known and the marker's own options.

    Raises UnknownLimit if it brings something else, or would replace a keyword that has a meaning already.
    """
    if not isinstance(brought, Iterable):
        raise UnknownLimit.because(BringsSomethingElse(Brings.LIMITS, printable_line(repr(brought), 60)))
    meanings: dict[str, object] = dict.fromkeys(options)
    for limit in known:
        meanings |= _keywords_of(limit)
    limits: list[Limit] = []
    for limit in brought:
        if not isinstance(limit, Limit):
            raise UnknownLimit.because(BringsSomethingElse(Brings.LIMIT, printable_line(repr(limit), 60)))
        if problem := _problem_of(limit, meanings):
            raise UnknownLimit.because(problem)
        meanings |= _keywords_of(limit)
        limits.append(_guarded(limit))
    return tuple(limits)


def _keywords_of(limit: Limit) -> dict[str, object]:
    return {limit.name: limit, **{setting.name: setting for setting in limit.settings}}


def _problem_of(limit: Limit, meanings: Mapping[str, object]) -> Reason | None:
    shown = repr(limit.name)
    if not (isinstance(limit.name, str) and limit.name.isidentifier()):
        return UnusableLimit(shown, Lack.NAME)
    for name, meaning in _keywords_of(limit).items():
        # Limits may share a setting.
        if name in meanings and meanings[name] is not meaning:
            return KeywordTaken(shown, name)
    if not (callable(limit.read) and callable(limit.check)):
        return UnusableLimit(shown, Lack.FUNCTIONS)
    if limit.needs not in (GPU, COMPILE):
        return FieldOfLimit(shown, "needs", f"{GPU!r} or {COMPILE!r}", repr(limit.needs))
    if limit.unit is not None and limit.unit not in get_args(Unit):
        known = f"{enumerated(list(map(repr, get_args(Unit))))}, or None"
        return FieldOfLimit(shown, "unit", known, repr(limit.unit))
    return None


def _guarded(limit: Limit) -> Limit:
    """Return the limit with a check that returns at least one verdict, whatever the plugin's own does.

    A check that raises is *not measured*: neither its error nor a skip may suppress the verdicts on other limits.
    """

    def check(*arguments: Any, **settings: Any) -> tuple[Verdict, ...]:
        try:
            returned = limit.check(*arguments, **settings)
        except NotMeasured as problem:
            return (unmeasured(problem.reason),)
        except BaseException as problem:
            if not is_of_the_code(problem):
                raise
            return (unmeasured(CheckRaised(limit.name, describe(problem))),)
        return verdicts_of(limit.name, returned)

    return replace(limit, check=check)


def verdicts_of(limit: str, returned: object) -> tuple[Verdict, ...]:
    """Return the verdicts that the check of a limit returned, at least one.

    Anything else, or a verdict that cannot travel as data, is *not measured*: a limit must not pass because its
    verdict could not be read.
    """
    given = returned if isinstance(returned, tuple) else (returned,)
    if not given or not all(isinstance(verdict, Verdict) for verdict in given):
        return (unmeasured(NoVerdict(limit, printable_line(repr(returned), 60))),)
    return tuple(_readable(limit, verdict) for verdict in given)


def _readable(limit: str, verdict: Verdict) -> Verdict:
    try:
        given = _in_known_kinds(verdict)
        # NaN is not JSON, and cannot be compared with a bound.
        converted = convert(json.loads(json.dumps(to_builtins(given), allow_nan=False)), Verdict)
    except (TypeError, ValueError, ValidationError) as problem:
        return unmeasured(UnreadableVerdict(limit, str(problem)))
    if converted.reason is not None and converted.status == HOLDS:
        return replace(converted, status=NOT_MEASURED)
    if converted.status == NOT_MEASURED and not converted.text:
        return replace(converted, reason=WithoutReason(limit))
    if not converted.text and (converted.status == MISSED or converted.number is not None):
        return replace(converted, seen=(Unworded(converted.number, converted.unit),))
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

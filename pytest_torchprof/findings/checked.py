"""Rules of other plugins, checked before they are used: the rules themselves, and what they find."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from msgspec import convert
from msgspec.structs import replace

from pytest_torchprof.findings.catalogue import AnyFinding, from_words
from pytest_torchprof.findings.finding import Finding, Need, Rule, Severity
from pytest_torchprof.reasons.errors import NotMeasured, UnknownLimit, describe, is_of_the_code, not_measured
from pytest_torchprof.reasons.findings import RuleRaised, RuleReturned
from pytest_torchprof.reasons.plugins import Brings, BringsSomethingElse, FindingTaken, Lack, UnusableRule
from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.reasons.reason import Reason


def checked_rules(brought: object, known: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules that another plugin brings, beside those that are known.

    UnknownLimit: it brings something that is no rule, or a rule with the code of a known finding.
    """
    if not isinstance(brought, Iterable):
        raise UnknownLimit.because(BringsSomethingElse(Brings.RULES, printable_line(repr(brought), 60)))
    codes = {rule.code for rule in known}
    rules: list[Rule] = []
    for rule in brought:
        if not isinstance(rule, Rule):
            raise UnknownLimit.because(BringsSomethingElse(Brings.RULE, printable_line(repr(rule), 60)))
        if problem := _problem_of(rule, codes):
            raise UnknownLimit.because(problem)
        codes.add(rule.code)
        rules.append(_guarded(rule))
    return tuple(rules)


def _problem_of(rule: Rule, codes: set[str]) -> Reason | None:
    shown = repr(rule.code)
    if not isinstance(rule.code, str):
        return UnusableRule(shown, Lack.CODE)
    if rule.code in codes:
        return FindingTaken(rule.code)
    if not callable(rule.find):
        return UnusableRule(shown, Lack.FUNCTION)
    if not isinstance(rule.needs, tuple) or not all(isinstance(need, Need) for need in rule.needs):
        return UnusableRule(shown, Lack.NEEDS)
    return None


def _guarded(rule: Rule) -> Rule:
    """Return the rule with its functions wrapped: whatever they do wrong becomes NotMeasured, which names the rule."""

    def find(*arguments: Any) -> tuple[Finding, ...]:
        with _blaming(rule.code):
            findings = tuple(rule.find(*arguments))
            for finding in findings:
                if not _is_readable(finding, rule.code):
                    raise not_measured(RuleReturned(rule.code, printable_line(repr(finding), 60)))
            return findings

    def guarded(need: Need) -> Need:
        def there(*arguments: Any) -> bool:
            with _blaming(rule.code):
                return need.there(*arguments)

        return replace(need, there=there)

    return replace(rule, find=find, needs=tuple(map(guarded, rule.needs)))


@contextmanager
def _blaming(code: str) -> Iterator[None]:
    try:
        yield
    except NotMeasured:
        raise
    except BaseException as problem:
        if not is_of_the_code(problem):
            raise
        raise not_measured(RuleRaised(code, describe(problem))) from problem


def _is_readable(finding: object, code: str) -> bool:
    """Whether this is a finding of the rule that can be written as text and data; raises what its own texts raise."""
    if not isinstance(finding, Finding) or finding.code != code or finding.severity not in get_args(Severity):
        return False
    # NaN is no JSON, and findings are put in order by what they save.
    convert(from_words(json.loads(json.dumps(finding.in_words(), allow_nan=False))), AnyFinding)
    return isfinite(finding.saves_us)

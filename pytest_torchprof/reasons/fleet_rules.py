"""Reasons why the rules of a fleet cannot be used."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason

_RULES: Final = "{path}: expected rules in TOML, [[rule]]"


class FleetRulesNotRead(Reason, frozen=True):
    """The system does not let the file of rules be read."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{path}: the rules cannot be read: {error}"
    ADVICE = "name a file that can be read"

    path: str
    error: str


class FleetRulesNoToml(Reason, frozen=True):
    """The file of rules is no TOML."""

    CODE = Code.BAD_VALUE
    SENTENCE = f"{_RULES}: {{error}}"
    ADVICE = "correct the file"

    path: str
    error: str


class OtherThanFleetRules(Reason, frozen=True):
    """The file of rules has no rule, or something else beside them."""

    CODE = Code.BAD_VALUE
    SENTENCE = f"{_RULES}, and nothing beside them"
    ADVICE = "write a table `[[rule]]` for each rule, and nothing else"

    path: str


class FleetRuleMalformed(Reason, frozen=True):
    """A rule is no table, or has an entry that a rule does not have, or of another type."""

    CODE = Code.BAD_VALUE
    SENTENCE = "{path}: {rule}: {error}"
    MEANING = "a rule of a fleet has an entry that a rule does not have, or of another type"
    ADVICE = "correct the rule: [What is asked of them](fleet.md#what-is-asked-of-them)"

    path: str
    rule: str
    """Its name, or its number."""
    error: str

"""Reasons why what another plugin brings by our hooks cannot be used."""

from __future__ import annotations

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.statement import Phrase


class Brings(Phrase):
    """The things that a plugin may bring."""

    LIMITS = "limits", "a list of limits"
    LIMIT = "limit", "a Limit"
    RULES = "rules", "a list of rules"
    RULE = "rule", "a Rule"
    REPORTERS = "reporters", "a dict of functions by file suffix"
    REPORTER = "reporter", "a function by a suffix such as '.csv'"


class BringsSomethingElse(Reason, frozen=True):
    """A plugin brings something else than its hook is for."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "expected {expected}, got {got}"

    expected: Brings
    got: str
    """As it is written."""


class Lack(Phrase):
    """A requirement that a limit, or a rule for findings, does not meet."""

    NAME = "name", "its name is a keyword of the marker, so a name as Python has them"
    FUNCTIONS = "functions", "read and check are functions"
    CODE = "code", "its code is a text"
    FUNCTION = "function", "find is a function"
    NEEDS = "needs", "needs is a tuple of what pytest_torchprof.findings.finding calls a Need"


class UnusableLimit(Reason, frozen=True):
    """A limit lacks what a limit has."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "the limit {limit}: {lack}"

    limit: str
    """Its name, as it is written."""
    lack: Lack


class UnusableRule(Reason, frozen=True):
    """A rule for findings lacks what such a rule has."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "the rule of {finding}: {lack}"

    finding: str
    """The code of what it finds, as it is written."""
    lack: Lack


class FieldOfLimit(Reason, frozen=True):
    """A field of a limit has a value that it cannot have."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "the limit {limit}: {field} is {known}, not {got}"

    limit: str
    field: str
    known: str
    """The values that it may have, as they are written."""
    got: str


class KeywordTaken(Reason, frozen=True):
    """A limit, or a setting of it, has a name that has a meaning already."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "the limit {limit}: {keyword!r} has a meaning already; choose another name"

    limit: str
    keyword: str


class FindingTaken(Reason, frozen=True):
    """A rule finds something under a code that another finding has."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "the rule of {finding!r}: {finding!r} is a finding already; choose another code"

    finding: str


class OfHook(Reason, frozen=True):
    """A reason that lies in what a plugin answered to one of our hooks."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"

    hook: str
    plugin: str
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"{self.hook}: {self.why.text} (plugin {self.plugin})"


class HookRaised(Reason, frozen=True):
    """A plugin raised an error in one of our hooks."""

    CODE = Code.BAD_OPTION
    ADVICE = "correct it in the plugin"
    SENTENCE = "{hook}: the plugin {plugin} raised {error}"

    hook: str
    plugin: str
    error: str


class FormatRaised(Reason, frozen=True):
    """A plugin's format of reports raised an error."""

    CODE = Code.REPORT_NOT_WRITTEN
    SENTENCE = "the format {suffix} of the plugin {plugin} raised {error}"
    ADVICE = "correct it in the plugin"

    suffix: str
    plugin: str
    error: str


class FormatWithoutText(Reason, frozen=True):
    """A plugin's format of reports returned something else than a text."""

    CODE = Code.REPORT_NOT_WRITTEN
    SENTENCE = "the format {suffix} of the plugin {plugin} returned {returned} instead of a text"
    ADVICE = "correct it in the plugin"

    suffix: str
    plugin: str
    returned: str
    """As it is written."""

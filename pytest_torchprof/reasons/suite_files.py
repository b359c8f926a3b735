"""Reasons why the rules of a suite, or the list of what they allow, cannot be used."""

from __future__ import annotations

from typing import Final

from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text import all_of, enumerated

TABLE: Final = "tool.torchprof.limits"
"""Where the rules stand in a TOML file."""
_EXAMPLE: Final = f'such as [{TABLE}."tests/*"] with max_syncs = 0 below it'


class TomlNotRead(Reason, frozen=True):
    """A file is no TOML, or the system does not let it be read."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "correct the file"
    SENTENCE = "{file} cannot be read: {error}"

    file: str
    error: str


class RulesNoTable(Reason, frozen=True):
    """The file has something else where its rules belong."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "write a table for each pattern"
    SENTENCE = f"{{file}}: [{TABLE}] is {{got}}; expected a table for each pattern, {_EXAMPLE}"

    file: str
    got: str


class UnknownTable(Reason, frozen=True):
    """The file has a table of ours that has no meaning: rules below it would hold for no test."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "correct the table's name"
    SENTENCE = f"{{file}}: [tool.torchprof.{{name}}] is not known; rules are in [{TABLE}]"

    file: str
    name: str


class RulesInTwoFiles(Reason, frozen=True):
    """Two files have rules."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "keep one of them"

    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{all_of(self.files, 2)} both have a table [{TABLE}]; keep one"


class NoRules(Reason, frozen=True):
    """A suite is to be measured under rules, and there are none."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "write one"

    files: tuple[str, ...]
    """Where they may stand."""

    @property
    def sentence(self) -> str:
        files = enumerated(self.files)
        return f"--torchprof-suite: no rule in {files}: write one, {_EXAMPLE}"


class RuleNoTable(Reason, frozen=True):
    """A rule is something else than a table of limits."""

    CODE = Code.BAD_OPTION
    ADVICE = "write limits below it"
    SENTENCE = "it is {got}; expected limits, such as max_syncs = 0"

    got: str


class UnknownMode(Reason, frozen=True):
    """A rule's mode is none that there is."""

    CODE = Code.BAD_OPTION
    ADVICE = "write one of those"

    got: str
    known: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"mode = {self.got}: expected {enumerated(self.known)}"


class RuleWithoutLimit(Reason, frozen=True):
    """A rule limits nothing."""

    CODE = Code.BAD_OPTION
    ADVICE = "write limits below it"
    SENTENCE = "it has no limit; write e.g. max_syncs = 0 below it"


class OtherThanAllowed(Reason, frozen=True):
    """The list of what rules allow holds something else than its entries, or one with other fields."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "correct the list"
    SENTENCE = "{file}: {error}; an entry is [[allow]] with test, reason, and operator, line or range"

    file: str
    error: str


class OfAllowEntry(Reason, frozen=True):
    """A reason that lies in an entry of the list of what rules allow."""

    CODE = Code.BAD_OPTION
    FOR_THE_DOCTOR = False
    ADVICE = "correct the entry"

    file: str
    number: int
    """Which entry it is, from 1 on."""
    test: str
    """The pattern of the tests for which it is."""
    why: decoding.AnyReason

    @property
    def sentence(self) -> str:
        return f"{self.file}: entry {self.number} ({self.test}): {self.why.text}"


class NotOneAllowance(Reason, frozen=True):
    """An entry has none or several of operator, line and range."""

    CODE = Code.BAD_OPTION
    ADVICE = "write one of them"
    SENTENCE = "it needs exactly one of operator, line and range"


class NoReasonGiven(Reason, frozen=True):
    """An entry does not say why it is there."""

    CODE = Code.BAD_OPTION
    ADVICE = "write why it may stay"
    SENTENCE = "it says no reason; write why it may stay"


class OtherThanItSays(Reason, frozen=True):
    """An entry's allowance is not of the kind under which it stands."""

    CODE = Code.BAD_OPTION
    ADVICE = "write it under the name of what it is"
    SENTENCE = "{written!r} is no operator, line or range as it says"

    written: str

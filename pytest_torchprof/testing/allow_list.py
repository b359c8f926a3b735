"""The committed list of what a suite's rules let pass: an operator, a line or a range, in which tests, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.limits.allowances import read_allowances
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.reasons.suite_files import (
    NoReasonGiven,
    NotOneAllowance,
    OfAllowEntry,
    OtherThanAllowed,
    OtherThanItSays,
)
from pytest_torchprof.testing.suite_rules import matches, toml_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_torchprof.reasons.reason import Reason

ALLOW_FILE: Final = "torchprof_allow.toml"
"""In pytest's root directory."""
RANGE: Final = "range:"
SETTING_OF: Final[Mapping[str, str]] = {
    "max_syncs": "allow_syncs",
    "max_memcpys": "allow_memcpys",
    "forbid_ops": "allow_ops",
}
"""The limits that have exceptions, and the settings which make these."""


class AllowEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One exception: exactly one of operator, line and range."""

    test: str
    """Matches node ids as the pattern of a rule does."""
    operator: str | None = None
    """Such as aten::nonzero."""
    line: str | None = None
    """A source file, or a line of it: sampler.py:12."""
    range: str | None = None
    """The user's range around it."""
    reason: str

    @property
    def allowance(self) -> str:
        """It as the settings of limits have it."""
        return self.operator or self.line or f"{RANGE}{self.range}"

    @property
    def shown(self) -> str:
        """It as messages name it."""
        return f"{self.allowance} in {self.test}"


class _AllowFile(Struct, frozen=True, forbid_unknown_fields=True):
    allow: tuple[AllowEntry, ...] = ()


def read_allow_list(file: Path, shown: str) -> tuple[AllowEntry, ...]:
    """Return the entries of a list, none where there is no file; TorchprofError names what is wrong with one."""
    if not file.is_file():
        return ()
    try:
        entries = msgspec.convert(toml_of(file, shown), _AllowFile).allow
    except msgspec.ValidationError as problem:
        raise TorchprofError.because(OtherThanAllowed(shown, str(problem))) from None
    for number, entry in enumerate(entries, 1):
        if why := _why_unusable(entry):
            raise TorchprofError.because(OfAllowEntry(shown, number, entry.test, why))
    return entries


def _why_unusable(entry: AllowEntry) -> Reason | None:
    if sum(value is not None for value in (entry.operator, entry.line, entry.range)) != 1:
        return NotOneAllowance()
    if not entry.reason.strip():
        return NoReasonGiven()
    try:
        (allowance,) = read_allowances(entry.allowance)
    except UnknownLimit as problem:
        return problem.reason
    names_operator, is_line = allowance.operator is not None, entry.line is not None
    if (entry.operator is not None and not names_operator) or allowance.needs_lines != is_line:
        return OtherThanItSays(entry.allowance)
    return None


def with_allowed(limits: Mapping[str, object], entries: Iterable[AllowEntry], nodeid: str) -> dict[str, object]:
    """Return the limits of a rule with what the list allows in this test."""
    allowed = dict(limits)
    own = [entry for entry in entries if matches(entry.test, nodeid)]
    for limit, setting in SETTING_OF.items():
        # forbid_ops asks which operators ran, whichever range they are in.
        more = [entry.allowance for entry in own if limit != "forbid_ops" or entry.range is None]
        if limit in limits and more:
            given = allowed.get(setting, [])
            allowed[setting] = [*(given if isinstance(given, list) else [given]), *more]
    return allowed


def as_toml(entries: Iterable[AllowEntry]) -> str:
    """Return entries as the text of a list."""
    blocks = []
    for entry in entries:
        fields = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
        # A JSON string is one of TOML, but for DEL, which no name has.
        lines = (f"{name} = {json.dumps(value)}" for name, value in fields.items())
        blocks.append("\n".join(["[[allow]]", *lines]))
    return "\n\n".join(blocks) + ("\n" if blocks else "")

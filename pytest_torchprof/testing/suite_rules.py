"""Rules for a whole suite: limits for each test that a pattern matches, whether or not it has a marker."""

from __future__ import annotations

import hashlib
import tomllib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.limits.written import RANGES, read_limits_of_file
from pytest_torchprof.reasons.composed import OfRule
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.reasons.suite_files import (
    TABLE,
    RuleNoTable,
    RulesInTwoFiles,
    RulesNoTable,
    RuleWithoutLimit,
    TomlNotRead,
    UnknownMode,
    UnknownTable,
)
from pytest_torchprof.text.globs import before_wild, fits, is_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_torchprof.reasons.reason import Reason

WAYS: Final = frozenset({"warmup", "steps", "device", "record"})
"""The keywords of a rule that say how to measure; they are for tests that nothing else measures."""
ONCE: Final[Mapping[str, object]] = {"warmup": 0, "steps": 1, "baseline": False}
"""How a test is measured that only a rule asks for: its own call, and no other."""
_MODE: Final = "mode"


class Mode(StrEnum):
    """Whether a test that breaks a rule fails or only warns."""

    FAIL = "fail"
    WARN = "warn"


class SuiteRule(Struct, frozen=True, kw_only=True):
    """The limits for the tests whose node ids match a pattern."""

    tests: str
    """The pattern."""
    file: str
    """Where it stands, as messages name it."""
    mode: Mode
    ways: Mapping[str, Any]
    """How to measure."""
    limits: Mapping[str, Any]
    """With the settings that change how they count."""

    @property
    def shown(self) -> str:
        """The rule as messages name it."""
        return f'{self.file}: [{TABLE}."{self.tests}"]'


class SuiteSeen(Struct, frozen=True, kw_only=True):
    """The facts that a process saw, when it collected tests, on the rules and the tests that these reach."""

    reached: int = 0
    """How many of the tests a rule measures."""
    idle: tuple[str, ...] = ()
    """The rules that match no test, though all tests were collected that they could match."""
    unmeasurable: tuple[str, ...] = ()
    """The tests of a rule that have no body to be measured, such as doctests."""
    fails: bool = False
    """Whether a rule that fails tests is among theirs."""
    tests_of: tuple[tuple[str, ...], ...] | None = None
    """The tests of each entry of the allow list; None where the run does not look at all of them."""


LimitKey: TypeAlias = tuple[str | None, str]
"""The range in which a limit holds, None for the whole measurement, and its name."""


class RuleOfTest(Struct, frozen=True, kw_only=True):
    """The joint rule of all that match one test; of several values of a limit the last rule's holds."""

    asked_by: tuple[str, ...]
    """The rules as messages name them."""
    mode: Mode
    """Of what no limit says, such as that nothing ran: as strict as the strictest of them."""
    ways: Mapping[str, Any]
    limits: Mapping[str, Any]
    warned: frozenset[LimitKey]
    """The limits whose rule only warns."""
    settings: Mapping[str, frozenset[str]]
    """The settings that each limit takes."""
    own: tuple[LimitKey, ...] = ()
    """The limits of the test's marker."""

    def beside(self, marker: Mapping[str, object] | None, *, alone: bool) -> dict[str, object]:
        """Return the keywords of rule and marker: of each limit the marker's, with the marker's settings.

        ``alone``: nothing else measures the test, so that the rule says how it is measured.
        """
        own = marker or {}
        keywords = self._beside(self.limits, own)
        theirs, ours = self.limits.get(RANGES), own.get(RANGES)
        if isinstance(theirs, dict) and isinstance(ours, dict):
            both = {name: self._beside(self._left(name, ours), ours.get(name, {})) for name in {**theirs, **ours}}
            keywords = {**keywords, RANGES: {name: limits for name, limits in both.items() if limits or name in ours}}
        return {**(self.ways if alone else {}), **keywords}

    def _left(self, name: str, ours: Mapping[str, Any]) -> dict[str, Any]:
        """Return the limits in a range that no pattern of a marker's has for it: the name would win over that."""
        taken = {
            limit for pattern, own in ours.items() if isinstance(own, dict) and fits(pattern, name) for limit in own
        }
        return {limit: value for limit, value in self.limits[RANGES].get(name, {}).items() if limit not in taken}

    def _beside(self, limits: Mapping[str, Any], own: object) -> Any:
        if not isinstance(own, dict):
            return own
        kept = {name: value for name, value in limits.items() if name not in own}
        taken = frozenset().union(*(self.settings.get(name, frozenset()) for name in kept))
        keywords = {name: value for name, value in kept.items() if name in taken or not self._is_setting(name)}
        return {**keywords, **own}

    def _is_setting(self, name: str) -> bool:
        return any(name in settings for settings in self.settings.values())

    def below(self, marker: Mapping[str, object] | None) -> RuleOfTest:
        """Return the rule without the limits that a marker sets itself: those fail the test whatever the rule says."""
        return replace(self, own=tuple(key for key, _ in _by_key(marker or {})))

    def warns_of(self, limit: str, within: str | None = None, *, alone: bool) -> bool:
        """Return whether a miss of this limit is only told; "" stands for the measurement as a whole."""
        if _asked_by((within, limit), self.own) is not None:
            return False
        asked = self._limit((within, limit))
        return asked in self.warned if asked is not None else alone and self.mode is Mode.WARN

    def asks(self, limit: str, within: str | None = None) -> bool:
        """Return whether a verdict on this limit is one on a rule's, and not on one of the marker's."""
        key = (within, limit)
        return _asked_by(key, self.own) is None and self._limit(key) is not None

    def judges_on_cpu(self, limit: str) -> bool:
        """Return whether a limit is the rule's, and the rule names the CPU as the device."""
        if self.ways.get("device") != "cpu":
            return False
        if limit == RANGES:
            return RANGES in self.limits and all(within is None for within, _ in self.own)
        return self.asks(limit)

    def _limit(self, key: LimitKey) -> LimitKey | None:
        return _asked_by(key, [own for own, _ in _by_key(self.limits)])


def _asked_by(key: LimitKey, asked: Sequence[LimitKey]) -> LimitKey | None:
    """Return which of these asks for a limit: the one in the range of that name, else the last whose pattern fits."""
    within, limit = key
    if key in asked or within is None:
        return key if key in asked else None
    return next((own for own in reversed(asked) if own[1] == limit and own[0] and fits(own[0], within)), None)


def _by_key(limits: Mapping[str, Any]) -> Iterator[tuple[LimitKey, Any]]:
    """Yield limits with their values, those of ranges one by one."""
    for name, value in limits.items():
        if name == RANGES and isinstance(value, dict):
            inside = ((within, own) for within, own in value.items() if isinstance(own, dict))
            yield from (((within, limit), bound) for within, own in inside for limit, bound in own.items())
        else:
            yield (None, name), value


def read_rules(files: Iterable[Path], shown: Mapping[Path, str]) -> tuple[SuiteRule, ...]:
    """Return the rules in these TOML files, in their order; TorchprofError names what is wrong with one."""
    rules: list[SuiteRule] = []
    for file in files:
        if not file.is_file():
            continue
        table = _table(toml_of(file, shown[file]), shown[file])
        if table and rules:
            raise TorchprofError.because(RulesInTwoFiles((rules[0].file, shown[file])))
        rules += [_rule(tests, entry, shown[file]) for tests, entry in table.items()]
    return tuple(rules)


def toml_of(file: Path, shown: str) -> Mapping[str, Any]:
    """Return the content of a TOML file; TorchprofError where it cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as problem:
        raise TorchprofError.because(TomlNotRead(shown, str(problem))) from None


def _table(document: Mapping[str, Any], shown: str) -> Mapping[str, Any]:
    table: Any = document
    for name in TABLE.split("."):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise TorchprofError.because(RulesNoTable(shown, repr(table)))
    # A rule below a name that is misspelt would hold for no test, and nothing would say so.
    if others := document.get("tool", {}).get("torchprof", {}).keys() - {"limits"}:
        raise TorchprofError.because(UnknownTable(shown, min(others)))
    rules: Mapping[str, Any] = table
    return rules


def _rule(tests: str, entry: object, shown: str) -> SuiteRule:
    where = f'{shown}: [{TABLE}."{tests}"]'
    if not isinstance(entry, dict):
        raise _unusable(where, RuleNoTable(repr(entry)))
    mode = entry.get(_MODE, Mode.FAIL)
    if mode not in tuple(Mode):
        raise _unusable(where, UnknownMode(repr(mode), tuple(Mode)))
    limits = {name: value for name, value in entry.items() if name not in {_MODE, *WAYS}}
    if not limits:
        raise _unusable(where, RuleWithoutLimit())
    try:
        read = read_limits_of_file(limits)
    except UnknownLimit as problem:
        raise _unusable(where, problem.reason) from None
    return SuiteRule(
        tests=tests,
        file=shown,
        mode=Mode(mode),
        ways={name: value for name, value in entry.items() if name in WAYS},
        limits=read,
    )


def _unusable(rule: str, why: Reason) -> TorchprofError:
    return TorchprofError.because(OfRule(rule, why))


def joined(rules: Sequence[SuiteRule], settings: Mapping[str, frozenset[str]]) -> RuleOfTest:
    """Return the rule that joins all rules that match a test."""
    values: dict[LimitKey, Any] = {}
    for key, value in (pair for rule in rules for pair in _by_key(rule.limits)):
        values.pop(key, None)  # The later one stands later.
        values[key] = value
    modes = {key: rule.mode for rule in rules for key, _ in _by_key(rule.limits)}
    limits = {name: value for (within, name), value in values.items() if within is None}
    ranges: dict[str, dict[str, Any]] = {}
    for (within, name), value in values.items():
        if within is not None:
            ranges.setdefault(within, {})[name] = value
    return RuleOfTest(
        asked_by=tuple(rule.shown for rule in rules),
        mode=Mode.FAIL if any(rule.mode is Mode.FAIL for rule in rules) else Mode.WARN,
        ways={**ONCE, **{name: value for rule in rules for name, value in rule.ways.items()}},
        limits={**limits, RANGES: ranges} if ranges else limits,
        warned=frozenset(key for key, mode in modes.items() if mode is Mode.WARN),
        settings=settings,
    )


def matches(pattern: str, nodeid: str) -> bool:
    """Return whether a node id matches: ``*`` stands for any text and ``?`` for one character, brackets for themselves.

    Without either it is the id of a test, or of what holds tests: a folder, a file, a class, a test with parameters.
    """
    if not is_glob(pattern):
        rest = nodeid.removeprefix(pattern.rstrip("/"))
        return nodeid == pattern or (rest != nodeid and rest.startswith(("/", "::", "[")))
    return fits(pattern, nodeid)


def folder_of(pattern: str) -> str:
    """Return the file or folder below which lies all that a pattern can match; empty for the root directory."""
    head = before_wild(pattern.partition("::")[0])
    return head if head == pattern.partition("::")[0] else head.rpartition("/")[0]


def is_sampled(nodeid: str, share: float) -> bool:
    """Return whether a test is among this share of all: the same on each machine and in each run."""
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64

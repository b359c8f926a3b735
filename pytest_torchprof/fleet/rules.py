"""The limits that are asked of each file: a file of rules in TOML, and the limits of the command line."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.findings import RULES, Rule, with_thresholds
from pytest_torchprof.limits import Asked, catalogue, divided, read_limits
from pytest_torchprof.limits.written import read_limit_texts, read_limits_of_file
from pytest_torchprof.reasons.asked_wrongly import NoDeviceOfKind
from pytest_torchprof.reasons.composed import OfRule
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_rules import (
    FleetRuleMalformed,
    FleetRulesNoToml,
    FleetRulesNotRead,
    OtherThanFleetRules,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_torchprof.fleet.listed import Listed
    from pytest_torchprof.kernels.own_kernels import OwnKernels


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits that are asked of a file, and how it is read for them."""

    rule: str | None = None
    """The rule that says so; None of a file that has none."""
    device: str | None = None
    step: str | None = None
    """The range on the CPU whose occurrences are the steps."""
    limits: tuple[str, ...] = ()
    """NAME=VALUE, those of the command line."""
    own_limits: dict[str, Any] = {}
    """The limits of the rule, as its file writes their values."""
    thresholds: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Return an equal number for equal questions, though values of a file may be lists, which have no hash."""
        return hash((self.rule, self.device, self.step, self.limits, *self.own_limits, self.thresholds))


class FleetRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule of the file, as it is written."""

    name: str | None = None
    files: tuple[str, ...] = ("*",)
    """Patterns of paths; one that does not begin at the root may begin at any folder."""
    where: dict[str, str] = {}
    """Patterns of what a manifest says, which is compared as text."""
    device: str | None = None
    step: str | None = None
    limits: dict[str, Any] = {}
    thresholds: dict[str, float] = {}


def read_rules(path: Path) -> tuple[FleetRule, ...]:
    """Return the rules of a file; TorchprofError where it cannot be read or a rule is none."""
    import tomllib  # noqa: PLC0415 - each process judges by what it is handed, without the file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise TorchprofError.because(FleetRulesNotRead(str(path), str(problem.strerror))) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise TorchprofError.because(FleetRulesNoToml(str(path), str(problem))) from None
    tables = content.pop("rule", None)
    if not isinstance(tables, list) or content:
        raise TorchprofError.because(OtherThanFleetRules(str(path)))
    named = tuple(_rule(path, f"rule {number}", table) for number, table in enumerate(tables, 1))
    for rule in named:
        try:
            read(_asked_by(rule, ()))
        except TorchprofError as problem:
            raise TorchprofError.because(OfRule(f"{path}: {rule.name}", problem.reason)) from None
    return named


def _rule(path: Path, called: str, table: object) -> FleetRule:
    """Return the rule that a table of the file holds; it is ``called`` so unless it has a name."""
    if isinstance(table, dict):
        table = {"name": called} | table
        if isinstance(where := table.get("where"), dict):
            table["where"] = {name: _pattern(value) for name, value in where.items()}
    try:
        return msgspec.convert(table, FleetRule)
    except msgspec.ValidationError as problem:
        raise TorchprofError.because(FleetRuleMalformed(str(path), called, str(problem))) from None


def _pattern(value: object) -> object:
    """Return a number, true or false as the text that metadata of a manifest is kept as; all else as it is."""
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value


def question_of(file: Listed, rules: Sequence[FleetRule], limits: tuple[str, ...]) -> Question:
    """Return the question asked of a file: by the first rule that fits it, and by the limits that hold for all.

    A rule's limit stands in the place of one of the same name.
    """
    rule = next((rule for rule in rules if _fits(rule, file)), None)
    return Question(limits=limits) if rule is None else _asked_by(rule, limits)


def takers(rules: Sequence[FleetRule], files: Iterable[Listed]) -> list[set[int]]:
    """Return for each rule, by its number, which rules count for the files that it fits: itself, or others before it.

    A rule that fits no file has none.
    """
    first: list[set[int]] = [set() for _ in rules]
    for file in files:
        fitting = [number for number, rule in enumerate(rules) if _fits(rule, file)]
        for number in fitting:
            first[number].add(fitting[0])
    return first


def limits_of(question: Question) -> dict[str, object]:
    """Return the values of a question's limits; UnknownLimit for what is not a limit."""
    read = read_limit_texts(question.limits)
    return {name: value for name, value in read.items() if name not in question.own_limits} | read_limits_of_file(
        question.own_limits
    )


def read(question: Question) -> tuple[OwnKernels, tuple[Asked, ...], tuple[Rule, ...]]:
    """Return the declarations of kernels, the limits and the rules of findings; TorchprofError where one is invalid."""
    if question.device is not None and question.device not in (known := [kind.name for kind in device_kinds()]):
        raise TorchprofError.because(NoDeviceOfKind(tuple(known), repr(question.device)))
    own_kernels, limits = divided(limits_of(question))
    rules = with_thresholds(RULES, question.thresholds)
    return own_kernels, read_limits(limits, known=catalogue(rules)), rules


# Many files are asked the same, and reading it takes a tenth of the time of a small one.
asked_of: Final = lru_cache(maxsize=64)(read)


def _fits(rule: FleetRule, file: Listed) -> bool:
    patterns = [form for pattern in rule.files for form in (pattern, f"*/{pattern}")]
    named = any(fnmatchcase(path, pattern) for path in _paths(file) for pattern in patterns)
    # What a manifest does not say fits no pattern, not even "*".
    known = file.metadata
    return named and all(name in known and fnmatchcase(known[name], pattern) for name, pattern in rule.where.items())


def _paths(file: Listed) -> Iterable[str]:
    return (file.url,) if file.member is None else (file.url, f"{file.url}/{file.member}")


def _asked_by(rule: FleetRule, limits: tuple[str, ...]) -> Question:
    return Question(
        rule=rule.name,
        device=rule.device,
        step=rule.step,
        limits=limits,
        own_limits=rule.limits,
        thresholds=tuple(f"{name}={value:g}" for name, value in rule.thresholds.items()),
    )

"""Findings: what a person reading the trace would point at, one function each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.findings.catalogue import AnyFinding, OtherFinding
from pytest_torchprof.findings.finding import Finding, Rule, Threshold, ranked, with_thresholds
from pytest_torchprof.findings.overlaps import standing_out
from pytest_torchprof.reasons.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.reasons.reason import Reason

__all__ = [
    "RULES",
    "AnyFinding",
    "Finding",
    "OtherFinding",
    "Rule",
    "Threshold",
    "explaining",
    "find",
    "find_or_fail",
    "find_with_events",
    "ranked",
    "standing_out",
    "with_thresholds",
]

# Findings of equal weight are shown in this order.
_SUBJECTS = (
    "doubts",
    "waiting",
    "syncs",
    "exposed",
    "queued",
    "recaptured",
    "silence",
    "copies",
    "kernels",
    "grids",
    "products",
    "roofline",
    "fusible",
    "written_out",
    "repeated",
    "compiling",
    "ranks",
)
RULES: tuple[Rule, ...] = tuple(rule for subject in _SUBJECTS for rule in import_module(f"{__name__}.{subject}").RULES)


def find(analysis: Analysis, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Return the findings of the rules: about the recording first, then by the time that could be saved.

    Lines of the user's code that only a repeat with stacks knows are added. There are no findings where kernels are
    hidden, and none by a rule of another plugin that fails.
    """
    return find_or_fail(analysis, rules)[0]


def find_or_fail(analysis: Analysis, rules: Iterable[Rule]) -> tuple[tuple[Finding, ...], Mapping[str, Reason]]:
    """Return the findings of the rules, and for each rule of another plugin that failed the reason, by the rule's code.

    The findings travel without their events, which say nothing where the recording is not at hand.
    """
    return _find(analysis, rules, lambda finding: replace(finding, events=None))


def find_with_events(analysis: Analysis, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Return the findings of the rules, as `find` does, each with its events in the recording."""
    return _find(analysis, rules, lambda finding: finding)[0]


def _find(
    analysis: Analysis, rules: Iterable[Rule], kept: Callable[[Finding], Finding]
) -> tuple[tuple[Finding, ...], Mapping[str, Reason]]:
    """Return the findings as they are ``kept``, each from when it is made: its events may be tens of thousands."""
    if analysis.kernels_unknown is not None:
        return (), {}
    rules = tuple(rules)
    matching: list[Finding] = []
    failures: dict[str, Reason] = {}
    for rule in rules:
        try:
            matching += [kept(finding) for finding in rule.look(analysis)]
        except NotMeasured as problem:
            failures[rule.code] = problem.reason
    return _with_sources(analysis, ranked(matching), rules), failures


def _with_sources(analysis: Analysis, findings: tuple[Finding, ...], rules: tuple[Rule, ...]) -> tuple[Finding, ...]:
    """Return the findings with lines of the user's code that only a repeat with stacks knows."""
    if analysis.repeat is None or analysis.repeat.analysis is None:
        return findings
    sources = {finding.code: finding.source for finding in find_or_fail(analysis.repeat.analysis, rules)[0]}
    return tuple(_with_source(finding, sources.get(finding.code)) for finding in findings)


def explaining(limit: str, findings: Iterable[Finding], rules: Iterable[Rule] = RULES) -> list[Finding]:
    """Return the findings that may explain why a limit was missed, in their order."""
    codes = {rule.code for rule in rules if limit in rule.explains}
    return [finding for finding in findings if finding.code in codes]


def _with_source(finding: Finding, source: str | None) -> Finding:
    return finding if source is None or finding.source is not None else replace(finding, source=source)

"""Marks in the page's timeline: the event of the headline, and the events of each finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings import OtherFinding, find_with_events
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.headline import headline_of
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings import Finding
    from pytest_torchprof.findings.catalogue.headlines import Headline

_NOT_OF_THE_RECORDING: Final = {"source", "kind", "wait_share", "waits_at_least"}
"""Facts that a repeat with stacks adds, or the recordings of other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The headline of a recording, and its marked events."""

    headline: Headline
    events: tuple[Events | None, ...]
    """The events of the headline, then those of each finding in their order; None for one without events."""


def marks_of(analysis: Analysis, findings: Sequence[Finding]) -> Marks:
    """Return the marks for these findings, which a test's run may have made from the same recording."""
    headline = headline_of(analysis)
    located = {finding.code: finding for finding in find_with_events(analysis)} if findings else {}
    events = (_events(analysis, finding, located.get(finding.code)) for finding in findings)
    return Marks(headline=headline, events=(headline.events, *events))


def _events(analysis: Analysis, finding: Finding, located: Finding | None) -> Events | None:
    if isinstance(finding, OtherFinding):
        return _named(analysis, finding)
    return located.events if located is not None and _is_same(finding, located) else None


def _is_same(finding: Finding, located: Finding) -> bool:
    """Return whether a finding has the facts of one of the recording."""
    facts, recorded = finding.evidence, located.evidence
    return all(facts.get(name) == recorded.get(name) for name in {*facts, *recorded} - _NOT_OF_THE_RECORDING)


def _named(analysis: Analysis, finding: Finding) -> Events | None:
    """Return the events that another plugin's finding names: its kernels, else its operators."""
    kernels, ops = (_texts(finding.evidence.get(key)) for key in ("kernels", "ops"))
    work, trace = analysis.gpu_work, analysis.trace
    gpu_ops = [
        i
        for group in work.groups
        if (decoded := work.decoded(group))
        and kernels & {trace.names[group.name], decoded.short, decoded.stem, decoded.collective}
        for i in group.members
    ]
    if gpu_ops:
        return Events(gpu_ops=tuple(gpu_ops))
    called = {i for i, name in enumerate(trace.names) if name in ops}
    calls = tuple(i for i in where(trace.ops.name, called) if trace.step_at(trace.ops.start[i]) >= 0)
    return Events(ops=calls) if calls else None


def _texts(fact: object) -> set[str]:
    return {text for text in fact if isinstance(text, str)} if isinstance(fact, list | tuple | dict) else set()

"""What a finding is, and what makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis

Severity = Literal["recording", "warning", "information"]
"""About the recording itself; about time that is lost; good to know."""


class Finding(Struct, frozen=True, kw_only=True):
    """Something a person reading the trace would point at."""

    code: str
    title: str
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: counts, times over all steps in microseconds (``_us``), ``share`` of the window, kernel and operator
    names, steps, ``source`` (file and line) where stacks were recorded."""
    remedy: str = ""
    severity: Severity = "warning"
    saves_us: float = 0.0
    """The most that could be saved over all steps, in microseconds; findings are ranked by it."""


class Threshold(Struct, frozen=True, eq=False):
    """A value from which on a rule finds something; a whole one is a count and stays whole."""

    name: str
    value: float
    reason: str


class Need(Struct, frozen=True, eq=False):
    """What a recording must hold for a rule to tell anything."""

    missing: str
    """What is so where it does not."""
    there: Callable[[Analysis], bool]


class Rule(Struct, frozen=True, kw_only=True):
    """A finding's code with the function that looks for it.

    ``find`` takes the analysis and, where the rule has thresholds, their values by threshold.
    """

    code: str
    find: Callable[..., Iterable[Finding]]
    thresholds: tuple[Threshold, ...] = ()
    changed: Mapping[Threshold, float] = field(default_factory=dict)
    """The values that someone set; the others are as they come."""
    needs: tuple[Need, ...] = ()

    def blind(self, analysis: Analysis) -> str | None:
        """Return why nothing can be told from this recording, None where it can."""
        return next((need.missing for need in self.needs if not need.there(analysis)), None)

    def look(self, analysis: Analysis) -> Iterable[Finding]:
        """Return what the rule finds."""
        if not self.thresholds:
            return self.find(analysis)
        return self.find(analysis, {one: self.changed.get(one, one.value) for one in self.thresholds})


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings about the recording first, then warnings by the time that could be saved, then the rest."""
    order = {"recording": 0, "warning": 1, "information": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.severity], -finding.saves_us)))

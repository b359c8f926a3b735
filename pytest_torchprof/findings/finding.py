"""What a finding is, and what makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis

Severity = Literal["recording", "warning", "information"]
"""About the recording itself; about time that is lost; good to know."""


# Limits that are missed for the same reasons.
HOW_MANY_KERNELS = ("max_kernels", "max_launches")
HOST_PACE = ("max_cpu_gpu_ratio", "min_gpu_utilization", "min_sm_efficiency", "min_mfu")
SLOW_KERNELS = ("min_mfu", "max_gpu_time")
WHICH_KERNELS = ("kernels", "only_kernels", "forbid_kernels")
WHICH_OPERATORS = ("ops", "forbid_ops", "fused")


class Finding(Struct, frozen=True, kw_only=True):
    """Something a person reading the trace would point at."""

    code: str = ""
    """The rule's."""
    title: str = ""
    """Likewise."""
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: counts, times over all steps in microseconds (``_us``), ``share`` of the window, kernel and operator
    names, steps, ``source`` (file and line) where stacks were recorded."""
    remedy: str = ""
    """The rule's, unless what was found asks for another."""
    severity: Severity = "warning"
    saves_us: float = 0.0
    """The most that could be saved over all steps, in microseconds; findings are ranked by it."""

    @property
    def in_one_line(self) -> str:
        """Code and message, with the line of the user's code where it is known."""
        source = self.evidence.get("source")
        where = f" ({source})" if isinstance(source, str) and source not in self.message else ""
        return f"{self.code}: {self.message}{where}"


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
    """A finding's code, title and remedy, with the function that looks for it and the limits that it explains.

    ``find`` takes the analysis and, where the rule has thresholds, their values by threshold.
    """

    code: str
    title: str = ""
    find: Callable[..., Iterable[Finding]]
    thresholds: tuple[Threshold, ...] = ()
    changed: Mapping[Threshold, float] = field(default_factory=dict)
    """The values that someone set; the others are as they come."""
    needs: tuple[Need, ...] = ()
    remedy: str = ""
    explains: Collection[str] = ()
    """Limits that may be missed for this reason; what a limit lists itself does not explain it."""

    def blind(self, analysis: Analysis) -> str | None:
        """Return why nothing can be told from this recording, None where it can."""
        return next((need.missing for need in self.needs if not need.there(analysis)), None)

    def look(self, analysis: Analysis) -> Iterator[Finding]:
        """Yield what the rule finds."""
        values = {one: self.changed.get(one, one.value) for one in self.thresholds}
        for one in self.find(analysis, values) if self.thresholds else self.find(analysis):
            yield replace(
                one, code=one.code or self.code, title=one.title or self.title, remedy=one.remedy or self.remedy
            )


def ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings about the recording first, then warnings by the time that could be saved, then the rest."""
    order = {"recording": 0, "warning": 1, "information": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.severity], -finding.saves_us)))

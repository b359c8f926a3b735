"""The comparison of a measurement with its baseline: a verdict, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.compare.changes import (
    AMBIGUOUS,
    BETTER,
    THIS_RUN,
    WORSE,
    Change,
    kernel_changes,
    other_device,
    other_software,
)
from pytest_torchprof.compare.numbers import number_changes, time_changes
from pytest_torchprof.text import counted, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.changes import Sides

Verdict = Literal["same", "better", "changed", "ambiguous", "worse", "new"]

_MARKS: Final = {BETTER: "-", WORSE: "+"}
# What a cell of a table has room for, in this order.
_NOUNS: Final = {
    **{number.name: number.noun for number in TABLE if number.headline and (number.gated or number.tolerance)},
    "syncs": "sync",
    "time": "time",
}
_SHARES: Final = frozenset({"time", *(number.name for number in TABLE if number.tolerance)})
_COUNTS: Final = tuple(number.name for number in TABLE if number.exact)
# These move with gpu_busy_us; a line each would bury what matters.
_WITH_BUSY_TIME: Final = frozenset(number.name for number in TABLE if number.follows == "gpu_busy_us")
_NO_TOLERANCE: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a measurement is, held against its baseline."""

    verdict: Verdict
    changes: tuple[Change, ...] = ()
    stale: bool = False
    """The test's source changed since the baseline was recorded; it is compared all the same."""
    environment: str | None = None
    """What to say before the verdict: another device, or other software."""

    def fails(self, *, strict: bool = False) -> bool:
        """Whether the test fails for it; ``strict`` fails where there is no baseline, or no telling, too."""
        return self.verdict == WORSE or (strict and self.verdict in ("new", AMBIGUOUS))

    @property
    def summary(self) -> str:
        """The verdict in a table's cell: "better (-1 kernel)"."""
        details = _details(self.changes, self.verdict) + ["stale"] * self.stale
        if self.environment is not None:
            details.append("other device" if self.verdict == "new" else "other environment")
        return f"{self.verdict} ({', '.join(details)})" if details else self.verdict

    @property
    def lines(self) -> tuple[str, ...]:
        """What changed, a line each: environment first, then kernels, then numbers."""
        first = [self.environment] if self.environment else []
        if self.stale:
            first.append("the test was edited after its baseline was recorded (stale)")
        kernels = [_kernel_line(change) for change in self.changes if not _number(change)]
        numbers = [
            f"    {change.words}{'' if change.gated or change.direction != WORSE else ' (not gated)'}"
            for change in self.changes
            if _number(change) and (change.gated or change.what not in _WITH_BUSY_TIME)
        ]
        return (*first, *kernels, *numbers)


def compare(
    old: Entry | None,
    new: Entry,
    *,
    names: Literal["normal", "exact"] = "normal",
    tolerance: Mapping[str, float] = _NO_TOLERANCE,
) -> Comparison:
    """Compare a measurement with its baseline's entry, None where there is none.

    ``names="exact"`` takes another raw name for another kernel, but only under the same software. ``tolerance`` allows
    so much more of a count (an int is added, a float is a share), and makes ``"memory"`` and ``"time"`` gated.
    """
    if old is None:
        return Comparison(verdict="new")
    if device := other_device(old.environment, new.environment):
        return Comparison(verdict="new", environment=f"{device}: it has no baseline")
    return contrast(old, new, names=names, tolerance=tolerance)


def contrast(
    old: Entry,
    new: Entry,
    *,
    names: Literal["normal", "exact"] = "normal",
    tolerance: Mapping[str, float] = _NO_TOLERANCE,
    sides: Sides = THIS_RUN,
) -> Comparison:
    """Compare two entries as `compare` does, also where their devices differ: then structure alone counts."""
    environments = old.environment, new.environment
    environment = other_device(*environments, sides) or other_software(*environments, sides)
    changes = (
        *kernel_changes(old, new, "structure" if environment else names, allowed=tolerance.get("kernels", 0)),
        *number_changes(old, new, tolerance),
        *time_changes(old.time, new.time, tolerance.get("time")),
    )
    stale = old.source != new.source
    return Comparison(verdict=_verdict(changes), changes=changes, stale=stale, environment=environment)


def _verdict(changes: tuple[Change, ...]) -> Verdict:
    if any(change.fails for change in changes):
        return "worse"
    if any(change.direction == AMBIGUOUS for change in changes):
        return "ambiguous"
    if any(change.gated and change.direction == BETTER for change in changes):
        return "better"
    return "changed" if any(not _number(change) or change.what in _COUNTS for change in changes) else "same"


def _number(change: Change) -> bool:
    return change.kind == "number"


def _kernel_line(change: Change) -> str:
    if change.kind != "changed":
        return f"  {_MARKS.get(change.direction, ' ')} {change.words}"
    return f"  ~ {change.words}{f' ({change.times} per step)' if change.times > 1 else ''}"


def _details(changes: tuple[Change, ...], verdict: str) -> list[str]:
    """Return the changes that made the verdict, shortest form first: "+1 kernel", "2 kernels changed"."""
    numbers = {change.what: change for change in changes if _number(change) and change.gated}
    details = [
        _delta(name, numbers[name])
        for name in _NOUNS
        if name in numbers and numbers[name].direction == verdict and not _said_by_kernels(name, numbers)
    ]
    if details or verdict == "same":
        return details
    if verdict == AMBIGUOUS:
        return ["time not compared"]
    deciding = [change for change in changes if change.fails == (verdict == "worse") and not _number(change)]
    launches = sum(change.times for change in deciding if change.kind != "reordered")
    if launches:
        changed = " changed" if verdict != "changed" else ""
        return [f"{counted(launches, 'kernel')}{changed}"]
    return ["order"] if deciding else [change.what for change in changes if change.what in _COUNTS][:2]


def _said_by_kernels(name: str, numbers: Mapping[str, Change]) -> bool:
    """Whether launches went the way of the kernels, which says it already."""
    return name == "launches" and "kernels" in numbers and _moved(numbers["kernels"]) == _moved(numbers["launches"])


def _moved(change: Change) -> float:
    return float(change.new or 0) - float(change.old or 0)


def _delta(name: str, change: Change) -> str:
    moved = _moved(change)
    if name in _SHARES:
        return f"{moved / float(change.old or 1):+.1%} {_NOUNS[name]}"
    return f"{moved:+.0f} {numbered(abs(moved), _NOUNS[name])}"

"""The comparison of a measurement with its baseline: a verdict, and the kernels, numbers and times it rests on."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.compare.changes import (
    AMBIGUOUS,
    BETTER,
    NEUTRAL,
    THIS_RUN,
    WORSE,
    WORTH_A_LINE,
    Change,
    kernel_changes,
    kind_of,
    number_of,
    number_words,
    other_device,
    other_software,
)
from pytest_torchprof.compare.cost import exchanged
from pytest_torchprof.compare.cost_lines import exchange_words
from pytest_torchprof.compare.family_costs import family_lines, family_shifts
from pytest_torchprof.compare.ratios import size_of, turn_of
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import counted, numbered, show_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry, Times
    from pytest_torchprof.compare.changes import Sides
    from pytest_torchprof.compare.cost import Shift


Verdict = Literal["same", "better", "changed", "ambiguous", "worse", "new", "gone"]
TimeVerdict = Literal["same", "better", "worse", "ambiguous"]

_MARKS: Final = {BETTER: "-", WORSE: "+"}
# What a cell of a table has room for, in this order.
_NOUNS: Final = {
    **{number.name: number.noun for number in TABLE if number.headline and (number.gated or number.tolerance)},
    "syncs": "sync",
    "time": "time",
}
_SHARES: Final = frozenset({"time", *(number.name for number in TABLE if number.tolerance)})
_COUNTS: Final = tuple(number.name for number in TABLE if number.exact)
_VARYING: Final = frozenset(number.name for number in TABLE if not number.exact)
# These move with gpu_busy_us; a line each would bury what matters.
_WITH_BUSY_TIME: Final = frozenset(number.name for number in TABLE if number.follows == "gpu_busy_us")
_FEW: Final = 4
"""Up to so many changes of kernels need no line that sums them up."""
_NO_TOLERANCE: Final[Mapping[str, float]] = MappingProxyType({})

GATED: Final = frozenset(number.name for number in TABLE if number.gated)
"""The numbers that fail a test where they are worse, without being asked for."""
# A kernel more that is allowed has a launch more, unless that is given by itself.
_ALLOWED_WITH: Final = {"launches": "kernels"}
PROBABILITY: Final = 0.002
"""Samples differ if chance would rank them so less often than this; it is small because a run judges many tests."""
FLOOR_US: Final = {"events": 2.0, "perf_counter": 10.0}
"""Smaller differences do not count, whatever share of a short step they are: the clock does not resolve them."""
_BEST: Final = 2
"""Which quantile stands for the undisturbed calls: an eighth of them are faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A measurement compared with its baseline, or one entry with another."""

    verdict: Verdict
    changes: tuple[Change, ...] = ()
    stale: bool = False
    """The test's source has changed since the baseline was recorded; it is compared all the same."""
    environment: str | None = None
    """A line about the other device or software, shown before the verdict."""
    exchange: str | None = None
    """What came and went by family, where it is more than a few kernels."""
    families: tuple[Shift, ...] = ()
    """Those that the time moved in, where it did and both sides are of the same device and software."""

    def fails(self, *, strict: bool = False) -> bool:
        """Whether the test fails; ``strict`` also fails one without a baseline, or with times that leave it open."""
        return self.verdict == WORSE or (strict and self.verdict in ("new", AMBIGUOUS))

    @property
    def kernels_differ(self) -> bool:
        """Whether the kernels of a step differ; another order of the same kernels is no difference."""
        return self.verdict in ("new", "gone") or any(
            change.kind not in ("number", "reordered") for change in self.changes
        )

    @property
    def summary(self) -> str:
        """The verdict in a table's cell: "better (-1 kernel)"."""
        details = _details(self.changes, self.verdict) + ["stale"] * self.stale
        if self.environment is not None:
            details.append("other device" if self.verdict == "new" else "other environment")
        return f"{self.verdict} ({', '.join(details)})" if details else self.verdict

    @property
    def lines(self) -> tuple[str, ...]:
        """What changed, a line each: environment, numbers, those that moved most first, then kernels."""
        first = [self.environment] if self.environment else []
        if self.stale:
            first.append("the test was edited after its baseline was recorded (stale)")
        numbers = [
            change
            for change in self.changes
            if _is_number(change) and (change.gated or change.what not in _WITH_BUSY_TIME)
        ]
        exchange = [f"  what came and went: {self.exchange}"] if self.exchange else []
        kernels = _kernel_lines([change for change in self.changes if not _is_number(change)])
        told = map(_number_line, sorted(numbers, key=_gated_and_largest_first))
        return (*first, *told, *family_lines(self.families), *exchange, *kernels)

    @property
    def noise(self) -> tuple[str, ...]:
        """Those of the lines that are about what varies from run to run and gates nothing."""
        varying = (change for change in self.changes if _is_number(change) and not change.gated)
        numbers = (_number_line(change) for change in varying if change.what in _VARYING)
        return (*numbers, *family_lines(self.families))


def _gated_and_largest_first(change: Change) -> tuple[bool, int, float]:
    values = [value if isinstance(value, int | float) else None for value in (change.old, change.new)]
    return not change.gated, turn_of(change.what), -size_of(change.what, (values[0], values[1]))


def _number_line(change: Change) -> str:
    return f"  {change.words}{'' if change.gated or change.direction != WORSE else ' (not gated)'}"


def compare(
    old: Entry | None,
    new: Entry | None,
    *,
    names: Literal["normal", "exact"] = "normal",
    tolerance: Mapping[str, float] = _NO_TOLERANCE,
    sides: Sides | None = None,
) -> Comparison:
    """Compare two entries, None where there is none: a baseline's and this run's, or those of two files.

    ``names="exact"`` takes another raw name for another kernel, but only under the same software. ``tolerance`` allows
    so much more of a count (an int is added, a float is a share), and makes ``"memory"`` and ``"time"`` gated. An entry
    of another device is no baseline. ``sides``, what two files are called ("the first was", "the second"), compares
    their entries all the same, by structure.
    """
    if old is None or new is None:
        return Comparison(verdict="new" if old is None else "gone")
    environments = old.environment, new.environment
    device = other_device(*environments, sides or THIS_RUN)
    if device and sides is None:
        return Comparison(verdict="new", environment=f"{device}: it has no baseline")
    environment = device or other_software(*environments, sides or THIS_RUN)
    changes = (
        *kernel_changes(old, new, "structure" if environment else names, allowed=tolerance.get("kernels", 0)),
        *number_changes(old, new, tolerance),
        *time_changes(old.time, new.time, tolerance.get("time")),
    )
    many = sum(not _is_number(change) for change in changes) > _FEW
    largest = (max(side.steps, key=len, default=()) for side in (old, new))
    return Comparison(
        verdict=_decide(changes),
        changes=changes,
        stale=old.source != new.source,
        environment=environment,
        exchange=exchange_words(exchanged(*largest)) if many else None,
        families=() if environment else family_shifts(old, new),
    )


def _decide(changes: tuple[Change, ...]) -> Verdict:
    if any(change.fails for change in changes):
        return "worse"
    if any(change.direction == AMBIGUOUS for change in changes):
        return "ambiguous"
    if any(change.gated and change.direction == BETTER for change in changes):
        return "better"
    return "changed" if any(not _is_number(change) or change.what in _COUNTS for change in changes) else "same"


def _is_number(change: Change) -> bool:
    return change.kind == "number"


def _kernel_lines(changes: Sequence[Change]) -> list[str]:
    """Return a line for each change; kernels that other software renamed alike share one."""
    renames: defaultdict[tuple[str, str], int] = defaultdict(int)
    for change in changes:
        if change.renamed is not None:
            renames[_kind(change), change.renamed] += change.times
    lines = [f"  ~ {number_of(kind, times)} renamed: {how}" for (kind, how), times in renames.items()]
    others = [_kernel_line(change) for change in changes if change.renamed is None]
    return [*others, *lines, *(["    apart from names the kernels are the same"] if lines and not others else [])]


def _kind(change: Change) -> str:
    name = str(change.new)
    return kind_of(KernelRecord(name=name, family=decode(name).family))


def _kernel_line(change: Change) -> str:
    if change.kind != "changed":
        return f"  {_MARKS.get(change.direction, ' ')} {change.words}"
    return f"  ~ {change.words}{f' ({change.times} per step)' if change.times > 1 else ''}"


def _details(changes: tuple[Change, ...], verdict: str) -> list[str]:
    """Return the changes that made the verdict, shortest form first: "+1 kernel", "2 kernels changed"."""
    numbers = {change.what: change for change in changes if _is_number(change) and change.gated}
    details = [
        _show_movement(name, numbers[name])
        for name in _NOUNS
        if name in numbers and numbers[name].direction == verdict and not _said_by_kernels(name, numbers)
    ]
    if details or verdict == "same":
        return details
    if verdict == AMBIGUOUS:
        return ["time not compared"]
    deciding = [change for change in changes if change.fails == (verdict == "worse") and not _is_number(change)]
    launches = sum(change.times for change in deciding if change.kind != "reordered")
    if launches:
        changed = " changed" if verdict != "changed" else ""
        if all(change.renamed is not None for change in deciding):
            changed = " renamed"
        return [f"{counted(launches, 'kernel')}{changed}"]
    return ["order"] if deciding else [change.what for change in changes if change.what in _COUNTS][:2]


def _said_by_kernels(name: str, numbers: Mapping[str, Change]) -> bool:
    """Whether as many launches came or went as kernels, so that naming both says nothing more."""
    moved = {one: _movement(numbers[one]) for one in ("kernels", "launches") if one in numbers}
    return name == "launches" and moved.get("kernels") == moved["launches"]


def _movement(change: Change) -> float:
    return float(change.new or 0) - float(change.old or 0)


def _show_movement(name: str, change: Change) -> str:
    moved = _movement(change)
    if name in _SHARES:
        return f"{moved / float(change.old or 1):+.1%} {_NOUNS[name]}"
    return f"{moved:+.0f} {numbered(abs(moved), _NOUNS[name])}"


def number_changes(old: Entry, new: Entry, tolerance: Mapping[str, float]) -> Iterator[Change]:
    """Return what changed in the numbers that the code decides, then in those that vary; only memory can be gated."""
    for number in (number for number in TABLE if number.exact):
        was, now = old.numbers.get(number.name), new.numbers.get(number.name)
        if was != now:
            allowed = tolerance.get(number.name, tolerance.get(_ALLOWED_WITH.get(number.name, ""), 0))
            yield _number_change(number, was, now, gated=number.gated, allowed=allowed)
    for number in (number for number in TABLE if not number.exact):
        before, after = old.varying.get(number.name), new.varying.get(number.name)
        if before is None or after is None:
            continue
        share = tolerance.get(number.tolerance)
        if abs(after - before) > abs(before) * (WORTH_A_LINE if share is None else min(share, WORTH_A_LINE)):
            yield _number_change(number, before, after, gated=share is not None, allowed=share or 0.0)


def lacking(old: Entry, new: Entry, tolerance: Mapping[str, float], *, strict: bool = False) -> list[str]:
    """Return the numbers that could fail the test and that the baseline ``old`` does not have, though ``new`` does.

    An entry has each gated number, None where it was not known; only ``strict`` counts that as lacking.
    """
    counts = [name for name in _COUNTS if name in GATED and new.numbers.get(name) is not None]
    varying = [number.name for number in TABLE if number.tolerance in tolerance and number.name in new.varying]
    return [
        *(name for name in counts if name not in old.numbers or (strict and old.numbers[name] is None)),
        *(name for name in varying if name not in old.varying),
    ]


def _number_change(number: Number, was: float | None, now: float | None, *, gated: bool, allowed: float) -> Change:
    direction = _direction_of(number, was, now)
    beyond = (
        was is not None and now is not None and now > was + (allowed if isinstance(allowed, int) else was * allowed)
    )
    return Change(
        kind="number",
        what=number.name,
        old=was,
        new=now,
        direction=direction,
        gated=gated and direction != NEUTRAL and (direction == BETTER or beyond),
        words=number_words(number, was, now),
    )


def _direction_of(number: Number, was: float | None, now: float | None) -> str:
    if was is None or now is None or number.better is None:
        return NEUTRAL
    return BETTER if (now > was) == (number.better == "higher") else WORSE


def time_verdict(old: Times, new: Times, share: float) -> TimeVerdict:
    """Return whether the times are better or worse, by median, best calls and rank; worse only if measured twice."""
    floor = FLOOR_US.get(str(new.conditions.get("clock")), 0.0)
    # Slower code is slower in its best moments too; a busy machine moves the others.
    slower, faster = _beyond(old, new, share, floor), _beyond(new, old, share, floor)
    if any(slower):
        distinct = all(slower) and chance(old.quantiles_us, new.quantiles_us) < PROBABILITY
        return "worse" if distinct and new.confirmed else "ambiguous"
    return "better" if all(faster) and chance(new.quantiles_us, old.quantiles_us) < PROBABILITY else "same"


def _middle_and_best(times: Times) -> tuple[float, float]:
    return times.median_us, times.quantiles_us[min(_BEST, len(times.quantiles_us) - 1)]


def _beyond(fewer: Times, more: Times, share: float, floor: float) -> list[bool]:
    """Return whether the median, and the best calls, took longer by more than the tolerance."""
    pairs = zip(_middle_and_best(fewer), _middle_and_best(more), strict=True)
    return [longer - shorter > max(shorter * share, floor) for shorter, longer in pairs]


def unsure(old: Times | None, new: Times | None, share: float) -> bool:
    """Whether to measure again before judging."""
    return (
        old is not None and new is not None and not differs(old, new) and time_verdict(old, new, share) == "ambiguous"
    )


def differs(old: Times, new: Times) -> str | None:
    """Return the conditions in which the samples were taken differently, None if they can be compared."""
    names = sorted(old.conditions.keys() | new.conditions.keys())
    other = [name for name in names if old.conditions.get(name) != new.conditions.get(name)]
    if not other:
        return None
    sides = (
        ", ".join(f"{name} {side.get(name, 'unknown')}" for name in other) for side in (old.conditions, new.conditions)
    )
    return "its samples were taken with {}, this run's with {}".format(*sides)


def chance(fewer: Sequence[float], more: Sequence[float]) -> float:
    """Return how probable it is that ``more`` ranks so high above ``fewer`` by chance, 0..1.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other" (1947):
    one-sided, normal approximation with corrections for continuity and ties; good from 8 values a side on.
    """
    pooled = sorted([(value, 0) for value in fewer] + [(value, 1) for value in more])
    ranks, ties, below = 0.0, 0, 0
    for _, group in groupby(pooled, key=lambda pair: pair[0]):
        sides = [side for _, side in group]
        ranks += sum(sides) * (below + (len(sides) + 1) / 2)
        ties += len(sides) ** 3 - len(sides)
        below += len(sides)
    above = ranks - len(more) * (len(more) + 1) / 2
    pairs, total = len(fewer) * len(more), len(pooled)
    spread = math.sqrt(pairs / 12 * (total + 1 - ties / (total * (total - 1))))
    return 0.5 * math.erfc((above - pairs / 2 - 0.5) / spread / math.sqrt(2)) if spread else 1.0


def time_changes(old: Times | None, new: Times | None, share: float | None) -> Iterator[Change]:
    """Return what changed in the times; ``share`` is the tolerance, None if times are not gated."""
    if new is None:
        return
    other = differs(old, new) if old is not None else "it has none; --torchprof-baseline=update keeps them"
    if old is None or other:
        if share is not None:
            yield _time_change(old, new, AMBIGUOUS, f"time {show_us(new.median_us)}, not compared: {other}")
        return
    moved = new.median_us / old.median_us - 1 if old.median_us else 0.0
    words = f"time {show_us(old.median_us)} -> {show_us(new.median_us)} ({moved:+.1%})"
    found = time_verdict(old, new, WORTH_A_LINE if share is None else share)
    if found == "ambiguous" and share is not None:
        why = "measured once, not confirmed" if not new.confirmed else "the samples do not tell"
        yield _time_change(old, new, AMBIGUOUS, f"{words}: {why}", gated=True)
    elif found != "same":
        slower = new.median_us > old.median_us
        yield _time_change(old, new, WORSE if slower else BETTER, words, gated=share is not None)
    for whose, side in (("the baseline's samples", old), ("the samples", new)):
        for disturbance in side.disturbed:
            yield _time_change(old, new, NEUTRAL, f"during {whose} {disturbance}")


def _time_change(old: Times | None, new: Times, direction: str, words: str, *, gated: bool = False) -> Change:
    return Change(
        kind="number",
        what="time",
        old=old.median_us if old else None,
        new=new.median_us,
        direction=direction,
        gated=gated,
        words=words,
    )

"""The comparison of a measurement with its baseline: a verdict, and the kernels, numbers and times it rests on."""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pytest_torchprof.analysis.numbers import BY_NAME, TABLE
from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.compare.changes import (
    AMBIGUOUS,
    BETTER,
    NEUTRAL,
    THIS_RUN,
    UNKNOWN,
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
from pytest_torchprof.compare.cost import Shift, exchanged
from pytest_torchprof.compare.cost_lines import exchange_words
from pytest_torchprof.compare.family_costs import family_shifts, family_words
from pytest_torchprof.compare.ratios import size_of, turn_of
from pytest_torchprof.compare.time_changes import time_changes
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import counted, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.changes import Direction, Sides


Verdict = Literal["same", "better", "changed", "ambiguous", "worse", "new", "gone"]

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
"""Up to so many changes of kernels are told on a screen, and need no line that sums them up."""
_LEAP_BYTES: Final = 1 << 20
_NO_TOLERANCE: Final[Mapping[str, float]] = MappingProxyType({})
_NOWHERE: Final[Mapping[Change, Sequence[str]]] = MappingProxyType({})
_STALE: Final = "the test was edited after its baseline was recorded (stale)"

GATED: Final = frozenset(number.name for number in TABLE if number.gated)
"""The numbers that fail a test where they are worse, without being asked for."""
# A kernel more that is allowed has a launch more, unless that is given by itself.
_ALLOWED_WITH: Final = {"launches": "kernels"}


class Comparison(Struct, frozen=True, kw_only=True):
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
    """Where the GPU time is, if it moved and both sides are of the same device and software."""

    def fails(self, *, strict: bool = False) -> bool:
        """Whether the test fails; ``strict`` also fails one without a baseline, or with times that leave it open."""
        return self.verdict == WORSE or (strict and self.verdict in ("new", AMBIGUOUS))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The kernels of which it is not known whether they are the baseline's, in words."""
        return tuple(change.words for change in self.changes if change.direction == UNKNOWN)

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
        """What changed, a line each: what decides first, and last, in one line, what varies from run to run."""
        return self.told(every=True)

    def told(self, *, every: bool) -> tuple[str, ...]:
        """Return what changed, a line each; ``every``: all kernels, not only the first ones."""
        return (*self.decided(every=every), *self.varied())

    def decided(self, places: Mapping[Change, Sequence[str]] = _NOWHERE, *, every: bool = True) -> tuple[str, ...]:
        """Return what the code decides: kernels, below each its ``places``, then numbers, those that are gated first.

        Another environment is said before all of it, since it may be the reason; an edit of the test after it.
        """
        environment, exchange = self.environment, f"  what came and went: {self.exchange}"
        blocks = [*_kernel_lines(self._kernels, places)]
        shown = blocks if every else blocks[:_FEW]
        numbers = [change for change in self.numbers if not is_noise(change)]
        hidden = len(blocks) - len(shown)
        return (
            *([environment] if environment else []),
            *([exchange] if self.exchange else []),
            *(line for block in shown for line in block),
            *([f"  ... and {counted(hidden, 'more change')} (-v)"] if hidden else []),
            *(line for change in numbers for line in (_number_line(change), *places.get(change, ()))),
            *([f"  {_STALE}"] if self.stale else []),
        )

    def varied(self, *, numbers: bool = True) -> tuple[str, ...]:
        """Return a line of what varies from run to run and gates nothing; without ``numbers``, of where the time is."""
        moved = [change.words for change in self.numbers if numbers and is_noise(change)]
        families = family_words(self.families)
        where = [f"where the time is, by family: {'; '.join(families)}"] if families else []
        return (f"  not gated: {'; '.join([*moved, *where])}",) if moved or where else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What else is not as it was: environment, and the test itself."""
        return (*([self.environment] if self.environment else []), *([_STALE] if self.stale else []))

    @property
    def numbers(self) -> tuple[Change, ...]:
        """The numbers that changed: first what fails the test, then what is gated, of each those that moved most."""
        numbers = [
            change
            for change in self.changes
            if _is_number(change) and (change.gated or (change.what not in _WITH_BUSY_TIME and _is_seen(change)))
        ]
        return tuple(sorted(numbers, key=_gated_and_largest_first))

    @property
    def kernel_lines(self) -> tuple[str, ...]:
        """What became of single kernels, a line each."""
        return tuple(line for block in _kernel_lines(self._kernels) for line in block)

    @property
    def _kernels(self) -> list[Change]:
        """The changes of kernels, last those that only have another name or place: they fail no test."""
        kernels = (change for change in self.changes if not _is_number(change))
        return sorted(kernels, key=lambda change: change.direction == NEUTRAL)


def is_noise(change: Change) -> bool:
    """Whether a change is of a number that varies from run to run and gates nothing."""
    return _is_number(change) and not change.gated and change.what in _VARYING and not _is_leap(change)


def _is_leap(change: Change) -> bool:
    """Whether memory is so much more, or less, that no two runs of the same code differ by it."""
    number, values = BY_NAME.get(change.what), (change.old, change.new)
    if number is None or number.unit != "bytes" or not all(isinstance(value, int | float) for value in values):
        return False
    low, high = sorted(float(value or 0) for value in values)
    return high >= 2 * low and high - low >= _LEAP_BYTES


def _gated_and_largest_first(change: Change) -> tuple[bool, bool, int, float]:
    values = [value if isinstance(value, int | float) else None for value in (change.old, change.new)]
    moved = size_of(change.what, (values[0], values[1]))
    return not change.fails, not change.gated, turn_of(change.what), -moved


def _is_seen(change: Change) -> bool:
    """Whether both values look different as they are printed."""
    before, after = change.old, change.new
    number = BY_NAME.get(change.what)
    if number is None or isinstance(before, str) or isinstance(after, str):
        return True
    return before is None or after is None or number.show(before) != number.show(after)


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


def _kernel_lines(changes: Sequence[Change], places: Mapping[Change, Sequence[str]] = _NOWHERE) -> Iterator[list[str]]:
    """Yield the line of each change and its places below; kernels that other software renamed alike share one."""
    renames: defaultdict[tuple[str, str], int] = defaultdict(int)
    for change in changes:
        if change.renamed is None:
            yield [_kernel_line(change), *places.get(change, ())]
        else:
            renames[_kind(change), change.renamed] += change.times
    for (kind, how), times in renames.items():
        yield [f"  ~ {number_of(kind, times)} renamed: {how}"]
    if renames and all(change.renamed is not None for change in changes):
        yield ["    apart from names the kernels are the same"]


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


def _direction_of(number: Number, was: float | None, now: float | None) -> Direction:
    if was is None or now is None or number.better is None:
        return NEUTRAL
    return BETTER if (now > was) == (number.better == "higher") else WORSE

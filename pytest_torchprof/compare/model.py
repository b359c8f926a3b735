"""The difference of two measurements, as words and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_torchprof.compare.item import NOUNS, STRUCTURAL
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text.escape import printable_line
from pytest_torchprof.text.plural import counted, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.compare.item import Item

# What one line, and what a page, has room for; the data has all of it.
_SHOWN: Final = 4
_LINES: Final = 20
_FEW: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """The same kernel under another name, ``count`` times."""

    old: str
    new: str
    count: int
    explanation: str

    @property
    def words(self) -> str:
        """One line for people."""
        times = f"{self.count}x " if self.count > 1 else ""
        return f"{times}{printable_line(decode(self.old).short)} renamed: {printable_line(self.explanation)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Kernels that others took the place of, ``count`` times; either side may be empty."""

    old: tuple[Item, ...]
    new: tuple[Item, ...]
    count: int

    @property
    def words(self) -> str:
        """One line for people: "two pointwise became one Triton kernel"."""
        times = f" ({self.count}x)" if self.count > 1 else ""
        if not self.new:
            return f"{_counted(self.old)} gone{times}: {_listed(self.old)}"
        if not self.old:
            return f"{_counted(self.new)} more{times}: {_listed(self.new)}"
        return f"{_counted(self.old)} became {_counted(self.new)}{times}: {_listed(self.old)} -> {_listed(self.new)}"

    @property
    def summary(self) -> str:
        """The same without the names."""
        return self.words.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDiff:
    """Two measurements compared: kernel by kernel, a step of one with a step of the other.

    These are the steps with most kernels; where those run the same kernels and others do not, the first that do not.
    """

    same: Mapping[str, int]
    """How many kernels stayed what they were, by family."""
    renamed: tuple[Renamed, ...]
    replaced: tuple[Replaced, ...]
    numbers: Mapping[str, tuple[float | None, float | None]]
    """What else differs: number -> (before, after), times in microseconds."""
    kernels_differ: bool
    """Whether names without Triton's trailing index, or their counts, differ in any step."""
    moved: int = 0
    """How many of the same kernels run in another place."""
    steps: tuple[str | None, str | None] | None = None
    """Names of the compared steps where they are not those with most kernels."""
    devices: tuple[str, str] | None = None
    """The GPUs, where they are not the same."""

    def __bool__(self) -> bool:
        return self.kernels_differ

    @property
    def words(self) -> str:
        """One line for people: "same GEMM, two pointwise became one Triton kernel"."""
        parts = [_same_words(self.same)] if self.same else []
        swapped = [change for change in self.replaced if change.old and change.new]
        parts += [change.summary for change in swapped[:_SHOWN]]
        if len(swapped) > _SHOWN:
            parts.append(counted(len(swapped) - _SHOWN, "more such change"))
        parts += _one_sided(self.replaced)
        if renamed := sum(change.count for change in self.renamed):
            parts.append(f"{renamed} renamed")
        if self.moved:
            parts.append(f"{self.moved} in another place")
        return ", ".join(parts) or "no kernels in either"

    @property
    def lines(self) -> list[str]:
        """What is different, one line each, after a line that says it all; the most frequent changes first."""
        replaced = sorted(self.replaced, key=lambda change: -change.count)
        renamed = sorted(self.renamed, key=lambda change: -change.count)
        found = [f"recorded on {' and on '.join(self.devices)}"] if self.devices else []
        found.append(self.words)
        if self.steps:
            first, second = (name or "the recording" for name in self.steps)
            found.append(f"  these are {first} and {second}; the steps with most kernels run the same")
        found += [f"  {change.words}" for change in replaced[:_LINES]]
        found += [f"  {counted(len(replaced) - _LINES, 'more change')} (see --json)"] * (len(replaced) > _LINES)
        found += [f"  {change.words}" for change in renamed[:_LINES]]
        found += [f"  {counted(len(renamed) - _LINES, 'more rename')} (see --json)"] * (len(renamed) > _LINES)
        found += [f"  {name}: {_number(before)} -> {_number(after)}" for name, (before, after) in self.numbers.items()]
        return found

    def to_dict(self) -> dict[str, object]:
        """Return the difference as JSON data."""
        return {
            "same": dict(self.same),
            "renamed": [
                {"old": change.old, "new": change.new, "count": change.count, "explanation": change.explanation}
                for change in self.renamed
            ],
            "replaced": [
                {
                    "old": [item.name for item in change.old],
                    "new": [item.name for item in change.new],
                    "count": change.count,
                    "words": change.words,
                }
                for change in self.replaced
            ],
            "numbers": {name: list(values) for name, values in self.numbers.items()},
            "kernels_differ": self.kernels_differ,
            "words": self.words,
            "moved": self.moved,
            "steps": list(self.steps) if self.steps else None,
            "devices": list(self.devices) if self.devices else None,
        }


def _noun(key: str, count: int) -> str:
    return numbered(count, NOUNS.get(key, NOUNS["other"]))


def _amount(count: int) -> str:
    return _FEW[count] if count < len(_FEW) else str(count)


def _counted(items: Sequence[Item]) -> str:
    counts = Counter(item.noun for item in items)
    if len(counts) > 2:
        return f"{_amount(len(items))} {_noun('other', len(items))}"
    return " and ".join(f"{_amount(count)} {_noun(key, count)}" for key, count in counts.items())


def _same_words(same: Mapping[str, int]) -> str:
    named = {key: count for key, count in same.items() if key in (*STRUCTURAL, "communication")}
    rest = sum(same.values()) - sum(named.values())
    parts = [_noun(key, 1) if count == 1 else f"{_amount(count)} {_noun(key, count)}" for key, count in named.items()]
    if rest:
        noun = next(iter(same)) if len(same) == 1 else "other"
        word = f"{_amount(rest)} {_noun(noun, rest)}" if not named else f"{_amount(rest)} other {_noun('other', rest)}"
        parts.append(word if rest > 1 or named else _noun(noun, 1))
    return "same " + ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _listed(items: Sequence[Item], shown: int = 4) -> str:
    words = [f"{item.short}{f' ({item.op})' if item.op and item.op != item.short else ''}" for item in items]
    more = len(words) - shown
    return ", ".join(map(printable_line, words[:shown])) + (f", {more} more" if more > 0 else "")


def _one_sided(replaced: Iterable[Replaced]) -> list[str]:
    """Return what came and what went, by kind of kernel: "12 GEMMs more", "one copy gone"."""
    sides: dict[str, Counter[str]] = {"more": Counter(), "gone": Counter()}
    for change in replaced:
        if not (change.old and change.new):
            for item in change.old or change.new:
                sides["gone" if change.old else "more"][item.noun] += change.count
    return [
        f"{_amount(count)} {_noun(key, count)} {side}"
        for side, counts in sides.items()
        for key, count in counts.items()
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "not recorded"
    return str(value) if isinstance(value, int) else f"{value:.1f}".removesuffix(".0")

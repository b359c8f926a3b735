"""What is different between two measurements of the same code, as words and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.names import decode, normal_name, without_index
from pytest_torchprof.printable import printable_line
from pytest_torchprof.rename import explain_rename

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.kernels import Kernel
    from pytest_torchprof.profile import Profile, StepProfile

# Aligning is quadratic in the worst case; longer steps are compared by counts.
_ALIGNED: Final = 3000
_STRUCTURAL: Final = ("gemm", "conv", "attention")
_NOUNS: Final = {
    "gemm": ("GEMM", "GEMMs"),
    "conv": ("convolution", "convolutions"),
    "attention": ("attention kernel", "attention kernels"),
    "pointwise": ("pointwise", "pointwise"),
    "reduction": ("reduction", "reductions"),
    "copy": ("copy", "copies"),
    "communication": ("collective", "collectives"),
    "triton": ("Triton kernel", "Triton kernels"),
    "other": ("kernel", "kernels"),
}
_COUNTS: Final = ("kernels", "launches", "graph_launches", "memcpys", "memsets", "syncs")
_TIMES: Final = ("kernel_time_us", "gpu_busy_us", "cpu_time_us")
# What one line, and what a page, has room for; the data has all of it.
_SHOWN: Final = 4
_LINES: Final = 20
_FEW: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One kernel of a compared step, as far as comparing needs it."""

    name: str
    short: str
    family: str
    dtype: str | None = None
    layout: str | None = None
    triton: str | None = None
    op: str | None = None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What makes it the same kernel: family, dtype and layout where it has them, else its normal name."""
        if self.family in _STRUCTURAL and self.triton in (None, "user"):
            return (self.family, self.dtype, self.layout)
        return (normal_name(self.name),)

    @property
    def noun(self) -> str:
        """The key of the word for it."""
        if self.triton is not None and self.family not in _STRUCTURAL:
            return "triton"
        return self.family if self.family in _NOUNS else "other"


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
            parts.append(f"{len(swapped) - _SHOWN} more such changes")
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
        found += [f"  {len(replaced) - _LINES} more changes (see --json)"] * (len(replaced) > _LINES)
        found += [f"  {change.words}" for change in renamed[:_LINES]]
        found += [f"  {len(renamed) - _LINES} more renames (see --json)"] * (len(renamed) > _LINES)
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


def diff(before: Profile, after: Profile) -> ProfileDiff:
    """Compare two measurements of the same code; numbers are the medians over their steps.

    NotMeasured where one of them may not be believed.
    """
    for profile in (before, after):
        if reason := profile.why_not or profile.kernels_unknown:
            raise NotMeasured(f"{profile.trace.path or 'a recording'} is not measured: {reason}")
    numbers = {}
    for name in (*_COUNTS, *_TIMES):
        old, new = getattr(before.median, name), getattr(after.median, name)
        if old != new:
            numbers[name] = (old, new)
    first, second = _compared(before.steps, after.steps)
    found = compare_items(_items(first.kernels), _items(second.kernels), numbers)
    most = {max(profile.steps, key=_count) for profile in (before, after)}
    found = replace(found, devices=_devices(before, after))
    return found if {first, second} == most or not found else replace(found, steps=(first.name, second.name))


def _devices(before: Profile, after: Profile) -> tuple[str, str] | None:
    first, second = (
        ", ".join(dict.fromkeys(device.name for device in profile.trace.devices if device.name))
        for profile in (before, after)
    )
    return (printable_line(first), printable_line(second)) if first and second and first != second else None


def _compared(before: Sequence[StepProfile], after: Sequence[StepProfile]) -> tuple[StepProfile, StepProfile]:
    """Return the steps to compare: of most kernels, or the first that run what no step of the other measurement runs.

    Steps are the same in whatever order; how often each occurs counts only where there are as many on either side.
    """
    first, second = max(before, key=_count), max(after, key=_count)
    kinds = {step: frozenset(_names(step.kernels).items()) for step in (*before, *after)}
    left, right = (Counter(kinds[step] for step in steps) for steps in (before, after))
    if len(before) != len(after):
        left, right = Counter(set(left)), Counter(set(right))
    alone, new = left - right, right - left
    if not alone and not new:
        return first, next(step for step in after if kinds[step] == kinds[first])
    if kinds[first] != kinds[second]:
        return first, second
    return (
        next((step for step in before if kinds[step] in alone), first),
        next((step for step in after if kinds[step] in new), second),
    )


def _count(step: StepProfile) -> int:
    return len(step.kernels)


def _items(kernels: Iterable[Kernel]) -> list[Item]:
    return [
        Item(
            name=kernel.name,
            short=kernel.short,
            family=kernel.family,
            dtype=kernel.dtype,
            layout=kernel.layout,
            triton=kernel.triton,
            op=kernel.op,
        )
        for kernel in kernels
    ]


def compare_items(
    before: Sequence[Item],
    after: Sequence[Item],
    numbers: Mapping[str, tuple[float | None, float | None]],
) -> ProfileDiff:
    """Compare two lists of kernels in launch order; ``numbers`` are kept as they are given."""
    moved = 0
    if max(len(before), len(after)) <= _ALIGNED:
        pairs, runs = _aligned(before, after)
        elsewhere, runs = _without_moved(runs)
        pairs, moved = pairs + elsewhere, len(elsewhere)
    else:
        pairs, runs = _counted_off(before, after)
    renames = Counter((old.name, new.name) for old, new in pairs if without_index(old.name) != without_index(new.name))
    return ProfileDiff(
        same=Counter(old.noun for old, _ in pairs),
        renamed=tuple(
            Renamed(old=old, new=new, count=count, explanation=explain_rename(old, new))
            for (old, new), count in renames.items()
        ),
        replaced=tuple(Replaced(old=old, new=new, count=count) for (old, new), count in Counter(runs).items()),
        numbers=numbers,
        kernels_differ=_names(before) != _names(after),
        moved=moved,
    )


Pairs = list[tuple[Item, Item]]
Runs = list[tuple[tuple[Item, ...], tuple[Item, ...]]]


def _aligned(before: Sequence[Item], after: Sequence[Item]) -> tuple[Pairs, Runs]:
    """Pair what stayed, in launch order; what stands between is what took each other's place."""
    matcher = SequenceMatcher(
        None, [item.identity for item in before], [item.identity for item in after], autojunk=False
    )
    pairs: Pairs = []
    runs: Runs = []
    for tag, old, old_end, new, new_end in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(before[old:old_end], after[new:new_end], strict=True)
        else:
            runs.append((tuple(before[old:old_end]), tuple(after[new:new_end])))
    return pairs, runs


def _without_moved(runs: Runs) -> tuple[Pairs, Runs]:
    """Pair what left one place and came in another; return the pairs, and what is left in the places."""
    left = Counter(item.identity for old, _ in runs for item in old)
    came = Counter(item.identity for _, new in runs for item in new)
    both = left & came
    taken: list[list[Item]] = [[], []]
    kept: list[list[tuple[Item, ...]]] = [[], []]
    for side in (0, 1):
        waiting = Counter(both)
        for run in runs:
            stays = []
            for item in run[side]:
                if waiting[item.identity] > 0:
                    waiting[item.identity] -= 1
                    taken[side].append(item)
                else:
                    stays.append(item)
            kept[side].append(tuple(stays))
    by_identity = [sorted(items, key=lambda item: str(item.identity)) for items in taken]
    return list(zip(*by_identity, strict=True)), [run for run in zip(*kept, strict=True) if any(run)]


def _counted_off(before: Sequence[Item], after: Sequence[Item]) -> tuple[Pairs, Runs]:
    """Pair by identity, whatever the order; what is left over on either side is gone or more."""
    waiting: dict[tuple[str | None, ...], list[Item]] = {}
    for item in before:
        waiting.setdefault(item.identity, []).append(item)
    for items in waiting.values():
        items.reverse()
    pairs: Pairs = []
    left: list[Item] = []
    for item in after:
        stack = waiting.get(item.identity)
        if stack:
            pairs.append((stack.pop(), item))
        else:
            left.append(item)
    gone = [item for items in waiting.values() for item in reversed(items)]
    # One of each kind stands for all: their raw names may differ in what does not matter here.
    kinds: dict[tuple[str | None, ...], Item] = {}
    runs: Runs = [((), (kinds.setdefault((*item.identity, item.op), item),)) for item in left]
    runs += [((kinds.setdefault((*item.identity, item.op), item),), ()) for item in gone]
    return pairs, runs


def _names(items: Iterable[Item | Kernel]) -> Counter[str]:
    return Counter(without_index(item.name) for item in items)


def _noun(key: str, count: int) -> str:
    one, many = _NOUNS.get(key, _NOUNS["other"])
    return one if count == 1 else many


def _amount(count: int) -> str:
    return _FEW[count] if count < len(_FEW) else str(count)


def _counted(items: Sequence[Item]) -> str:
    counts = Counter(item.noun for item in items)
    if len(counts) > 2:
        return f"{_amount(len(items))} kernels"
    return " and ".join(f"{_amount(count)} {_noun(key, count)}" for key, count in counts.items())


def _same_words(same: Mapping[str, int]) -> str:
    named = {key: count for key, count in same.items() if key in (*_STRUCTURAL, "communication")}
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

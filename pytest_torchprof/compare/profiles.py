"""Two measurements of the same code side by side: kernel by kernel, in words and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.baseline.entry import STRUCTURAL, records
from pytest_torchprof.compare.changes import amount, explain_rename, kind_of, noun, number_of, swap_words
from pytest_torchprof.compare.cost import cost_of
from pytest_torchprof.compare.cost_lines import cost_lines, exchange_words, number_lines
from pytest_torchprof.compare.difference import RULES, difference
from pytest_torchprof.compare.ratios import GPU_TIME, largest_first
from pytest_torchprof.compare.sameness import work_on_the_same
from pytest_torchprof.errors import NotMeasured
from pytest_torchprof.kernels.names import decode, without_index
from pytest_torchprof.kernels.operand_types import told_types
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.reasons.composed import OfRecording
from pytest_torchprof.text import WIDTH, counted, cut_inside, printable_line, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.steps import StepProfile
    from pytest_torchprof.baseline import KernelRecord
    from pytest_torchprof.compare.cost import Cost

    Kinds = Mapping[StepProfile, frozenset[tuple[tuple[str, str | None], int]]]

# What one line, and what a page, has room for; the data has all of it.
_SHOWN: Final = 4
_LINES: Final = 4


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
    """Kernels and those that took their place, ``count`` times; either side may be empty."""

    old: tuple[KernelRecord, ...]
    new: tuple[KernelRecord, ...]
    count: int

    @property
    def words(self) -> str:
        """One line for people: "two pointwise became one Triton kernel: pointwise gelu, ... -> triton_poi_..."."""
        if len(self.old) == len(self.new) == 1:
            return f"{self.summary}: {_explain(self.old[0], self.new[0])}"
        names = " -> ".join(_list_names(side) for side in (self.old, self.new) if side)
        return f"{self.summary}: {names}"

    @property
    def summary(self) -> str:
        """The same without the names."""
        return self.change + _times(self.count)

    @property
    def change(self) -> str:
        """Once: "two pointwise became one Triton kernel", "one Triton kernel became another"."""
        was, now = _count_kinds(self.old), _count_kinds(self.new)
        if not self.new:
            return f"{was} gone"
        if not self.old:
            return f"{now} more"
        if was == now:
            return f"{was} became {'another' if len(self.old) == 1 else 'others'}"
        return f"{was} became {now}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDiff:
    """Two measurements compared: kernel by kernel, a step of one with a step of the other.

    Compared are the steps with most kernels; if those run the same kernels and other steps do not, the first of those.
    """

    same: Mapping[str, int]
    """How many kernels stayed what they were, by family."""
    renamed: tuple[Renamed, ...]
    replaced: tuple[Replaced, ...]
    numbers: Mapping[str, tuple[float | None, float | None]]
    """What else differs: number -> (before, after), times in microseconds; times first, the largest ratio first."""
    kernels_differ: bool
    """Whether names without Triton's trailing index, types where both sides tell them, or counts differ in any step."""
    moved: int = 0
    """How many of the same kernels run in another place."""
    steps: tuple[str | None, str | None] | None = None
    """Names of the compared steps where they are not those with most kernels."""
    devices: tuple[str, str] | None = None
    """The GPUs, where they are not the same."""
    clocks: str | None = None
    """Why times tell nothing about the code, where the GPU's clocks were not the same."""
    cost: Cost
    """Where the GPU time of the compared steps is."""

    def __bool__(self) -> bool:
        return self.kernels_differ

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """One line for people: "same GEMM, two pointwise became one Triton kernel"."""
        parts = [_say_same(self.same)] if self.same else []
        swapped: Counter[str] = Counter()
        for change in self.replaced:
            if change.old and change.new:
                swapped[change.change] += change.count
        parts += [words + _times(count) for words, count in [*swapped.items()][:_SHOWN]]
        if len(swapped) > _SHOWN:
            parts.append(counted(len(swapped) - _SHOWN, "more such change"))
        parts += _count_one_sided(self.replaced)
        if renamed := sum(change.count for change in self.renamed):
            parts.append(f"{renamed} renamed")
        if self.moved:
            parts.append(f"{self.moved} in another place")
        return ", ".join(parts) or "no kernels in either"

    @property
    def lines(self) -> list[str]:
        """The difference on a screen: numbers, where the time is, what came and went, and the first of the kernels."""
        return self.told()

    def told(self, *, width: int = WIDTH, every: bool = False) -> list[str]:
        """Return the lines as they fit ``width`` columns; ``every``: all kernels that differ, not only the first."""
        lines = [f"recorded on {' and on '.join(self.devices)}"] if self.devices else []
        lines += [self.clocks] if self.clocks else []
        lines += [line for words in number_lines(self.numbers, self.cost) for line in wrapped(words, "  ", width=width)]
        lines += cost_lines(self.cost, width=width, every=every)
        if came_and_went := exchange_words(self.cost.families):
            lines += wrapped(f"what came and went: {came_and_went}", "  ", width=width)
        if self.steps:
            first, second = (name or "the recording" for name in self.steps)
            lines.append(f"these are {first} and {second}; the steps with most kernels run the same")
        return lines + self._kernel_lines(width, every=every)

    def _kernel_lines(self, width: int, *, every: bool) -> list[str]:
        """Return what became of single kernels: a line each for the most frequent changes, or all that is known."""
        changes = [*_most_frequent(self.replaced), *_most_frequent(self.renamed)]
        if every:
            told = [line for words in changes for line in wrapped(words, "      ", first="  ", width=width)]
            return [*wrapped(self.words, "  ", width=width), *told]
        more = len(changes) - _LINES
        return [
            *wrapped(self.words if len(self.words) <= 2 * width else self._brief, "  ", width=width),
            *(f"  {cut_inside(words, width - 2)}" for words in changes[:_LINES]),
            *([f"  ... and {counted(more, 'more change')} (-v)"] if more > 0 else []),
        ]

    @property
    def _brief(self) -> str:
        renamed = sum(change.count for change in self.renamed)
        went = sum(len(change.old) * change.count for change in self.replaced)
        came = sum(len(change.new) * change.count for change in self.replaced)
        return (
            f"kernel by kernel: {sum(self.same.values()):,} the same ({renamed:,} of them renamed, {self.moved:,} in "
            f"another place), {went:,} gone, {came:,} more"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the difference as JSON data."""
        replaced = [
            {**to_builtins(change), "old": _names(change.old), "new": _names(change.new), "words": change.words}
            for change in self.replaced
        ]
        return {**to_builtins(self), "replaced": replaced, "words": self.words}


def diff(before: Analysis, after: Analysis) -> ProfileDiff:
    """Compare two measurements of the same code; numbers are the medians over their steps.

    NotMeasured if one of them cannot be trusted.
    """
    for profile in (before, after):
        if reason := profile.doubt or profile.kernels_unknown:
            raise NotMeasured(OfRecording(str(profile.trace.path or ""), reason))
    names = [number.name for number in TABLE if not number.detail or number.name == GPU_TIME]
    numbers = {name: (getattr(before.median, name), getattr(after.median, name)) for name in names}
    kinds = _kinds((*before.steps, *after.steps))
    first, second = _compared_steps(before.steps, after.steps, kinds)
    delta = difference(records(first.kernels), records(second.kernels), RULES["normal"])
    differ = kinds[first] != kinds[second] or any(work_on_the_same(*pair) is NO for pair in delta.swapped)
    most = {max(profile.steps, key=_count_kernels) for profile in (before, after)}
    return ProfileDiff(
        same=dict(Counter(kind_of(kernel) for kernel, _ in (*delta.stayed, *delta.moved))),
        renamed=tuple(
            Renamed(old=old, new=new, count=count, explanation=explain_rename(old, new))
            for (old, new), count in _merge_names(delta.renamed).items()
        ),
        replaced=tuple(
            Replaced(old=went, new=came, count=count) for (went, came), count in Counter(delta.places).items()
        ),
        numbers=largest_first({name: values for name, values in numbers.items() if values[0] != values[1]}),
        kernels_differ=differ,
        moved=len(delta.moved),
        steps=(first.name, second.name) if differ and {first, second} != most else None,
        devices=_different_devices(before, after),
        clocks=_different_clocks(before, after),
        cost=cost_of(before, after, (_like(first, before.steps, kinds), _like(second, after.steps, kinds))),
    )


def _compared_steps(
    before: Sequence[StepProfile], after: Sequence[StepProfile], kinds: Kinds
) -> tuple[StepProfile, StepProfile]:
    """Return the steps to compare: those with most kernels, or the first that the other measurement does not have.

    The order of the steps does not matter; how often each occurs counts only if there are as many on either side.
    """
    first, second = max(before, key=_count_kernels), max(after, key=_count_kernels)
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


def _like(step: StepProfile, others: Sequence[StepProfile], kinds: Kinds) -> Sequence[StepProfile]:
    """Return the steps that run the same kernels as this one."""
    return [other for other in others if kinds[other] == kinds[step]]


def _count_kernels(step: StepProfile) -> int:
    return len(step.kernels)


def _kinds(steps: Sequence[StepProfile]) -> Kinds:
    """Return how many kernels of each name and types each step runs; where types are not told somewhere, of each name.

    One of two recordings may hold no operands.
    """
    told = {step: Counter((without_index(one.name), told_types(one)) for one in step.kernels) for step in steps}
    untold = {name for counts in told.values() for name, types in counts if types is None}
    kinds = {}
    for step, counts in told.items():
        kernels: Counter[tuple[str, str | None]] = Counter()
        for (name, types), count in counts.items():
            kernels[name, None if name in untold else types] += count
        kinds[step] = frozenset(kernels.items())
    return kinds


def _names(kernels: Iterable[KernelRecord]) -> list[str]:
    return [kernel.name for kernel in kernels]


def _merge_names(pairs: Mapping[tuple[KernelRecord, KernelRecord], int]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for (old, new), count in pairs.items():
        counts[old.name, new.name] += count
    return counts


def _different_clocks(before: Analysis, after: Analysis) -> str | None:
    locked = [one.trace.samples_hardware for one in (before, after)]
    if locked[0] == locked[1]:
        return None
    one = "first" if locked[0] else "second"
    return f"times tell nothing of the code: in the {one} the GPU's units were sampled (PM sampling), at locked clocks"


def _different_devices(before: Analysis, after: Analysis) -> tuple[str, str] | None:
    first, second = (
        ", ".join(dict.fromkeys(device.name for device in profile.trace.devices if device.name))
        for profile in (before, after)
    )
    return (printable_line(first), printable_line(second)) if first and second and first != second else None


def _times(count: int) -> str:
    return f" ({count}x)" if count > 1 else ""


def _explain(was: KernelRecord, now: KernelRecord) -> str:
    """Return what is different in the kernel that took another's place."""
    if (was.dtype, was.layout, was.operands) != (now.dtype, now.layout, now.operands):
        return swap_words(was, now)
    how = explain_rename(was.name, now.name)
    names = " -> ".join(_list_names([one]) for one in (was, now))
    return names if was.short in how else f"{names}: {printable_line(how)}"


def _most_frequent(changes: Sequence[Replaced | Renamed]) -> list[str]:
    return [change.words for change in sorted(changes, key=lambda change: -change.count)]


def _count_kinds(kernels: Sequence[KernelRecord]) -> str:
    counts = Counter(map(kind_of, kernels))
    if len(counts) > 2:
        return number_of("other", len(kernels))
    return " and ".join(number_of(kind, count) for kind, count in counts.items())


def _say_same(same: Mapping[str, int]) -> str:
    named = {kind: count for kind, count in same.items() if kind in (*STRUCTURAL, "communication")}
    if named and len(same) - len(named) <= 2:
        named = {**named, **same}
    rest = sum(same.values()) - sum(named.values())
    # Without "all" these might be other ones than before.
    others = [f"all {amount(rest)} other {noun('other', rest)}"] if rest and named else []
    if not named:
        named = {next(iter(same)) if len(same) == 1 else "other": rest}
    parts = [noun(kind, 1) if count == 1 else number_of(kind, count) for kind, count in named.items()] + others
    return "same " + ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _list_names(kernels: Sequence[KernelRecord], shown: int = 4) -> str:
    words = [f"{one.short}{f' ({one.op})' if one.op and one.op != one.short else ''}" for one in kernels]
    more = len(words) - shown
    return ", ".join(map(printable_line, words[:shown])) + (f", {more} more" if more > 0 else "")


def _count_one_sided(replaced: Iterable[Replaced]) -> list[str]:
    """Return what came and what went, by kind of kernel: "12 GEMMs more", "one copy gone"."""
    sides: dict[str, Counter[str]] = {"more": Counter(), "gone": Counter()}
    for change in replaced:
        if not (change.old and change.new):
            for kernel in change.old or change.new:
                sides["gone" if change.old else "more"][kind_of(kernel)] += change.count
    return [f"{number_of(kind, count)} {side}" for side, counts in sides.items() for kind, count in counts.items()]

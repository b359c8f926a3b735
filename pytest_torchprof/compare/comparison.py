"""Two measurements compared: the verdict, and the kernels, numbers and times that it rests on."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.compare import family_words, words
from pytest_torchprof.compare.change import (
    AMBIGUOUS,
    BETTER,
    NEUTRAL,
    TWO_FILES,
    UNKNOWN,
    WORSE,
    Change,
    OtherEnvironment,
    Sides,
)
from pytest_torchprof.compare.change_words import change_words, noise_words, rename_words
from pytest_torchprof.compare.cost import Cost, Shift  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.compare.cost_lines import cost_lines, large_and_small, number_lines
from pytest_torchprof.compare.notes import EditedTest, environment_note, units_sampled
from pytest_torchprof.compare.number_changes import COUNTS, is_noise, numbers_to_show
from pytest_torchprof.reasons.disturbances import AnyDisturbance  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import and_more, counted, numbered, printable_line
from pytest_torchprof.text.cutting import cut_inside
from pytest_torchprof.text.wrapping import WIDTH, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


Verdict = Literal["same", "better", "changed", "ambiguous", "worse", "new", "gone"]
About = Literal["broke", "came", "changed", "went", "place", "gated", "other"]

_MARKS: Final[dict[str, tuple[str, About]]] = {BETTER: ("-", "went"), WORSE: ("+", "came")}
# The changes that a cell of a table has room for, in this order.
_NOUNS: Final = {
    **{number.name: number.noun for number in TABLE if number.headline and (number.gated or number.tolerance)},
    "syncs": "sync",
    "time": "time",
}
_SHARES: Final = frozenset({"time", *(number.name for number in TABLE if number.tolerance)})
VARIED: Final = "for information, not gated: "
"""What stands in front of numbers that vary from run to run."""
FEW: Final = 4
"""The most changes of kernels that a screen shows in full; they need no line that sums them up."""


class DifferenceLine(NamedTuple):
    """A line about a difference, and its subject: a kernel that came, went or changed, a gated number, or other.

    Lines with a "place" belong to the kernel above them.
    """

    text: str
    about: About = "other"
    subject: str = ""
    """The kernel that came, went or changed, the graph break's place, or the number before and after."""
    file_line: str = ""
    """The place at which it was launched; None if it is not known for sure."""
    full: str = ""
    """The whole name of a kernel that came or went."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Two measurements compared: of one test and its baseline, of two files, ranks or commits, or of two recordings.

    Of two recordings, a step of one is compared with a step of the other: those with most kernels, or, if those run the
    same kernels and other steps do not, the first of those. These have all numbers that differ, and ``cost`` unless
    times are not compared.
    """

    verdict: Verdict
    kernels_differ: bool = False
    """Whether the kernels of a step differ; another order of the same kernels is no difference."""
    changes: tuple[Change, ...] = ()
    stale: bool = False
    """The test's source has changed since the baseline was recorded; it is compared nevertheless."""
    environment: OtherEnvironment | None = None
    """The other device or software, shown before the verdict."""
    exchanged: tuple[Shift, ...] = ()
    """The kernels that either side launches, by family, if more than a few kernels changed."""
    families: tuple[Shift, ...] = ()
    """The use of the GPU time, if it changed and both sides ran on the same device and software."""
    disturbed: tuple[tuple[AnyDisturbance | str, ...], tuple[AnyDisturbance | str, ...]] = ((), ())
    """The disturbances of the machine while each side's times were taken; texts of earlier versions."""
    of_recordings: bool = False
    """Whether two recordings are compared, and not entries of baselines."""
    same: dict[str, int] = {}
    """The number of unchanged kernels, by kind; only between recordings."""
    cost: Cost | None = None
    """The use of the GPU time in the compared steps; only between recordings whose times are compared."""
    steps: tuple[str | None, str | None] | None = None
    """The names of the compared steps of recordings, if they are not the steps with most kernels."""
    sides: Sides = TWO_FILES
    """The names of the two measurements."""
    sampled: tuple[bool, bool] = (False, False)
    """On which sides the GPU's units were sampled, at locked clocks; if on any, times are not compared."""

    def __bool__(self) -> bool:
        return self.kernels_differ

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def fails(self, *, strict: bool = False) -> bool:
        """Return whether the test fails; ``strict`` also fails a test without a baseline or with undecided times."""
        return self.verdict == WORSE or (strict and self.verdict in ("new", AMBIGUOUS))

    @property
    def unknown(self) -> tuple[Change, ...]:
        """The changes of kernels of which it is not known whether they are the baseline's."""
        return tuple(change for change in self.changes if change.direction == UNKNOWN)

    @property
    def numbers(self) -> tuple[Change, ...]:
        """The numbers that changed: first those that fail the test, then the gated ones, the largest changes first."""
        return numbers_to_show(self.changes)

    @property
    def kernels(self) -> list[Change]:
        """The changes of kernels: first those that fail the test, last those with only another name or position.

        A fused kernel that is gone, whose parts came instead, is the cause of those.
        """
        kernels = (change for change in self.changes if not change.is_number)
        return sorted(
            kernels, key=lambda change: (not (change.fails or change.lost_fusion), change.direction == NEUTRAL)
        )

    @property
    def summary(self) -> str:
        """The verdict in a table's cell: "better (-1 kernel)"."""
        details = _details(self.changes, self.verdict) + ["stale"] * self.stale
        if self.environment is not None:
            details.append("other device" if self.verdict == "new" else "other environment")
        return f"{self.verdict} ({', '.join(details)})" if details else self.verdict

    @property
    def words(self) -> str:
        """The changes of the kernels, in a line; for recordings "same GEMM, two pointwise became one Triton kernel"."""
        if not self.of_recordings:
            return counted(len(self.kernels), "change")
        return words.kernels_words(self.same, self.changes)

    @property
    def exchange(self) -> str | None:
        """The kernels that came and went, by family, in words; None for none or only a few."""
        return family_words.exchange_words(self.exchanged if self.cost is None else self.cost.families)

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes, a line each: for recordings only the first of the kernels, otherwise all of them."""
        return self.screen_lines(every=not self.of_recordings)

    @property
    def headline(self) -> str:
        """The gist of a comparison of recordings: its first large change of a number, else how kernels differ."""
        large, _ = large_and_small(self.changes)
        return number_lines(large, self.cost)[0] if large else self.words

    def screen_lines(self, *, every: bool, width: int = WIDTH) -> tuple[str, ...]:
        """Return the changes, a line each; ``every``: all kernels, not only the first ones.

        Those of recordings fit ``width`` columns.
        """
        if self.of_recordings:
            return tuple(_recording_lines(self, width=width, every=every))
        return (*self.decided(every=every), *self.varied())

    def decided(self, *, every: bool = True) -> tuple[str, ...]:
        """Return the texts of ``decided_lines``."""
        return tuple(line.text for line in self.decided_lines(every=every))

    def decided_lines(self, *, every: bool = True) -> Iterator[DifferenceLine]:
        """Yield the changes that the code decides: kernels and graph breaks with their places, then numbers.

        Another environment comes before all of them, since it may be the reason; an edit of the test after them.
        """
        if self.environment is not None:
            yield DifferenceLine(self.environment_words)
        if clocks := self._clock_words:
            yield DifferenceLine(f"  {clocks}")
        if self.exchange:
            line = family_words.exchange_line(self.exchanged) or f"what came and went: {self.exchange}"
            yield DifferenceLine(f"  {line}")
        blocks = self._kernel_blocks()
        shown = blocks if every else blocks[:FEW]
        yield from (line for block in shown for line in block)
        if hidden := len(blocks) - len(shown):
            yield DifferenceLine(f"  ...{and_more(hidden, 'change')} (-v)")
        decided = [change for change in self.numbers if not is_noise(change)]
        for change in decided:
            yield from (DifferenceLine(text, "broke", subject=place) for text, place in words.break_lines(change))
        for change in decided:
            not_gated = "" if change.gated or change.direction != WORSE else " (not gated)"
            number = change_words(change)
            about: About = "gated" if change.fails else "other"
            yield DifferenceLine(f"  {number}{not_gated}", about, subject=number)
        yield from (DifferenceLine(f"  {text}") for text in words.disturbance_words(self.disturbed))
        if self.stale:
            yield DifferenceLine(f"  {EditedTest()}")

    def without_noise(self) -> Comparison:
        """Return the comparison without the numbers that vary from run to run and gate nothing."""
        return replace(self, changes=tuple(change for change in self.changes if not is_noise(change)))

    def varied(self) -> tuple[str, ...]:
        """Return lines about changes that vary from run to run and gate nothing: numbers, and the use of the time."""
        moved = [noise_words(change) for change in self.numbers if is_noise(change)]
        families = family_words.family_words(self.families)
        where = [f"where the time is, by family: {'; '.join(families)}"] if families else []
        return (f"  {VARIED}{'; '.join([*moved, *where])}",) if moved or where else ()

    def varied_figures(self) -> tuple[str, ...]:
        """Return the figures that vary from run to run and gate nothing, a number each, the most important first."""
        moved = [noise_words(change) for change in self.numbers if is_noise(change)]
        return (*moved, *family_words.family_times(self.families))

    @property
    def environment_words(self) -> str:
        """The other device or software in words; empty if both are the same."""
        if self.environment is None:
            return ""
        text = str(environment_note(self.environment))
        return f"{text}: it has no baseline" if self.verdict == "new" else text

    @property
    def notes(self) -> tuple[str, ...]:
        """Further changes, a line each: environment, clocks, disturbances of the machine, and the test itself."""
        notes = (
            self.environment_words,
            self._clock_words,
            *words.disturbance_words(self.disturbed),
            str(EditedTest()) if self.stale else "",
        )
        return tuple(filter(None, notes))

    @property
    def _clock_words(self) -> str:
        return str(units_sampled(self.sampled, self.sides) or "")

    @property
    def kernel_lines(self) -> tuple[str, ...]:
        """The changes of individual kernels, a line each."""
        return tuple(line.text for block in self._kernel_blocks() for line in block)

    def _kernel_blocks(self) -> list[list[DifferenceLine]]:
        """Return the lines of each change; kernels that other software renamed in the same way share one."""
        blocks: list[list[DifferenceLine]] = []
        renames: Counter[tuple[str, str]] = Counter()
        for alike in _grouped_by_place(self.kernels):
            for change in alike:
                if change.kind == "renamed" and self.environment is not None:
                    (was,), (now,) = change.before, change.after
                    renames[family_words.kind_of(now), rename_words(was, now)] += change.times
                else:
                    blocks.append(_block(change, alike))
        all_renamed = not blocks
        for (kind, how), times in renames.items():
            blocks.append([DifferenceLine(f"  ~ {family_words.number_of(kind, times)} renamed: {how}", "changed")])
        if renames and all_renamed:
            blocks.append([DifferenceLine("    apart from names the kernels are the same")])
        return blocks


def _grouped_by_place(changes: Iterable[Change]) -> Iterator[tuple[Change, ...]]:
    """Yield the changes, those together that follow each other and whose kernels are launched at the same places."""
    for launched, alike in groupby(changes, lambda change: change.launched):
        if launched is not None and launched.is_sure:
            yield tuple(alike)
        else:
            yield from ((change,) for change in alike)


def _block(change: Change, alike: Sequence[Change]) -> list[DifferenceLine]:
    """Return the lines of a change; the first of those launched at the same places names these for all of them."""
    text, place = change_words(change), change.file_line or ""
    if change.kind in ("changed", "renamed"):
        per_step = f" ({change.times} per step)" if change.times > 1 else ""
        line = DifferenceLine(f"  ~ {text}{per_step}", "changed", text, place)
    else:
        mark, about = _MARKS.get(change.direction, (" ", "other"))
        full = next((kernel.name for kernel in (*change.after, *change.before)), "")
        line = DifferenceLine(f"  {mark} {text}", about, change.what, place, full)
    places = words.place_lines(change, len(alike) - 1) if change is alike[0] else ()
    return [line, *(DifferenceLine(text, "place") for text in places)]


def _recording_lines(comparison: Comparison, *, width: int, every: bool) -> Iterator[str]:
    """Yield the differences of two recordings: numbers, use of the time, families that came and went, first kernels."""
    for note in comparison.notes:
        yield from wrapped(note, "  ", width=width)
    cost = comparison.cost
    for text in number_lines(comparison.changes, cost):
        yield from wrapped(text, "  ", width=width)
    if cost is not None:
        yield from cost_lines(cost, width=width, every=every)
    if comparison.exchange:
        yield from wrapped(f"what came and went: {comparison.exchange}", "  ", width=width)
    if comparison.steps:
        first, second = (name or "the recording" for name in comparison.steps)
        steps = f"these are {first} and {second}; the steps with most kernels run the same"
        yield from wrapped(steps, "  ", width=width)
    kernels = [
        change_words(change)
        for kind in ("replaced", "renamed")
        for change in sorted(comparison.changes, key=lambda change: -change.times)
        if change.kind == kind
    ]
    if every:
        yield from wrapped(comparison.words, "  ", width=width)
        for text in kernels:
            yield from wrapped(printable_line(text), "      ", first="  ", width=width)
        return
    summed_up = (
        comparison.words
        if len(comparison.words) <= 2 * width
        else words.brief_words(comparison.same, comparison.changes)
    )
    yield from wrapped(summed_up, "  ", width=width)
    yield from (f"  {cut_inside(text, width - 2)}" for text in kernels[:FEW])
    if more := and_more(len(kernels) - FEW, "change"):
        yield f"  ...{more} (-v)"


def verdict_of(changes: tuple[Change, ...]) -> Verdict:
    """Return the verdict that follows from changes."""
    if any(change.fails for change in changes):
        return "worse"
    if any(change.direction == AMBIGUOUS for change in changes):
        return "ambiguous"
    if any(change.gated and change.direction == BETTER for change in changes):
        return "better"
    return "changed" if any(not change.is_number or change.what in COUNTS for change in changes) else "same"


def _details(changes: tuple[Change, ...], verdict: str) -> list[str]:
    """Return the changes that made the verdict, in short: "+1 kernel", "2 kernels changed"."""
    numbers = {change.what: change for change in changes if change.is_number and change.gated}
    details = [
        _show_movement(name, numbers[name])
        for name in _NOUNS
        if name in numbers and numbers[name].direction == verdict and not _follows_kernels(name, numbers)
    ]
    if details or verdict == "same":
        return details
    if verdict == AMBIGUOUS:
        return ["time not compared"]
    deciding = [change for change in changes if change.fails == (verdict == "worse") and not change.is_number]
    launches = sum(change.times for change in deciding if change.kind != "reordered")
    if launches:
        changed = " changed" if verdict != "changed" else ""
        if all(change.kind == "renamed" for change in deciding):
            changed = " renamed"
        return [f"{counted(launches, 'kernel')}{changed}"]
    return ["order"] if deciding else [change.what for change in changes if change.what in COUNTS][:2]


def _follows_kernels(name: str, numbers: Mapping[str, Change]) -> bool:
    """Return whether as many launches as kernels came or went, so that naming both adds nothing."""
    moved = {name: _movement(numbers[name]) for name in ("kernels", "launches") if name in numbers}
    return name == "launches" and moved.get("kernels") == moved["launches"]


def _movement(change: Change) -> float:
    return float(change.new or 0) - float(change.old or 0)


def _show_movement(name: str, change: Change) -> str:
    moved = _movement(change)
    if name in _SHARES:
        return f"{moved / float(change.old or 1):+.1%} {_NOUNS[name]}"
    return f"{moved:+.0f} {numbered(abs(moved), _NOUNS[name])}"

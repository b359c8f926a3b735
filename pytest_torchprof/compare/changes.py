"""What differs between two measurements, one thing at a time; the kernels in the words of a reviewer."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.compare.difference import RULES, difference, keys, most_alike
from pytest_torchprof.compare.words import explain_rename
from pytest_torchprof.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.difference import Difference, Names, Step

BETTER: Final = "better"
WORSE: Final = "worse"
NEUTRAL: Final = "neutral"
AMBIGUOUS: Final = "ambiguous"
"""It may be worse; the samples do not tell."""

WORTH_A_LINE: Final = 0.10
"""What varies from run to run is worth a line only where it moved by a larger share than noise does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference, with which way it goes and whether that fails the test."""

    kind: Literal["added", "removed", "changed", "count", "reordered", "number"]
    what: str
    """A kernel's short name, or a number's name."""
    old: str | float | None
    """The kernel's raw name or count, the number; None where the baseline has none."""
    new: str | float | None
    direction: str
    gated: bool
    """Whether it counts for the verdict: worse fails, better is better."""
    words: str
    times: int = 1
    """How many launches of a step it concerns."""

    @property
    def fails(self) -> bool:
        """Whether it fails the test."""
        return self.gated and self.direction == WORSE


def kernel_changes(old: Entry, new: Entry, names: Names, *, allowed: float = 0) -> tuple[Change, ...]:
    """Return what changed in the kernels of each distinct step; up to ``allowed`` further launches do not fail.

    A step whose kernels some step of the baseline had is the same, whichever step it was; any other is compared with
    the baseline's step that is most like it.
    """
    rule = RULES[names]
    known = {tuple(keys(step, rule.same)): step for step in _as_read_now(old, new) or ((),)}
    changes: dict[tuple[str, str, object], Change] = {}
    for step in new.launched() or ((),):
        before = known.get(tuple(keys(step, rule.same))) or most_alike(step, known.values(), rule)
        for change in _changes(difference(before, step, rule), before, step, names, allowed):
            once = (change.kind, change.what, change.old if change.kind == "changed" else None)
            if once not in changes or changes[once].times < change.times:
                changes[once] = change
    return tuple(changes.values())


def _as_read_now(old: Entry, new: Entry) -> tuple[Step, ...]:
    """Return the baseline's steps with what this version reads from the names that are still there.

    One raw name is one family; where the two entries say otherwise, another version of this package recorded one. Where
    it is now read in several ways, as an operator's name is on several types, the baseline's may be any of them.
    """
    readings: defaultdict[object, list[KernelRecord]] = defaultdict(list)
    for kernel in new.kernels:
        readings[kernel.name].append(kernel)
        readings[kernel.name, kernel.op].append(kernel)

    def read(kernel: KernelRecord) -> KernelRecord:
        now = readings.get((kernel.name, kernel.op)) or readings.get(kernel.name)
        if now is None or len(now) > 1:
            return kernel
        (same,) = now
        dtype, layout = kernel.dtype or same.dtype, kernel.layout or same.layout
        return replace(kernel, family=same.family, helper=same.helper, dtype=dtype, layout=layout)

    kernels = [read(kernel) for kernel in old.kernels]
    return tuple(tuple(kernels[i] for i in order) for order in old.steps)


def _changes(delta: Difference, before: Step, step: Step, names: Names, allowed: float) -> Iterator[Change]:
    too_many = len(delta.came) > (allowed if isinstance(allowed, int) else len(before) * allowed)
    for (was, now), times in Counter(delta.swapped).items():
        yield _swap(was, now, times, names)
    same = RULES[names].same
    were, are = Counter(keys(before, same)), Counter(keys(step, same))
    for kernel, times in Counter(delta.went).items():
        yield _count(kernel, times, were[same(kernel)], are[same(kernel)], gated=True)
    for kernel, times in Counter(delta.came).items():
        yield _count(kernel, times, were[same(kernel)], are[same(kernel)], gated=too_many)
    for (was, now), times in delta.renamed.items():
        yield _changed(was, now, times, NEUTRAL, explain_rename(was.name, now.name))
    if delta.moved:
        first, times = delta.moved[0][1].short, len(delta.moved)
        words = f"another order: {counted(times, 'kernel')} moved, first {first}"
        yield Change(
            kind="reordered", what=first, old=None, new=None, direction=NEUTRAL, gated=False, words=words, times=times
        )


def _swap(was: KernelRecord, now: KernelRecord, times: int, names: Names) -> Change:
    facts = [(fact, getattr(was, fact), getattr(now, fact)) for fact in ("dtype", "layout")]
    differ = [f"{fact} {a or 'not told'} -> {b or 'not told'}" for fact, a, b in facts if a != b]
    # A name that tells less, or more, than the other is no other kernel; two that tell different things are.
    untold = bool(differ) and all(a == b or None in (a, b) for _, a, b in facts)
    same_name = was.family in STRUCTURAL or names == "structure" or was.normal_name == now.normal_name
    if names == "structure" and was.structure == now.structure:
        return _changed(was, now, times, NEUTRAL, explain_rename(was.name, now.name))
    if untold and names != "exact" and same_name:
        return _changed(was, now, times, NEUTRAL, ", ".join(differ))
    return _changed(was, now, times, WORSE, ", ".join(differ) or explain_rename(was.name, now.name))


def _changed(was: KernelRecord, now: KernelRecord, times: int, direction: str, how: str) -> Change:
    how = printable(how)
    return Change(
        kind="changed",
        what=now.short,
        old=was.name,
        new=now.name,
        direction=direction,
        gated=direction == WORSE,
        words=f"{was.short} -> {now.short}" if how in was.short + now.short else f"{now.short}: {how}",
        times=times,
    )


def _count(kernel: KernelRecord, times: int, was: int, now: int, *, gated: bool) -> Change:
    kind: Literal["added", "removed", "count"] = "count" if was and now else "removed" if was else "added"
    launched = f", launched by {printable(kernel.op)}" if kernel.op else ""
    per_step = f"{was} -> {now} per step" if kind == "count" else f"{times} per step"
    return Change(
        kind=kind,
        what=kernel.short,
        old=was or None,
        new=now or None,
        direction=WORSE if now > was else BETTER,
        gated=gated,
        words=f"{kernel.short}: {per_step}{launched}",
        times=times,
    )

"""The kernels of a measurement against its baseline: a sequence diff per step, in the words of a reviewer."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_torchprof.baseline.change import BETTER, NEUTRAL, WORSE, Change
from pytest_torchprof.baseline.model import STRUCTURAL, Entry, Row
from pytest_torchprof.baseline.sequence import difference, pair_anywhere
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.kernels.renames import explain_rename
from pytest_torchprof.text.escape import printable
from pytest_torchprof.text.plural import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from pytest_torchprof.baseline.sequence import Difference

    Same = Callable[[Row], Hashable]

Names = Literal["normal", "exact", "structure"]
"""What makes two kernels the same: identity, raw name, or family, dtype and layout alone (other software)."""

_FACTS: Final = ("dtype", "layout")


def _by_identity(row: Row) -> Hashable:
    # A pointwise kernel's normal name does not say its dtype; another dtype is another kernel all the same.
    return (row.identity, row.dtype)


def _by_name(row: Row) -> Hashable:
    return (row.name, row.dtype, row.layout)


def _by_structure(row: Row) -> Hashable:
    return row.structure


def _kind_of_work(row: Row) -> Hashable:
    return (row.family, row.helper)


def _work(row: Row) -> Hashable:
    return _kind_of_work(row) if row.family in STRUCTURAL else (row.family, row.helper, row.op)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One way to compare."""

    same: Same
    """What makes two kernels the same."""
    work: Same
    """What lets one kernel stand in another's place."""
    anywhere: tuple[Same, ...] = ()
    """What lets it do so wherever in the step it is launched, the best reason first."""
    alike: Same
    """By what a step's counterpart in the baseline is chosen."""


_WAYS: Final[dict[Names, _Way]] = {
    "normal": _Way(same=_by_identity, work=_work, alike=_by_identity),
    "exact": _Way(same=_by_name, work=_work, alike=_by_identity),
    # Kernels that kept their names are the same; of the others, only how many there are of each structure counts.
    "structure": _Way(
        same=_by_identity, work=_by_structure, anywhere=(_by_structure, _kind_of_work), alike=_by_structure
    ),
}


def kernel_changes(old: Entry, new: Entry, names: Names, *, allowed: float = 0) -> tuple[Change, ...]:
    """Return what changed in the kernels of each distinct step; up to ``allowed`` further launches do not fail.

    A step whose kernels some step of the baseline had is the same, whichever step it was; any other is compared with
    the baseline's step that is most like it.
    """
    way = _WAYS[names]
    known = {tuple(map(way.same, step)): step for step in _as_told_now(old, new) or ((),)}
    found: dict[tuple[str, str, object], Change] = {}
    for step in new.launched() or ((),):
        tokens = tuple(map(way.same, step))
        before = known[tokens] if tokens in known else _most_alike(step, known.values(), way.alike)
        differs = difference(before, step, way.same, way.work)
        for key in way.anywhere:
            pair_anywhere(differs, key)
        for change in _changes(differs, before, step, names, allowed):
            once = (change.kind, change.what, change.old if change.kind == "changed" else None)
            if once not in found or found[once].times < change.times:
                found[once] = change
    return tuple(found.values())


def _as_told_now(old: Entry, new: Entry) -> tuple[tuple[Row, ...], ...]:
    """Return the baseline's steps with what this version reads from the names that are still there.

    One raw name is one family; where the two entries say otherwise, another version of this package recorded one. Where
    it is now read in several ways, as an operator's name is on several types, the baseline's may be any of them.
    """
    now: defaultdict[object, list[Row]] = defaultdict(list)
    for row in new.kernels:
        now[row.name].append(row)
        now[row.name, row.op].append(row)

    def told(row: Row) -> Row:
        read = now.get((row.name, row.op)) or now.get(row.name)
        if read is None or len(read) > 1:
            return row
        (same,) = read
        dtype, layout = row.dtype or same.dtype, row.layout or same.layout
        return replace(row, family=same.family, helper=same.helper, dtype=dtype, layout=layout)

    rows = tuple(map(told, old.kernels))
    return tuple(tuple(rows[i] for i in order) for order in old.steps)


def _most_alike(step: tuple[Row, ...], known: Iterable[tuple[Row, ...]], alike: Same) -> tuple[Row, ...]:
    here = Counter(map(alike, step))

    def unlike(other: tuple[Row, ...]) -> int:
        there = Counter(map(alike, other))
        return ((here - there) + (there - here)).total()

    return min(known, key=unlike)


def _changes(
    found: Difference, before: tuple[Row, ...], step: tuple[Row, ...], names: Names, allowed: float
) -> Iterator[Change]:
    same = _WAYS[names].same
    further = found.gained.total()
    too_many = further > (allowed if isinstance(allowed, int) else len(before) * allowed)
    for (was, now), times in found.replaced.items():
        yield _replaced(was, now, times, names)
    were, are = Counter(map(same, before)), Counter(map(same, step))
    for row, times in found.lost.items():
        yield _count(row, times, were[same(row)], are[same(row)], gated=True)
    for row, times in found.gained.items():
        yield _count(row, times, were[same(row)], are[same(row)], gated=too_many)
    for (was, now), times in found.renamed.items():
        if without_index(was.name) != without_index(now.name):
            yield _changed(was, now, times, NEUTRAL, _explained(was, now))
    if found.moved:
        first = next(iter(found.moved)).short
        times = found.moved.total()
        words = f"another order: {counted(times, 'kernel')} moved, first {first}"
        yield Change(
            kind="reordered", what=first, old=None, new=None, direction=NEUTRAL, gated=False, words=words, times=times
        )


def _replaced(was: Row, now: Row, times: int, names: Names) -> Change:
    facts = [(fact, getattr(was, fact), getattr(now, fact)) for fact in _FACTS]
    differ = [f"{fact} {a or 'not told'} -> {b or 'not told'}" for fact, a, b in facts if a != b]
    # A name that tells less, or more, than the other is no other kernel; two that tell different things are.
    untold = bool(differ) and all(a == b or None in (a, b) for _, a, b in facts)
    same_name = was.family in STRUCTURAL or names == "structure" or was.identity == now.identity
    if names == "structure" and was.structure == now.structure:
        return _changed(was, now, times, NEUTRAL, _explained(was, now))
    if untold and names != "exact" and same_name:
        return _changed(was, now, times, NEUTRAL, ", ".join(differ))
    return _changed(was, now, times, WORSE, ", ".join(differ) or _explained(was, now))


def _changed(was: Row, now: Row, times: int, direction: str, how: str) -> Change:
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


def _count(row: Row, times: int, was: int, now: int, *, gated: bool) -> Change:
    kind: Literal["added", "removed", "count"] = "count" if was and now else "removed" if was else "added"
    launched = f", launched by {printable(row.op)}" if row.op else ""
    per_step = f"{was} -> {now} per step" if kind == "count" else f"{times} per step"
    return Change(
        kind=kind,
        what=row.short,
        old=was or None,
        new=now or None,
        direction=WORSE if now > was else BETTER,
        gated=gated,
        words=f"{row.short}: {per_step}{launched}",
        times=times,
    )


def _explained(was: Row, now: Row) -> str:
    return printable(explain_rename(was.name, now.name))

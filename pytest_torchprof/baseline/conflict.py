"""A baseline file that two branches changed: its entries taken from the side that changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.baseline.form import BASE, OURS, THEIRS, THEIRS_END

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_torchprof.baseline.entry import Entry
    from pytest_torchprof.baseline.form import WrittenEntry

_PARTS: Final[Mapping[str, Callable[[Entry], object]]] = {
    "kernels": lambda entry: entry.steps,
    "numbers": lambda entry: {name: value for name, value in entry.numbers.items() if name != "kernels"},
    "ranks": lambda entry: entry.ranks,
    "source": lambda entry: entry.source,
    "environment": lambda entry: entry.environment,
    "times": lambda entry: (entry.varying, entry.time),
}


class ChangedByBoth(Struct, frozen=True, kw_only=True):
    """An entry that both sides of a merge changed in different ways."""

    key: str
    what: tuple[str, ...]
    """The parts in which the sides differ: kernels, ranks, times and so on."""
    kept: str
    """The entry that was taken: "ours", "theirs", "removed", "as merged"."""
    to_measure: bool
    """Whether it has to be measured again: both changed more than times."""


class Resolution(Struct, frozen=True, kw_only=True):
    """The entries of both sides of a merge, by key."""

    entries: Mapping[str, WrittenEntry]
    overlaps: tuple[ChangedByBoth, ...]


class Versions(Struct, frozen=True, kw_only=True):
    """The common ancestor of a merge and its two sides: entries by key."""

    base: Mapping[str, WrittenEntry]
    ours: Mapping[str, WrittenEntry]
    theirs: Mapping[str, WrittenEntry]

    def of(self, key: str) -> tuple[Entry | None, Entry | None, Entry | None]:
        """Return the entry in each version; None for a version that does not have it."""
        was, our, their = (_entry(side.get(key)) for side in (self.base, self.ours, self.theirs))
        return was, our, their


def sides(text: str) -> tuple[str, str, str | None]:
    """Return ours, theirs and, if the markers give it, the common ancestor in a text with merge markers."""
    ours: list[str] = []
    theirs: list[str] = []
    base: list[str] = []
    has_base = False
    now: tuple[list[str], ...] = (ours, base, theirs)
    for line in text.splitlines(keepends=True):
        if line.startswith(OURS):
            now = (ours,)
        elif line.startswith(BASE):
            now, has_base = (base,), True
        elif line.startswith(THEIRS):
            now = (theirs,)
        elif line.startswith(THEIRS_END):
            now = (ours, base, theirs)
        else:
            for side in now:
                side.append(line)
    return "".join(ours), "".join(theirs), "".join(base) if has_base else None


def resolve(versions: Versions, left: Versions) -> Resolution:
    """Return the entries of a merge: each from the side that changed it, or from the side that changed kernels.

    ``left`` are the sides as the merged file has them. An entry that is the same in both was merged by version control,
    or by hand, and stays. An entry in which both sides changed more than times is ours, or theirs if we removed it.
    """
    entries: dict[str, WrittenEntry] = {}
    overlaps: list[ChangedByBoth] = []
    for key in sorted({*versions.ours, *versions.theirs, *left.ours, *left.theirs}):
        taken, there = left.ours.get(key), left.theirs.get(key)
        if taken == there:
            overlap = find_overlap(key, _entry(taken), versions)
        else:
            overlap = _overlap(key, *versions.of(key))
            is_ours = overlap.kept != "theirs" if overlap is not None else _is_ours(*versions.of(key))
            taken = (versions.ours if is_ours else versions.theirs).get(key)
        overlaps += [overlap] if overlap is not None else []
        if taken is not None:
            entries[key] = taken
    return Resolution(entries=entries, overlaps=tuple(overlaps))


def find_overlap(key: str, merged: Entry | None, versions: Versions) -> ChangedByBoth | None:
    """Return the changes of both sides to an entry that was merged line by line; None if a side has measured it so."""
    was, our, their = versions.of(key)
    if (
        merged is None
        or was in (our, their)
        or our == their
        or _without_times(merged) in (_without_times(our), _without_times(their))
    ):
        return None
    # Neither side's times show that it was measured since.
    if our is None or their is None or merged.varying not in (our.varying, their.varying):
        return None
    return ChangedByBoth(key=key, what=_differences(our, their), kept="as merged", to_measure=True)


def _is_ours(was: Entry | None, our: Entry | None, their: Entry | None) -> bool:
    """Return whether ours stays, for an entry that not both sides changed in different ways."""
    return our != was or our == their


def _overlap(key: str, was: Entry | None, our: Entry | None, their: Entry | None) -> ChangedByBoth | None:
    """Return the overlap in an entry that both sides changed, with the side that is taken; None if they did not."""
    if was in (our, their) or our == their:
        return None
    before, here, there = map(_without_times, (was, our, their))
    both = before not in (here, there) and here != there
    taken = their if (both and our is None) or (here == before and there != before) else our
    other = our if taken is their else their
    loses_times = taken is not None and other is not None and taken.time is None and other.time is not None
    return ChangedByBoth(
        key=key,
        what=_differences(our, their),
        kept="removed" if taken is None else "theirs" if taken is their else "ours",
        to_measure=both or loses_times,
    )


def _differences(our: Entry | None, their: Entry | None) -> tuple[str, ...]:
    """Return the names of the parts in which two entries differ, or which side removed the entry."""
    if our is None or their is None:
        return (f"removed by {'us' if our is None else 'them'}",)
    return tuple(name for name, part in _PARTS.items() if part(our) != part(their))


def _without_times(entry: Entry | None) -> tuple[object, ...] | None:
    """Return the parts of an entry that are compared, without times, which differ between any two measurements."""
    return None if entry is None else tuple(part(entry) for name, part in _PARTS.items() if name != "times")


def _entry(written: WrittenEntry | None) -> Entry | None:
    return None if written is None else written.entry

"""A baseline file that two branches changed: its entries taken from the side that changed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_torchprof.baseline.form import BASE, OURS, THEIRS, THEIRS_END

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline.entry import Entry
    from pytest_torchprof.baseline.form import WrittenEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The entries of both sides of a merge, by key."""

    entries: Mapping[str, WrittenEntry]
    undecided: tuple[str, ...]
    """What both sides changed, each in its way: the entry is one side's, and has to be measured again."""


def sides(text: str) -> tuple[str, str, str | None]:
    """Return ours, theirs and, where the markers tell it, the common ancestor of a text with merge markers."""
    ours: list[str] = []
    theirs: list[str] = []
    base: list[str] = []
    told_base = False
    now: tuple[list[str], ...] = (ours, base, theirs)
    for line in text.splitlines(keepends=True):
        if line.startswith(OURS):
            now = (ours,)
        elif line.startswith(BASE):
            now, told_base = (base,), True
        elif line.startswith(THEIRS):
            now = (theirs,)
        elif line.startswith(THEIRS_END):
            now = (ours, base, theirs)
        else:
            for side in now:
                side.append(line)
    return "".join(ours), "".join(theirs), "".join(base) if told_base else None


def resolve(
    base: Mapping[str, WrittenEntry], ours: Mapping[str, WrittenEntry], theirs: Mapping[str, WrittenEntry]
) -> Resolution:
    """Return the entries of a merge: each from the side that changed what is compared of it, else ours.

    What both sides changed is ours, or theirs where we removed it, and undecided.
    """
    entries: dict[str, WrittenEntry] = {}
    undecided = []
    for key in sorted({*base, *ours, *theirs}):
        was, our, their = base.get(key), ours.get(key), theirs.get(key)
        before, here, there = map(_measured, (was, our, their))
        taken = our
        if our == was or (here == before and there != before):
            taken = their
        elif before not in (here, there) and here != there:
            taken = our or their
            undecided.append(key)
        if taken is not None:
            entries[key] = taken
    return Resolution(entries=entries, undecided=tuple(undecided))


def _measured(written: WrittenEntry | None) -> tuple[object, ...] | None:
    """Return what is compared of an entry, without what varies from run to run."""
    if written is None:
        return None
    entry: Entry = written.entry
    return entry.source, entry.environment, entry.steps, entry.numbers

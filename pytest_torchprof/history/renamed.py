"""Earlier names that are measured again after their tests got others: what has them now may be another test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.notes import ALL_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.series import Series


class OldNameAgain(Struct, frozen=True, kw_only=True, order=True):
    """A test with an earlier name, which an alias takes for the one that had it."""

    old: str
    now: str
    """The test that it counts as."""
    alias: str
    """The earlier name in the alias, of a single test or of all of a file: "old.py::*"."""
    since: str
    """The first commit at which the earlier name came after the later one."""


def old_names_again(all_series: Iterable[Series]) -> list[OldNameAgain]:
    """Return the series whose newest points have an earlier name, though what the alias renames had the later one.

    A renaming that was taken back and made again is none of these.
    """
    renamed = [
        (series, _indices_by_name(series))
        for series in all_series
        if any(stretch.measured.test != series.key.test for stretch in series.stretches)
    ]
    moved: dict[str, int] = {}
    for series, commits in renamed:
        notes = series.branch.notes
        for name in commits:
            later = [commits[own][0] for own in notes.later_names(name) if own in commits]
            if later:
                alias = _alias_of(name, notes)
                moved[alias] = min(moved.get(alias, later[0]), *later)
    again = set()
    for series, commits in renamed:
        newest = max(commits, key=lambda name: commits[name][-1])
        alias = _alias_of(newest, series.branch.notes)
        after = [commit for commit in commits[newest] if alias in moved and commit > moved[alias]]
        if after:
            commit = series.branch.commits[after[0]]
            again.add(OldNameAgain(old=newest, now=series.key.test, alias=alias, since=commit))
    return sorted(again)


def _indices_by_name(series: Series) -> Mapping[str, list[int]]:
    """Return where the commits stand at which a series has points, by the name that its test had there."""
    commits: dict[str, set[int]] = {}
    for stretch in series.stretches:
        own = commits.setdefault(stretch.measured.test, set())
        own.update(series.branch.commit_of[index] for index in stretch.indices)
    return {name: sorted(own) for name, own in commits.items()}


def _alias_of(name: str, notes: Notes) -> str:
    old, _ = notes.renaming_of(name)
    return f"{old}*" if f"{old}*".endswith(ALL_OF) else old

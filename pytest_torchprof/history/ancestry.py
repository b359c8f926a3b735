"""The facts in records on the commits before their own: whose first parent is which, and what order that makes."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice, pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pytest_torchprof.history.record import RunHead

Run = TypeVar("Run", bound="RunHead")


def parents_in(records: Iterable[RunHead]) -> dict[str, str]:
    """Return the first parent of each commit, as far as the records know."""
    parents: dict[str, str] = {}
    for commit in (record.commit for record in records):
        if commit is not None:
            line = (commit.sha, *commit.ancestors)
            parents.update(pairwise(line))
    return parents


def tips_of(on_branch: Sequence[Run], parents: Mapping[str, str]) -> Sequence[Run]:
    """Return the runs of commits that are no ancestors of another measured one, as far as the records know.

    Clocks of those who commit differ: a date tells nothing where the ancestry is known.
    """
    passed: set[str] = set()
    for record in on_branch:
        sha = sha_of(record)
        while (sha := parents.get(sha, "")) and sha not in passed:
            passed.add(sha)
    # Records that contradict each other may have no end.
    return [record for record in on_branch if sha_of(record) not in passed] or on_branch


def chain_to(tip: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return a commit with all that are known to come before it, oldest first."""
    return tuple(reversed([*line_from(tip, parents)]))


def line_from(sha: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield a commit, its first parent, the first parent of that, and so on, as far as they are known."""
    passed: set[str] = set()
    while sha and sha not in passed:
        yield sha
        passed.add(sha)
        sha = parents.get(sha, "")


def by_date(on_branch: Iterable[RunHead], parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return the measured commits by their dates, but none before an ancestor that the records know."""
    dates = {sha_of(record): date_of(record) for record in sorted(on_branch, key=date_of, reverse=True)}
    later: dict[str, list[str]] = {}
    ready = []
    for sha, date in dates.items():
        ancestor = next((own for own in islice(line_from(sha, parents), 1, None) if own in dates), None)
        if ancestor is None:
            ready.append((date, sha))
        else:
            later.setdefault(ancestor, []).append(sha)
    heapify(ready)
    ordered: dict[str, None] = {}
    while ready:
        _, sha = heappop(ready)
        ordered[sha] = None
        for own in later.pop(sha, ()):
            heappush(ready, (dates[own], own))
    # Those of records that contradict each other have no first one.
    return tuple(dict.fromkeys([*ordered, *reversed(dates)]))


def sha_of(record: RunHead) -> str:
    """Return the hash of a run's commit; empty where it has none."""
    return "" if record.commit is None else record.commit.sha


def date_of(record: RunHead) -> tuple[datetime, datetime]:
    """Return when a run's commit was committed, and when the run began: what orders runs where nothing else does."""
    return (record.began if record.commit is None else record.commit.date), record.began

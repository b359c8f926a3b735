"""The launches of a branch when it was measured last, as the entries of a baseline."""

from __future__ import annotations

from collections import Counter
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.baseline import Entry, RankEntry
from pytest_torchprof.history.entries import entry_in
from pytest_torchprof.history.notes import Note, Notes, notes_by_subject
from pytest_torchprof.history.record import BadRecord, MeasurementRecord, RunHead, RunRecord
from pytest_torchprof.history.runs import LeftOut, branches_of, newest_first, why_never
from pytest_torchprof.history.store import heads_of, records_of
from pytest_torchprof.reasons.records import NoRecordOfRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.store import Store
    from pytest_torchprof.report.outcome import Outcome

Read = TypeVar("Read")
MOST_RUNS: Final = 20
"""How many runs on each device are searched for a test, since a run may be of a part of the tests."""
Key = tuple[str | None, str, str | None]
"""A measurement: the device as baseline files name it, the test and the label. Without device: never judged."""


class RunOfBranch(Struct, frozen=True, kw_only=True):
    """The run in which a measurement was made."""

    commit: str
    date: datetime
    """When it was committed."""
    version: str
    """pytest-torchprof's."""

    @property
    def shown(self) -> str:
        """The commit with its day."""
        return f"{self.commit[:7]} of {self.date:%Y-%m-%d}"


class Known(Struct, frozen=True, kw_only=True):
    """The facts on a measurement from the newest run that has it."""

    run: RunOfBranch
    outcome: Outcome
    code: str | None = None
    """Why it was not measured there."""
    entry: Entry | None = None
    """None if it was not judged there, or if the record does not hold what was launched."""


class BranchBaseline(Struct, frozen=True, kw_only=True):
    """The known measurements of a branch, and the gaps in them."""

    known: Mapping[Key, Known]
    devices: Mapping[str, str]
    """The GPUs, or CPUs, on which its runs have measured, by their names in baseline files."""
    left_out: Mapping[LeftOut | None, int]
    """How many of its runs are no points of it, by the reason; None: they were stopped."""
    branches: tuple[str, ...]
    """All that its history has runs of, those with the most first."""
    refused: tuple[BadRecord, ...]
    """The faults of records of which it is not known whether they are of the branch."""
    damaged: tuple[BadRecord, ...]
    """The faults of records of runs that tests would have been looked for in."""


def branch_baseline(store: Store, branch: str, folder: str) -> BranchBaseline:
    """Return a branch's launches when each test was measured last; StoreUnusable if the store cannot be read.

    ``folder`` is where pytest's root directory lies below the repository's: only runs from there count.
    """
    refused: list[BadRecord] = []
    heads = [
        head for head in _believed(heads_of(store), refused) if head.commit is None or head.commit.folder == folder
    ]
    ordered = newest_first(heads, branch)
    chosen = _chosen([run for run in ordered if run.complete])
    left_out = Counter(why_never(head) for head in heads if head.commit is not None and head.commit.branch == branch)
    damaged: list[BadRecord] = []
    return BranchBaseline(
        known=_known(store, chosen, damaged),
        devices={slug: name for run in chosen for slug, name in _devices(run).items()},
        left_out={**left_out, None: sum(not run.complete for run in ordered)},
        branches=tuple(branches_of(heads)),
        refused=tuple(refused),
        damaged=tuple(damaged),
    )


def _believed(read: Iterable[Read | BadRecord], refused: list[BadRecord]) -> Iterator[Read]:
    """Yield the records that can be believed, and add the others to ``refused``."""
    for one_read in read:
        if isinstance(one_read, BadRecord):
            refused.append(one_read)
        else:
            yield one_read


def _known(store: Store, chosen: Sequence[RunHead], damaged: list[BadRecord]) -> dict[Key, Known]:
    """Return the facts on each measurement from the newest of these runs that has it."""
    notes = notes_by_subject(note for note in store.notes() if isinstance(note, Note))
    uuids = {run.uuid: at for at, run in enumerate(chosen)}
    records = [*_believed(records_of(store, uuids.keys()), damaged)] if chosen else []
    known: dict[Key, Known] = {}
    for record in sorted(records, key=lambda record: uuids[record.uuid], reverse=True):
        try:
            known.update(dict(_known_in(record, notes)))
        except ValueError as problem:
            damaged.append(BadRecord.of(f"{store.shown}: {record.uuid}", NoRecordOfRun(str(problem))))
    return known


def _chosen(runs: Iterable[RunHead]) -> list[RunHead]:
    """Return the newest runs on each device."""
    taken: Counter[str] = Counter()
    chosen = []
    for run in runs:
        slugs = _devices(run)
        if any(taken[slug] < MOST_RUNS for slug in slugs):
            taken.update(slugs.keys())
            chosen.append(run)
    return chosen


def _devices(run: RunHead) -> dict[str, str]:
    return {
        baseline.device_slug(environment): environment.gpu or environment.cpu or "" for environment in run.environments
    }


def _known_in(record: RunRecord, notes: Notes) -> Iterator[tuple[Key, Known]]:
    """Yield the facts that a record has on each measurement, under the name that its test has now."""
    if record.commit is None:
        return
    run = RunOfBranch(commit=record.commit.sha, date=record.commit.date, version=record.version)
    tests = {measured.test for measured in record.measurements}
    of_ranks: dict[Key, dict[int, Entry | None]] = {}
    outcomes: dict[Key, MeasurementRecord] = {}
    for at, measured in enumerate(record.measurements):
        now = notes.name_now(measured.test)
        test = measured.test if now in tests else now
        if measured.environment is None or not measured.counts:
            yield (None, test, measured.label), Known(run=run, outcome=measured.outcome, code=measured.code)
            continue
        key: Key = (baseline.device_slug(record.environments[measured.environment]), test, measured.label)
        of_ranks.setdefault(key, {})[measured.rank or 0] = _entry(record, at)
        outcomes.setdefault(key, measured)
    for key, entries in of_ranks.items():
        if 0 in entries:
            yield key, Known(run=run, outcome=outcomes[key].outcome, entry=_with_ranks(entries))


def _with_ranks(entries: Mapping[int, Entry | None]) -> Entry | None:
    first = entries[0]
    others = {
        str(rank): RankEntry(steps=entry.steps, numbers=entry.numbers)
        for rank, entry in entries.items()
        if rank > 0 and entry is not None
    }
    return None if first is None else replace(first, ranks=others)


def _entry(record: RunRecord, at: int) -> Entry | None:
    measured, launched = record.measurements[at], record.launched
    if launched is UNSET or measured.environment is None:
        return None
    return entry_in(launched, measured, record.varying[at], record.environments[measured.environment])

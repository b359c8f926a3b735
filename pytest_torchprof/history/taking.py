"""Taking the records of other places into a history: what is refused keeps nothing else out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.belonging import HistoryProject
from pytest_torchprof.history.contradictions import Contradiction, refuse_future
from pytest_torchprof.history.record import BadRecord, Event, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.history.store import Store


class Taken(Struct, kw_only=True):
    """The outcome of taking records into a history."""

    added: int = 0
    known: int = 0
    """How many records the history has already."""
    of_other_events: int = 0
    refused: list[BadRecord] = []


def take(
    store: Store,
    records: Callable[[], Iterable[RunRecord | BadRecord]],
    only_event: Event | None,
    *,
    anyway: bool = False,
) -> Taken:
    """Add records to a history, and return the outcome; ``records`` yields them anew at each call.

    Those of another project than the history's are refused, and without ``anyway`` those whose project is not known;
    with ``only_event``, those of other events are left out. Those that name a project come first, whatever their order:
    they tell of which project the history is, and which commits it knows.
    """
    taken = Taken()
    project = HistoryProject(store)
    are_unnamed = False
    for record in records():
        if isinstance(record, BadRecord):
            taken.refused.append(record)
        elif only_event not in (None, record.event):
            taken.of_other_events += 1
        elif _names_none(record):
            are_unnamed = True
        else:
            _add(store, project, record, taken, anyway=anyway)
    for record in records() if are_unnamed else ():
        if isinstance(record, RunRecord) and only_event in (None, record.event) and _names_none(record):
            _add(store, project, record, taken, anyway=anyway)
    return taken


def _names_none(record: RunRecord) -> bool:
    return record.commit is None or record.commit.project is None


def _add(store: Store, project: HistoryProject, record: RunRecord, taken: Taken, *, anyway: bool) -> None:
    try:
        project.refuse_other(record, anyway=anyway)
        _refuse_future(record)
        if store.add(record):
            taken.added += 1
        else:
            taken.known += 1
        project.note(record)
    except BadRecord as problem:
        taken.refused.append(problem)


def _refuse_future(record: RunRecord) -> None:
    # What a history has once taken is read alike on every day.
    try:
        refuse_future(record, datetime.now(UTC))
    except Contradiction as problem:
        raise BadRecord.of(record.uuid, problem.why) from None

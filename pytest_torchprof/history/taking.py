"""Taking the records of other places into a history: what is refused keeps nothing else out."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.record import BadRecord, Event, RunRecord
from pytest_torchprof.history.store import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.history.store import Store


class Taken(Struct, kw_only=True):
    """What became of records that were to be taken."""

    added: int = 0
    known: int = 0
    """Those that the history has already."""
    of_other_events: int = 0
    refused: list[BadRecord] = []


def take(store: Store, records: Iterable[RunRecord | BadRecord], only_event: Event | None) -> Taken:
    """Add records to a history, and return what became of them.

    Those of another project than the history's are refused; with ``only_event``, those of other events are left out.
    """
    taken = Taken()
    with closing(records_of(store)) as known:
        project = next((of for record in known if (of := _project(record)) is not None), None)
    for record in records:
        if isinstance(record, BadRecord):
            taken.refused.append(record)
        elif only_event not in (None, record.event):
            taken.of_other_events += 1
        elif project is not None and _project(record) not in (None, project):
            problem = f"{record.uuid}: of the project {_project(record)}, and this is the history of {project}"
            taken.refused.append(BadRecord(problem))
        else:
            project = project or _project(record)
            _add(store, record, taken)
    return taken


def _add(store: Store, record: RunRecord, taken: Taken) -> None:
    try:
        if store.add(record):
            taken.added += 1
        else:
            taken.known += 1
    except BadRecord as problem:
        taken.refused.append(problem)


def _project(record: RunRecord | BadRecord) -> str | None:
    return None if isinstance(record, BadRecord) or record.commit is None else record.commit.project

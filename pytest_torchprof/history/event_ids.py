"""The ids of events: made from what the event is, so that the same event always has the same id."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

if TYPE_CHECKING:
    from pytest_torchprof.history.changes import HistoryEvent, SeriesChange
    from pytest_torchprof.history.notes import Notes

SHOWN: Final = 8
"""How many digits of an id are shown."""


def change_id(change: SeriesChange) -> str:
    """Return the id of one series' change: it stays while the same two commits are known to enclose the same change."""
    sides = [
        [point.commit, point.measured.structure, sorted(point.measured.counts.items())]
        for point in (change.before, change.after)
    ]
    # What became of it is left out: later runs confirm the same change.
    return _digest([asdict(change.key), *sides])


def event_id(event: HistoryEvent) -> str:
    """Return the id of an event, which changes as soon as the event has another test."""
    return _digest(sorted(map(change_id, event.changes)))


def accepted_because(event: HistoryEvent, notes: Notes) -> str | None:
    """Return why an event is accepted; None if one of its tests is not."""
    reasons = [notes.accepted.get(change_id(change)) for change in event.changes]
    known = [reason for reason in reasons if reason is not None]
    return known[0] if len(known) == len(reasons) else None


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]

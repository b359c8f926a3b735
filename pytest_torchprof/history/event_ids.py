"""The ids of events: made from what the event is, so that the same event always has the same id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import asdict, replace

from pytest_torchprof.history.digest import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.history.changes import HistoryEvent, SeriesChange
    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.times import TimeEvent, TimeStep

Remark = TypeVar("Remark")

SHOWN: Final = 8
"""How many digits of an id are shown."""


def change_id(change: SeriesChange) -> str:
    """Return the id of one series' change: it stays while the same two commits are known to enclose the same change."""
    sides = [
        [point.commit, point.measured.structure, sorted(point.measured.counts.items())]
        for point in (change.before, change.after)
    ]
    # The test is called as it was then: an alias that is made later changes no id.
    key = replace(change.key, test=change.after.measured.test)
    # What became of it is left out: later runs confirm the same change.
    return digest_of([asdict(key), *sides])


def changes_id(changes: Iterable[SeriesChange]) -> str:
    """Return the id of changes that are listed together: of one its own, of more one that changes with any of them."""
    # Versions that run side by side may have changed alike, which is one change twice.
    ids = sorted(set(map(change_id, changes)))
    return ids[0] if len(ids) == 1 else digest_of(ids)


def event_id(event: HistoryEvent) -> str:
    """Return the id of an event, which is another one as soon as the event has another test."""
    return changes_id(event.changes)


def accepted_because(event: HistoryEvent, notes: Notes) -> str | None:
    """Return why an event is accepted, each reason once; None if one of its tests is not."""
    return _all_of([notes.accepted.get(change_id(change)) for change in event.changes])


def remarks_on_changes(event: HistoryEvent, notes: Notes) -> list[str]:
    """Return the remarks on the changes of an event, each once."""
    texts = [text for change in event.changes for text in notes.remarks.get(change_id(change), ())]
    return list(dict.fromkeys(texts))


def step_id(step: TimeStep) -> str:
    """Return the id of a step of times: the series and the direction, with the commits that enclose it."""
    return f"{_series_id(step, step.times.key.test)} {step.before.commit} {step.after.commit}"


def _series_id(step: TimeStep, test: str) -> str:
    times = step.times
    return digest_of([asdict(replace(times.key, test=test)), times.machine, times.conditions, step.share > 0])


def time_event_id(event: TimeEvent) -> str:
    """Return the id of an event of times, which changes with its tests, and with the commits that later runs leave."""
    return digest_of(sorted(map(step_id, event.steps)))


def time_accepted_because(event: TimeEvent, notes: Notes) -> str | None:
    """Return why an event of times is accepted, each reason once; None if a step of it is not."""
    return _all_of([step_accepted_because(step, notes) for step in event.steps])


def step_accepted_because(step: TimeStep, notes: Notes) -> str | None:
    """Return why a step of times is accepted; None if it is not."""
    return next(_about(step, notes, notes.accepted), None)


def remarks_on_steps(event: TimeEvent, notes: Notes) -> list[str]:
    """Return the remarks on the steps of an event, each once."""
    texts = [text for step in event.steps for own in _about(step, notes, notes.remarks) for text in own]
    return list(dict.fromkeys(texts))


def _about(step: TimeStep, notes: Notes, remarks: Mapping[str, Remark]) -> Iterator[Remark]:
    """Yield the remarks on a step: on any of the same series and direction that can be the same commit's.

    Each later run may narrow or widen the commits that enclose a step, so that they cannot be asked to be the same.
    """
    order = {sha: at for at, sha in enumerate(step.times.series.branch.commits)}
    series = {_series_id(step, test) for test in notes.names_of(step.times.key.test)}
    own = [step.before.commit, step.after.commit]
    for about, text in remarks.items():
        other, *enclosing = about.split()
        if other not in series or len(enclosing) != len(own):
            continue
        meets = all(sha in order for sha in enclosing) and (
            max(order[own[0]], order[enclosing[0]]) < min(order[own[1]], order[enclosing[1]])
        )
        if enclosing == own or meets:
            yield text


def _all_of(reasons: Sequence[str | None]) -> str | None:
    known = [reason for reason in reasons if reason is not None]
    return "; ".join(dict.fromkeys(known)) if len(known) == len(reasons) else None

"""Collectives in rows: a row for each kind in each group."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.call_times import CallTimes
from pytest_torchprof.analysis.messages import bus_factor
from pytest_torchprof.trace import intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective, Overlap
    from pytest_torchprof.trace.intervals import Spans


class CollectiveRow(Struct, frozen=True, kw_only=True, eq=False):
    """All collectives of one kind in one group; times in microseconds, without the calls that have none.

    While several of them run at once, that time counts once.
    """

    name: str
    """"all_reduce"; "communication" where it may be several."""
    group: str | None
    """The name of the group, and its description."""
    group_size: int | None
    dtype: str | None
    """The type of the messages; None if they differ."""
    calls: int
    bytes: int | None
    """Their messages together; None where the size of one is not known."""
    times: CallTimes
    exposed_us: float | None
    """How long they ran while the device computed nothing; None where that is not known of one that ran."""
    bus_gb_per_s: float | None
    """The rate of the busiest link while at least one of them ran; None where the rate of one that ran is not known."""

    @property
    def time_us(self) -> float:
        """How long at least one of them ran, summed over devices."""
        return self.times.time_us

    @property
    def exposed_share(self) -> float | None:
        """The share of their time in which the device computed nothing."""
        return self.exposed_us / self.time_us if self.exposed_us is not None and self.time_us else None


def by_collective(collectives: Sequence[Collective], steps: Sequence[int], overlap: Overlap) -> list[CollectiveRow]:
    """Return the collectives of these steps in rows, the longest time first; steps by their indices."""
    grouped: dict[tuple[str, str | None, int | None], list[Collective]] = defaultdict(list)
    for collective in collectives:
        if collective.step in steps:
            grouped[collective.name or "communication", _group_title(collective), collective.group.size].append(
                collective
            )
    rows = [_row(key, members, steps, overlap) for key, members in grouped.items()]
    return sorted(rows, key=lambda row: (-row.time_us, row.name, row.group or ""))


def _row(
    key: tuple[str, str | None, int | None], members: Sequence[Collective], steps: Sequence[int], overlap: Overlap
) -> CollectiveRow:
    sizes = [collective.message_bytes for collective in members]
    ran = [collective for collective in members if collective.dur_ns is not None]
    dtypes = {collective.dtype for collective in members}
    covered = _covered(ran)
    times = _times(ran, covered, steps)
    known = bool(ran) and all(collective.hidden_ns is not None for collective in ran)
    return CollectiveRow(
        name=key[0],
        group=key[1],
        group_size=key[2],
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        calls=len(members),
        bytes=None if None in sizes else sum(size or 0 for size in sizes),
        times=times,
        exposed_us=sum(
            intervals.length(spans) - overlap.hidden_ns(device, spans) for (_, device), spans in covered.items()
        )
        / 1000
        if known
        else None,
        bus_gb_per_s=_bus_gb_per_s(key[0], key[2], ran, times.time_us),
    )


def _covered(ran: Iterable[Collective]) -> dict[tuple[int, int | None], Spans]:
    """Return when at least one of them ran, by step and device."""
    each: dict[tuple[int, int | None], list[tuple[int, int]]] = defaultdict(list)
    for collective in ran:
        start = collective.start_ns or 0
        each[collective.step, collective.device].append((start, start + (collective.dur_ns or 0)))
    return {key: intervals.merged(spans) for key, spans in each.items()}


def _times(
    ran: Sequence[Collective], covered: Mapping[tuple[int, int | None], Spans], steps: Sequence[int]
) -> CallTimes:
    took_ns = [collective.dur_ns or 0 for collective in ran]
    of_step = dict.fromkeys(steps, 0)
    for (step, _), spans in covered.items():
        of_step[step] += intervals.length(spans)
    return CallTimes(
        count=len(ran),
        min_us=min(took_ns, default=0) / 1000,
        max_us=max(took_ns, default=0) / 1000,
        steps_ns=tuple(of_step[step] for step in steps),
        calls_ns=sum(took_ns),
    )


def _bus_gb_per_s(name: str, size: int | None, ran: Sequence[Collective], time_us: float) -> float | None:
    factor = None if size is None else bus_factor(name, size)
    sent = [collective.message_bytes for collective in ran]
    # What one kernel carried out together has its time each.
    if factor is None or None in sent or not time_us or any(collective.together > 1 for collective in ran):
        return None
    return factor * sum(size or 0 for size in sent) / 1000 / time_us


def _group_title(collective: Collective) -> str | None:
    """Return "3 tp": torch's number of a group and the program's name for it, where it has one."""
    described = collective.group.description
    parts = [collective.group.name, None if described in ("undefined", collective.group.name) else described]
    return " ".join(part for part in parts if part) or None

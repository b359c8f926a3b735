"""Collectives in rows: those of one kind in one group together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.analysis.call_times import CallTimes, times_by_key
from pytest_torchprof.analysis.messages import bus_factor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.collectives import Collective


class CollectiveRow(Struct, frozen=True, kw_only=True, eq=False):
    """All collectives of one kind in one group; times in microseconds, those of calls without one left out."""

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
    """What the busiest link carried, by their time together; None where it is not known of one that ran."""

    @property
    def time_us(self) -> float:
        """How long they ran together."""
        return self.times.time_us

    @property
    def exposed_share(self) -> float | None:
        """The share of their time in which the device computed nothing."""
        return self.exposed_us / self.time_us if self.exposed_us is not None and self.time_us else None


def by_collective(collectives: Sequence[Collective], steps: Sequence[int]) -> list[CollectiveRow]:
    """Return the collectives of these steps in rows, the longest time first; steps by their indices."""
    grouped: dict[tuple[str, str | None, int | None], list[Collective]] = defaultdict(list)
    for collective in collectives:
        if collective.step in steps:
            grouped[collective.name or "communication", _group_title(collective), collective.group.size].append(
                collective
            )
    index = {step: number for number, step in enumerate(steps)}
    of_steps: list[list[tuple[tuple[str, str | None, int | None], int]]] = [[] for _ in steps]
    for key, members in grouped.items():
        for collective in members:
            if collective.dur_ns is not None:
                of_steps[index[collective.step]].append((key, collective.dur_ns))
    times = times_by_key(of_steps)
    nothing = CallTimes(steps_ns=(0,) * len(steps))
    rows = [_row(key, members, times.get(key, nothing)) for key, members in grouped.items()]
    return sorted(rows, key=lambda row: (-row.time_us, row.name, row.group or ""))


def _row(key: tuple[str, str | None, int | None], members: Sequence[Collective], times: CallTimes) -> CollectiveRow:
    sizes = [collective.message_bytes for collective in members]
    exposed = [collective.exposed_us for collective in members if collective.dur_ns is not None]
    dtypes = {collective.dtype for collective in members}
    return CollectiveRow(
        name=key[0],
        group=key[1],
        group_size=key[2],
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        calls=len(members),
        bytes=None if None in sizes else sum(size or 0 for size in sizes),
        times=times,
        exposed_us=None if None in exposed or not exposed else sum(us or 0 for us in exposed),
        bus_gb_per_s=_bus_gb_per_s(
            key[0], key[2], [collective for collective in members if collective.dur_ns is not None]
        ),
    )


def _bus_gb_per_s(name: str, size: int | None, ran: Sequence[Collective]) -> float | None:
    factor = None if size is None else bus_factor(name, size)
    sent, took_ns = [collective.message_bytes for collective in ran], sum(collective.dur_ns or 0 for collective in ran)
    # What one kernel carried out together has its time each.
    if factor is None or None in sent or not took_ns or any(collective.together > 1 for collective in ran):
        return None
    return factor * sum(size or 0 for size in sent) / took_ns


def _group_title(collective: Collective) -> str | None:
    """Return "3 tp": torch's number of a group and the program's name for it, where it has one."""
    described = collective.group.description
    parts = [collective.group.name, None if described in ("undefined", collective.group.name) else described]
    return " ".join(part for part in parts if part) or None

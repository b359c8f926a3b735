"""Recordings of the ranks of one job together: who waited for whom at each collective, and how long sending took."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from pytest_torchprof.analysis.messages import ProcessGroup, bus_factor, groups_of
from pytest_torchprof.codes import Code
from pytest_torchprof.errors import TorchprofError
from pytest_torchprof.kernels.names import without_index

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.collectives import Collective, StepCommunication
    from pytest_torchprof.trace import Trace

Kind = Literal["transfer-bound", "skew-bound", "mixed", "inconclusive"]

_TOGETHER: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Collectives that no rank leaves before all have come: they end at the same time on each."""
_PAIRWISE: Final = "send_recv"
_FEW: Final = 3
_MOSTLY, _SELDOM = 0.75, 0.25
_MOST_OF_THE_WAIT: Final = 2 / 3
_WORTH: Final = 0.1


class RankPart(Struct, frozen=True, kw_only=True):
    """What is kept of one rank's recording to hold it against the others'."""

    rank: int
    world_size: int
    path: str
    host: str | None
    """The machine, where the recording names it."""
    device: str
    window_ns: tuple[int, int]
    """When it was recorded, by the clock of its host."""
    collectives: tuple[Collective, ...]
    offset_ns: int
    """What makes an instant of them one of the host's clock."""
    steps: tuple[StepCommunication, ...]
    kernels: tuple[Mapping[str, int], ...] | None
    """How many kernels of each name each step has, Triton's index left out; None where that is not known."""
    groups: Mapping[str, tuple[int, ...] | None]
    """The ranks of each process group that it knows."""
    test: tuple[str | None, str | None]
    """The test that it is of, and its label."""
    why_not: str | None
    """Why its numbers may not be believed."""


class Meeting(Struct, frozen=True, kw_only=True):
    """One collective as those ranks had it whose recordings are there; times by rank."""

    name: str
    group: ProcessGroup
    step: int
    message_bytes: int | None
    starts_ns: Mapping[int, int]
    """By one clock, as well as the collectives themselves align several."""
    durations_ns: Mapping[int, int]

    @property
    def transfer_us(self) -> float:
        """How long it took the rank that waited least."""
        return min(self.durations_ns.values()) / 1000

    @property
    def latest(self) -> int:
        """The rank that came last."""
        return max(self.starts_ns, key=lambda rank: (self.starts_ns[rank], rank))

    def wait_us(self, rank: int) -> float:
        """Return how long a rank was there before the last one came."""
        return (self.starts_ns[self.latest] - self.starts_ns[rank]) / 1000

    @property
    def skew_us(self) -> float:
        """From the first rank's start to the last one's."""
        return (max(self.starts_ns.values()) - min(self.starts_ns.values())) / 1000

    @property
    def bus_gb_per_s(self) -> float | None:
        """What the busiest link carried while nobody waited."""
        factor = None if self.group.size is None else bus_factor(self.name, self.group.size)
        if factor is None or self.message_bytes is None or not self.transfer_us:
            return None
        return factor * self.message_bytes / self.transfer_us / 1000


class Job(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The ranks of a job whose recordings are there, and the collectives that they took part in together."""

    ranks: tuple[RankPart, ...]
    meetings: tuple[Meeting, ...]
    alone: Mapping[int, Mapping[str, int]]
    """By rank, how many collectives of each name only it has, although others of the group are there."""
    unpaired: int
    """Sends, receives and collectives without a name or a time, which are not held against each other."""
    one_clock: bool
    """Whether all ranks name the same host."""
    residue_us: float
    """How far apart the ends of a collective are in the middle once clocks are aligned; 0 with one clock."""

    @property
    def world_size(self) -> int:
        """How many ranks the job has."""
        return self.ranks[0].world_size

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose recordings are not there."""
        return tuple(sorted(set(range(self.world_size)) - {one.rank for one in self.ranks}))

    @cached_property
    def skew_us(self) -> float | None:
        """The median over collectives from the first rank's start to the last one's; None without any."""
        return median([one.skew_us for one in self.meetings]) if self.meetings else None

    @cached_property
    def wait_share(self) -> float | None:
        """The share of the time in collectives, of all ranks together, that is waiting for the last one."""
        return wait_share(self.meetings)

    @property
    def kind(self) -> Kind:
        """What the time in collectives is spent with."""
        return self.kind_of(self.meetings)

    def kind_of(self, meetings: Sequence[Meeting]) -> Kind:
        """Return what the time of these is spent with; of a few, or by clocks that do not fit, nothing is concluded."""
        share = wait_share(meetings)
        if share is None or len(meetings) < _FEW:
            return "inconclusive"
        if self.residue_us > _WORTH * median([max(one.durations_ns.values()) / 1000 for one in meetings]):
            return "inconclusive"
        return "skew-bound" if share > _MOSTLY else "transfer-bound" if share < _SELDOM else "mixed"

    @cached_property
    def caused_us(self) -> Mapping[int, float]:
        """By rank, how long others had waited when it came last, the longest wait of each collective."""
        found = dict.fromkeys((one.rank for one in self.ranks), 0.0)
        for one in self.meetings:
            found[one.latest] += one.skew_us
        return found

    @property
    def straggler(self) -> int | None:
        """The rank that causes most of the waiting, where it is worth a word; None without one."""
        total = sum(self.caused_us.values())
        spent = sum(sum(one.durations_ns.values()) for one in self.meetings) / 1000 / len(self.ranks)
        rank = max(self.caused_us, key=lambda one: self.caused_us[one])
        often = self.caused_us[rank] >= _MOST_OF_THE_WAIT * total
        return rank if total > _WORTH * spent and often and self.kind != "inconclusive" else None

    def wait_us(self, rank: int) -> float:
        """Return how long a rank waited for others, all collectives together."""
        return sum(one.wait_us(rank) for one in self.meetings if rank in one.starts_ns)


def wait_share(meetings: Iterable[Meeting]) -> float | None:
    """Return the share of the time in these, of all ranks together, that is waiting for the last one."""
    spent = waited = 0.0
    for one in meetings:
        spent += sum(one.durations_ns.values()) / 1000
        waited += sum(map(one.wait_us, one.starts_ns))
    return min(waited / spent, 1.0) if spent else None


def part_of(analysis: Analysis) -> RankPart:
    """Return what is kept of a rank's recording; TorchprofError where it does not say which rank it is of."""
    trace, ours = analysis.trace, analysis.trace.metadata
    rank, world_size = _which(trace)
    offset = trace.header.get("baseTimeNanoseconds")
    offset_ns = offset if isinstance(offset, int) else 0
    begin, until = trace.steps[0].start_ns, trace.steps[-1].end_ns
    host = trace.header.get("host_name")
    hidden = analysis.kernels_unknown is not None or analysis.why_not is not None
    return RankPart(
        rank=rank,
        world_size=world_size,
        path=trace.path or "",
        host=host if isinstance(host, str) else None,
        device=", ".join(dict.fromkeys(one.name or "GPU" for one in trace.devices))
        or trace.device_kind.title
        or "no GPU",
        window_ns=(begin + offset_ns, until + offset_ns),
        collectives=analysis.communication.collectives,
        offset_ns=offset_ns,
        steps=analysis.communication.steps,
        kernels=None if hidden else tuple(_names_of(kernel.name for kernel in step.kernels) for step in analysis.steps),
        groups={one.name: one.ranks for one in groups_of(trace, "") if one.name is not None},
        test=(None, None) if ours is None else (ours.nodeid, ours.label),
        why_not=analysis.why_not,
    )


def _names_of(names: Iterable[str]) -> Mapping[str, int]:
    return Counter(map(without_index, names))


def _which(trace: Trace) -> tuple[int, int]:
    """Return the rank and how many there are: as our own recordings say it, or torch's."""
    ours, told = trace.metadata, trace.header.get("distributedInfo")
    of_torch: Mapping[str, Any] = told if isinstance(told, dict) else {}
    sides = [(None, None) if ours is None else (ours.rank, ours.world_size)]
    sides.append((of_torch.get("rank"), of_torch.get("world_size")))
    for rank, size in sides:
        if isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size:
            return rank, size
    said = f"{trace.path}: does not say which rank it is of. torch writes that where torch.distributed is initialized."
    raise TorchprofError(said, Code.NO_RANK)


def joined(parts: Iterable[RankPart]) -> Job:
    """Return the job that these ranks are of; TorchprofError where they are not of one, or only one rank is there."""
    ranks = tuple(sorted(parts, key=lambda one: one.rank))
    _refuse_mixed(ranks)
    one_clock = len({one.host for one in ranks}) == 1 and ranks[0].host is not None
    found: dict[Hashable, dict[int, Collective]] = defaultdict(dict)
    unpaired = 0
    for part in ranks:
        for key, one in _keyed(part.collectives):
            found[key][part.rank] = one
        unpaired += sum(not _is_joined(one) for one in part.collectives)
    complete = [of_rank for of_rank in found.values() if len(of_rank) > 1 and _all_timed(of_rank.values())]
    shifts, residue_us = ({}, 0.0) if one_clock else _aligned(ranks, complete)
    offsets = {part.rank: part.offset_ns - shifts.get(part.rank, 0) for part in ranks}
    return Job(
        ranks=ranks,
        meetings=tuple(_meeting(of_rank, offsets) for of_rank in complete),
        alone=_alone(ranks, found.values()),
        unpaired=unpaired,
        one_clock=one_clock,
        residue_us=residue_us,
    )


def _is_joined(one: Collective) -> bool:
    return one.name not in (None, _PAIRWISE) and one.dur_ns is not None


def _all_timed(of_rank: Iterable[Collective]) -> bool:
    return all(one.dur_ns is not None and one.start_ns is not None for one in of_rank)


def _keyed(collectives: Iterable[Collective]) -> Iterator[tuple[Hashable, Collective]]:
    """Yield each with what it is called on all ranks: by its id, its number in its group, or its place in the step."""
    seen: Counter[Hashable] = Counter()
    for one in collectives:
        if one.name in (None, _PAIRWISE) or one.group.size == 1:
            continue
        group = (one.group.name, one.group.ranks, one.group.size)
        key: Hashable = (one.step, group, one.name)
        if one.sequence is not None:
            key = (group, one.name, one.sequence)
        if one.comms_id is not None:
            key = (one.comms_id, one.name, one.sequence)
        seen[key] += 1
        yield (key, seen[key]), one


def _meeting(of_rank: Mapping[int, Collective], offsets: Mapping[int, int]) -> Meeting:
    first = next(iter(of_rank.values()))
    return Meeting(
        name=first.name or "",
        group=first.group,
        step=first.step,
        message_bytes=max((one.message_bytes or 0 for one in of_rank.values()), default=0) or None,
        starts_ns={rank: (one.start_ns or 0) + offsets[rank] for rank, one in of_rank.items()},
        durations_ns={rank: one.dur_ns or 0 for rank, one in of_rank.items()},
    )


def _aligned(
    ranks: Sequence[RankPart], complete: Iterable[Mapping[int, Collective]]
) -> tuple[Mapping[int, int], float]:
    """Return by how much each clock is ahead of the first rank's, and how well collectives end together then, in us."""
    ends: dict[int, list[int]] = defaultdict(list)
    offsets, first = {part.rank: part.offset_ns for part in ranks}, ranks[0].rank
    for of_rank in complete:
        if first not in of_rank or of_rank[first].name not in _TOGETHER:
            continue
        until = {rank: (one.start_ns or 0) + (one.dur_ns or 0) + offsets[rank] for rank, one in of_rank.items()}
        for rank, end in until.items():
            ends[rank].append(end - until[first])
    shifts = {rank: round(median(apart)) for rank, apart in ends.items()}
    rest = [abs(one - shifts[rank]) / 1000 for rank, apart in ends.items() if rank != first for one in apart]
    return shifts, median(rest) if rest else 0.0


def _alone(ranks: Sequence[RankPart], found: Iterable[Mapping[int, Collective]]) -> dict[int, Counter[str]]:
    there = {part.rank for part in ranks}
    alone: dict[int, Counter[str]] = {}
    for of_rank in found:
        (rank, one), *others = of_rank.items()
        members = there if one.group.ranks is None else there.intersection(one.group.ranks)
        if not others and members - {rank}:
            alone.setdefault(rank, Counter())[one.name or ""] += 1
    return alone


def _refuse_mixed(ranks: Sequence[RankPart]) -> None:
    """Raise TorchprofError where these are not the recordings of several ranks of one job."""
    if len(ranks) < 2:
        said = "there is one rank's recording; those of two ranks at least are held against each other."
        raise TorchprofError(said, Code.NO_RANK)
    first, reason = ranks[0], None
    for before, one in pairwise(ranks):
        if one.world_size != first.world_size:
            reason = f"is of a job of {one.world_size} ranks, {first.path} of one of {first.world_size}"
        elif one.rank == before.rank:
            reason = f"is of rank {one.rank}, as {before.path} is"
        elif one.test != first.test:
            reason = f"is of the test {one.test[0]}, {first.path} of {first.test[0]}"
        elif any(one.groups[name] != ranks_of for name, ranks_of in first.groups.items() if name in one.groups):
            reason = f"has other process groups than {first.path}"
        elif one.host is not None and one.host == first.host and _apart(one.window_ns, first.window_ns):
            reason = f"was recorded at another time than {first.path}"
        if reason is not None:
            said = f"the recordings are not of one job: {one.path} {reason}"
            raise TorchprofError(f"{said}. Name a folder that holds those of one job only.", Code.MIXED_JOBS)


def _apart(these: tuple[int, int], those: tuple[int, int]) -> bool:
    return these[1] < those[0] or those[1] < these[0]

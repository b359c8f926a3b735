"""Recordings of the ranks of one job together: who waited for whom at each collective, and how long sending took."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pytest_torchprof.analysis.collectives import Collective, StepCommunication  # noqa: TC001  (likewise)
from pytest_torchprof.analysis.messages import ProcessGroup, bus_factor
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Kind = Literal["transfer-bound", "skew-bound", "mixed", "inconclusive"]

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
    clock: str | None
    """By which clock its times are: the same for ranks of one host; None where the recording does not tell."""
    run_id: str | None
    """What the launcher called the run."""
    device: str
    window_ns: tuple[int, int]
    """When it was recorded, by the clock of its host."""
    collectives: tuple[Collective, ...]
    """Those of all steps; what it had together with other ranks has ``wait_us`` and ``transfer_us``."""
    offset_ns: int
    """What makes an instant of them one of the host's clock."""
    steps: tuple[StepCommunication, ...]
    kernels: tuple[Mapping[str, Mapping[str, int]], ...] | None
    """How many kernels each step has: of each name, Triton's index left out, by the types that they work on.

    The types are empty where they are not told. None where the kernels are not known.
    """
    groups: tuple[ProcessGroup, ...]
    """The process groups that it knows."""
    test: tuple[str | None, str | None]
    """The test that it is of, and its label."""
    why_not: str | None
    """Why its numbers may not be believed."""

    @property
    def overlap(self) -> float | None:
        """The share of the time of communication that computing hid, of all steps; None without communication."""
        spent = sum(step.time_us for step in self.steps)
        return 1 - sum(step.exposed_us for step in self.steps) / spent if spent else None


class JoinedCollective(Struct, frozen=True, kw_only=True):
    """One collective as those ranks had it whose recordings are there; times by rank."""

    name: str
    group: ProcessGroup
    step: int
    """The step of the lowest of the ranks."""
    of_rank: Mapping[int, Collective]
    """Each rank's own: what it gave and took, when it ran there, how much of that computing hid."""
    starts_ns: Mapping[int, int]
    """By one clock, as well as the collectives themselves align several."""

    @property
    def dtype(self) -> str | None:
        """What is sent: "fp32"."""
        return next((one.dtype for one in self.of_rank.values() if one.dtype is not None), None)

    @property
    def message_bytes(self) -> int | None:
        """The size of the whole message, as far as any of the ranks tells it."""
        known = [one.message_bytes for one in self.of_rank.values() if one.message_bytes is not None]
        return max(known, default=None)

    @property
    def durations_ns(self) -> Mapping[int, int]:
        """How long each rank was in it, waiting included."""
        return {rank: one.dur_ns or 0 for rank, one in self.of_rank.items()}

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
    def algorithm_gb_per_s(self) -> float | None:
        """The message's size by the transfer, in 1e9 bytes per second."""
        # A barrier's message is nothing, which has no bandwidth.
        return self.message_bytes / self.transfer_us / 1000 if self.message_bytes and self.transfer_us else None

    @property
    def bus_gb_per_s(self) -> float | None:
        """What the busiest link carried while nobody waited."""
        factor = None if self.group.size is None else bus_factor(self.name, self.group.size)
        speed = self.algorithm_gb_per_s
        return None if factor is None or speed is None else factor * speed


class Job(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The ranks of a job whose recordings are there, and the collectives that they took part in together.

    ``job[1]`` is what is kept of rank 1, and a loop goes over those that are there.
    """

    ranks: tuple[RankPart, ...]
    collectives: tuple[JoinedCollective, ...]
    alone: Mapping[int, Mapping[str, int]]
    """By rank, how many collectives of each name only it has, although others of the group are there."""
    not_joined: Mapping[str, int]
    """How many collectives are not held against other ranks', by why not."""
    one_clock: bool
    """Whether all ranks name the same host."""
    residue_us: float
    """How far apart the ends of a collective are in the middle once clocks are aligned; 0 with one clock."""

    def __getitem__(self, rank: int) -> RankPart:
        """Return what is kept of a rank; NotMeasured where there is no recording of it."""
        found = next((one for one in self.ranks if one.rank == rank), None)
        if found is None:
            there = ", ".join(str(one.rank) for one in self.ranks)
            raise NotMeasured(coded(f"there is no recording of rank {rank}; there are those of {there}", Code.NO_RANK))
        return found

    def __iter__(self) -> Iterator[RankPart]:
        """Iterate over the ranks whose recordings are there."""
        return iter(self.ranks)

    def __len__(self) -> int:
        """Return how many recordings there are."""
        return len(self.ranks)

    @property
    def world_size(self) -> int:
        """How many ranks the job has."""
        return self.ranks[0].world_size

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks whose recordings are not there."""
        return tuple(sorted(set(range(self.world_size)) - {one.rank for one in self.ranks}))

    @property
    def group_names(self) -> tuple[str, ...]:
        """What its process groups are called: "0 default_pg"."""
        called = {" ".join(filter(None, (one.name, one.description))) for part in self.ranks for one in part.groups}
        return tuple(sorted(called - {""}))

    def groups_called(self, name: str) -> list[tuple[int, ...]]:
        """Return the ranks, as far as they are there, of each process group of this name or description."""
        there = {one.rank for one in self.ranks}
        found = {
            group.ranks
            for part in self.ranks
            for group in part.groups
            if name in (group.name, group.description) and group.ranks is not None
        }
        return sorted(filter(None, (tuple(sorted(there.intersection(ranks))) for ranks in found)))

    @cached_property
    def skew_us(self) -> float | None:
        """The median over collectives from the first rank's start to the last one's; None without any."""
        return median([one.skew_us for one in self.collectives]) if self.collectives else None

    @cached_property
    def wait_share(self) -> float | None:
        """The share of the time in collectives, of all ranks together, that is waiting for the last one."""
        return wait_share(self.collectives)

    @property
    def kind(self) -> Kind:
        """What the time in collectives is spent with."""
        return self.kind_of(self.collectives)

    def kind_of(self, collectives: Sequence[JoinedCollective]) -> Kind:
        """Return what the time of these is spent with; of a few, or by clocks that do not fit, nothing is concluded."""
        share = wait_share(collectives)
        if share is None or len(collectives) < _FEW:
            return "inconclusive"
        if self.residue_us > _WORTH * median([max(one.durations_ns.values()) / 1000 for one in collectives]):
            return "inconclusive"
        return "skew-bound" if share > _MOSTLY else "transfer-bound" if share < _SELDOM else "mixed"

    @cached_property
    def caused_us(self) -> Mapping[int, float]:
        """By rank, how long others had waited when it came last, the longest wait of each collective."""
        found = dict.fromkeys((one.rank for one in self.ranks), 0.0)
        for one in self.collectives:
            found[one.latest] += one.skew_us
        return found

    @property
    def straggler(self) -> int | None:
        """The rank that causes most of the waiting, where it is worth a word; None without one."""
        total = sum(self.caused_us.values())
        spent = sum(sum(one.durations_ns.values()) for one in self.collectives) / 1000 / len(self.ranks)
        rank = max(self.caused_us, key=lambda one: self.caused_us[one])
        often = self.caused_us[rank] >= _MOST_OF_THE_WAIT * total
        return rank if total > _WORTH * spent and often and self.kind != "inconclusive" else None

    def wait_us(self, rank: int) -> float:
        """Return how long a rank waited for others, all collectives together."""
        return sum(one.wait_us(rank) for one in self.collectives if rank in one.starts_ns)


def wait_share(collectives: Iterable[JoinedCollective]) -> float | None:
    """Return the share of the time in these, of all ranks together, that is waiting for the last one."""
    spent = waited = 0.0
    for one in collectives:
        spent += sum(one.durations_ns.values()) / 1000
        waited += sum(map(one.wait_us, one.starts_ns))
    return min(waited / spent, 1.0) if spent else None


class InJob(Struct, frozen=True, kw_only=True, eq=False):
    """A recording's place among those of its job."""

    job: Job
    rank: int

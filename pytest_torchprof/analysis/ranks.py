"""Recordings of the ranks of one job together: who waited for whom at each collective, and how long sending took."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pytest_torchprof.analysis.collectives import Collective, StepCommunication  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.analysis.messages import ProcessGroup, bus_factor
from pytest_torchprof.analysis.numbers import middle
from pytest_torchprof.reasons.collectives import Gap, RankDifference
from pytest_torchprof.reasons.errors import NotMeasured
from pytest_torchprof.reasons.findings import ClocksDoNotFit, CollectivesUnmatched, FewCollectives, MayCommunicate
from pytest_torchprof.reasons.reason import StoredReason  # noqa: TC001  (msgspec reads it)
from pytest_torchprof.reasons.recordings import NoRecordingOfRank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.reasons.reason import Reason


Kind = Literal["transfer-bound", "skew-bound", "mixed", "inconclusive"]

_FEW: Final = 3
_MOSTLY, _SELDOM = 0.75, 0.25
_MOST_OF_THE_WAIT: Final = 2 / 3
_WORTH: Final = 0.1


class RankPart(Struct, frozen=True, kw_only=True, dict=True):
    """The part of one rank's recording that is kept to compare it with the others'."""

    rank: int
    world_size: int
    path: str
    host: str | None
    """The machine, where the recording names it."""
    clock: str | None
    """By which clock its times are: the same for ranks of one host; None where the recording does not tell."""
    run_id: str | None
    """The launcher's name for the run."""
    device: str
    window_ns: tuple[int, int]
    """When it was recorded, by the clock of its host."""
    collectives: tuple[Collective, ...]
    """The collectives of all steps; those that it had with other ranks have ``wait_us`` and ``transfer_us``."""
    offset_ns: int
    """The nanoseconds to add to an instant of theirs to get the host's time."""
    steps: tuple[StepCommunication, ...]
    kernels: tuple[Mapping[str, Mapping[str, int]], ...] | None
    """How many kernels each step has: of each name, Triton's index left out, by the types that they work on.

    The types are empty where they are not recorded. None where the kernels are not known.
    """
    groups: tuple[ProcessGroup, ...]
    """The process groups that it knows."""
    test: tuple[str | None, str | None]
    """The test that it is of, and its label."""
    why_not: StoredReason | None
    """Why its numbers cannot be believed."""
    kernels_unknown: StoredReason | None
    """Why its kernels are not all known."""
    launches_wait: str | None
    """The setting that made every launch wait, so that its times mean nothing."""
    samples_hardware: bool
    """Whether the GPU's units were sampled, which locks its clocks."""
    may_communicate: tuple[str, ...]
    """Kernels of which nobody knows whether they communicate."""
    may_be_collectives: int
    """How many collectives more there were if they did."""

    @cached_property
    def matched(self) -> int:
        """How many of its collectives are matched with those of other ranks."""
        return sum(collective.wait_ns is not None for collective in self.collectives)

    @cached_property
    def unmatched(self) -> tuple[Collective, ...]:
        """Its collectives with other ranks that are not matched with theirs."""
        return tuple(
            collective for collective in self.collectives if collective.wait_ns is None and collective.is_with_others
        )

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
        """The type of the data that is sent: "fp32"."""
        return next((collective.dtype for collective in self.of_rank.values() if collective.dtype is not None), None)

    @property
    def message_bytes(self) -> int | None:
        """The size of the whole message, as far as any of the ranks tells it."""
        known = [
            collective.message_bytes for collective in self.of_rank.values() if collective.message_bytes is not None
        ]
        return max(known, default=None)

    @property
    def is_of_all(self) -> bool:
        """Whether it has all ranks of its group, or both sides of a message; of an unknown group nobody knows."""
        if any(own.peer is not None for own in self.of_rank.values()):
            return len(self.of_rank) > 1
        size = self.group.size if self.group.ranks is None else len(self.group.ranks)
        return size is not None and len(self.of_rank) >= size

    @property
    def durations_ns(self) -> Mapping[int, int]:
        """How long each rank was in it, waiting included."""
        return {rank: collective.dur_ns or 0 for rank, collective in self.of_rank.items()}

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
        return self.of_rank[rank].wait_us or 0.0

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
        """The rate of the busiest link while no rank waited, in 1e9 bytes per second."""
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
    not_joined: Mapping[Gap, int]
    """How many collectives are not matched with other ranks', by the reason."""
    unmatched: int
    """How many collectives there may be besides that the ranks had together."""
    differences: tuple[RankDifference, ...]
    """Collectives of which ranks give different sizes, types or orders; with any, nothing is concluded from starts."""
    one_clock: bool
    """Whether all ranks name the same host."""
    residue_us: float
    """How far apart the ends of a collective are in the middle once clocks are aligned; 0 with one clock."""

    def __getitem__(self, rank: int) -> RankPart:
        """Return the part that is kept of a rank's recording; NotMeasured where there is no recording of it."""
        part = next((candidate for candidate in self.ranks if candidate.rank == rank), None)
        if part is None:
            there = ", ".join(str(candidate.rank) for candidate in self.ranks)
            raise NotMeasured(NoRecordingOfRank(rank, there))
        return part

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
        return tuple(sorted(set(range(self.world_size)) - {part.rank for part in self.ranks}))

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of its process groups: "0 default_pg"."""
        called = {
            " ".join(filter(None, (group.name, group.description))) for part in self.ranks for group in part.groups
        }
        return tuple(sorted(called - {""}))

    def groups_called(self, name: str) -> list[tuple[int, ...]]:
        """Return the ranks, as far as they are there, of each process group of this name or description."""
        there = {part.rank for part in self.ranks}
        named = {group for part in self.ranks for group in part.groups if name in (group.name, group.description)}
        listed = [group.ranks for group in named if group.ranks is not None]
        # Of a group of all, torch may list none.
        listed += [tuple(there) for group in named if group.ranks is None and group.size == self.world_size]
        return sorted(set(filter(None, (tuple(sorted(there.intersection(ranks))) for ranks in listed))))

    @cached_property
    def skew_us(self) -> float | None:
        """The median over collectives from the first rank's start to the last one's; None where that is not known."""
        if self.differences or not self.collectives:
            return None
        return middle([collective.skew_us for collective in self.collectives])

    @cached_property
    def most_skew_us(self) -> float:
        """An upper bound of the median skew, which allows for any skew of the collectives that could not be matched."""
        return middle([*(collective.skew_us for collective in self.collectives), *[math.inf] * self.unmatched])

    @cached_property
    def wait_share(self) -> float | None:
        """The share of the time in collectives, of all ranks together, that is waiting for the last one."""
        return wait_share(self.collectives)

    @property
    def kind(self) -> Kind:
        """Whether the time in collectives goes into waiting or into transfer."""
        return self.kind_of(self.collectives)

    def kind_of(self, collectives: Sequence[JoinedCollective]) -> Kind:
        """Return whether their time goes into waiting or transfer; inconclusive for a few, or if clocks disagree."""
        share = wait_share(collectives)
        if share is None or not self._are_enough(collectives):
            return "inconclusive"
        if share > _MOSTLY:
            return "skew-bound"
        # Those whose recordings are missing may have come later still: then it is more waiting, and less transfer.
        if not self.has_all(collectives):
            return "inconclusive"
        return "transfer-bound" if share < _SELDOM else "mixed"

    @property
    def waits_at_least(self) -> float | None:
        """The share that is waiting where only missing recordings leave open whether more is; None anywhere else."""
        is_open = self.kind == "inconclusive" and self._are_enough(self.collectives)
        return self.wait_share if is_open else None

    def has_all(self, collectives: Iterable[JoinedCollective]) -> bool:
        """Return whether the recordings of all ranks are there that took part in these."""
        return not self.missing or all(collective.is_of_all for collective in collectives)

    def _are_enough(self, collectives: Sequence[JoinedCollective]) -> bool:
        """Return whether the starts of these tell who came when."""
        return len(collectives) >= _FEW and not self.differences and self._clocks_fit(collectives)

    def _clocks_fit(self, collectives: Sequence[JoinedCollective]) -> bool:
        return self.residue_us <= _WORTH * middle(
            [max(collective.durations_ns.values()) / 1000 for collective in collectives]
        )

    @cached_property
    def caused_us(self) -> Mapping[int, float]:
        """By rank, how long others had waited when it came last, the longest wait of each matched collective."""
        caused = dict.fromkeys((part.rank for part in self.ranks), 0.0)
        for collective in self.collectives:
            caused[collective.latest] += collective.skew_us
        return caused

    @property
    def straggler(self) -> int | None:
        """The rank that causes most of the waiting, where that is worth mentioning; None without such a rank."""
        total = sum(self.caused_us.values())
        rank = max(self.caused_us, key=lambda candidate: self.caused_us[candidate])
        often = self.caused_us[rank] >= _MOST_OF_THE_WAIT * total
        # Of a rank whose recording is missing nothing is said: it may have come later still.
        return rank if total > self._worth_us and often and self._are_enough(self.collectives) else None

    @property
    def _worth_us(self) -> float:
        """From how much waiting on a straggler is reported."""
        return (
            _WORTH
            * sum(sum(collective.durations_ns.values()) for collective in self.collectives)
            / 1000
            / len(self.ranks)
        )

    @property
    def why_no_straggler(self) -> Reason | None:
        """Why it is not known whether a rank keeps the others waiting; None where it is known."""
        unmatched = [collective for part in self.ranks for collective in part.unmatched]
        waited_us = sum(self.caused_us.values())
        # Nobody waits in a collective for longer than it takes.
        hidden_us = sum(math.inf if collective.dur_ns is None else collective.dur_ns / 1000 for collective in unmatched)
        reason: Reason | None = None
        if self.straggler is not None:
            return None
        if self.differences:
            reason = self.why_unsure
        elif self.collectives and not self._clocks_fit(self.collectives):
            reason = ClocksDoNotFit()
        elif unknown := self.may_communicate:
            reason = MayCommunicate(unknown[0])
        elif unmatched and waited_us + hidden_us > self._worth_us:
            reason = CollectivesUnmatched(self.why_unmatched)
        elif waited_us > self._worth_us and len(self.collectives) < _FEW:
            reason = FewCollectives(_FEW, len(self.collectives))
        return reason

    @property
    def may_communicate(self) -> list[str]:
        """Kernels that may be collectives, which nobody knows."""
        return sorted({name for part in self.ranks for name in part.may_communicate if part.may_be_collectives})

    def wait_us(self, rank: int) -> float | None:
        """Return how long a rank waited for others in all of its collectives; None where some are not matched."""
        return None if self[rank].unmatched else self.matched_wait_us(rank)

    def matched_wait_us(self, rank: int) -> float | None:
        """Return how long a rank waited for others in those of its collectives that are matched; None without any."""
        if not self[rank].matched:
            return None
        return sum(collective.wait_us(rank) for collective in self.collectives if rank in collective.starts_ns)

    @property
    def why_unsure(self) -> Reason | None:
        """Why it is not sure which collectives of the ranks are the same one; None where it is."""
        if not self.differences:
            return None
        from pytest_torchprof.reasons.job_limits import CollectivesDiffer  # noqa: PLC0415 - few ranks differ

        first, *others = self.differences
        return CollectivesDiffer(first, len(others))

    @property
    def why_unmatched(self) -> tuple[tuple[int, Gap], ...]:
        """How many collectives are not matched with those of other ranks, and why."""
        alone = sum(sum(names.values()) for names in self.alone.values())
        gaps = {**self.not_joined, Gap.ALONE: alone} if alone else self.not_joined
        return tuple((number, gap) for gap, number in gaps.items())

    @property
    def is_matched(self) -> bool:
        """Whether all collectives of all ranks are matched."""
        return not any(part.unmatched for part in self.ranks)


def wait_share(collectives: Iterable[JoinedCollective]) -> float | None:
    """Return the share of the time in these, of all ranks together, that is waiting for the last one."""
    spent = waited = 0.0
    for collective in collectives:
        spent += sum(collective.durations_ns.values()) / 1000
        waited += sum(map(collective.wait_us, collective.starts_ns))
    return min(waited / spent, 1.0) if spent else None


class InJob(Struct, frozen=True, kw_only=True, eq=False):
    """Which of the recordings of its job a recording is."""

    job: Job
    rank: int

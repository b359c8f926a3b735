"""How the recordings of ranks become a job: by which clock the collectives that they had together started."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_torchprof.analysis.clocks import aligned
from pytest_torchprof.analysis.pairing import paired, why_not_paired
from pytest_torchprof.analysis.ranks import Job, JoinedCollective
from pytest_torchprof.reasons.collectives import Gap

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.messages import ProcessGroup
    from pytest_torchprof.analysis.ranks import RankPart


def joined(parts: Iterable[RankPart]) -> Job:
    """Return the job that these ranks are of; TorchprofError where they are not of one, or only one rank is there."""
    from pytest_torchprof.analysis.one_job import refuse_mixed  # noqa: PLC0415 - most runs know no ranks

    ranks = tuple(sorted(_with_shared_values(parts), key=lambda part: part.rank))
    refuse_mixed(ranks)
    pairing = paired(ranks)
    not_joined = Counter(pairing.not_paired)
    # What has nothing to send takes no time, and needs no other rank.
    working = [
        {rank: collective for rank, collective in of_rank.items() if collective.is_with_others}
        for of_rank in pairing.of_ranks
    ]
    together = [of_rank for of_rank in working if len(of_rank) > 1]
    timed = [of_rank for of_rank in together if all(own.dur_ns is not None for own in of_rank.values())]
    clocks = aligned(ranks, timed)
    comparable = [of_rank for of_rank in timed if clocks.are_comparable(of_rank)]
    not_joined[Gap.NO_TIME] += sum(map(len, together)) - sum(map(len, timed))
    not_joined[Gap.NO_CLOCK] += sum(map(len, timed)) - sum(map(len, comparable))
    collectives = tuple(_together(of_rank, clocks.offsets_ns) for of_rank in comparable)
    with_waits = {
        id(before): joint.of_rank[rank]
        for of_rank, joint in zip(comparable, collectives, strict=True)
        for rank, before in of_rank.items()
    }
    alone = list(_alone(ranks, pairing.of_ranks))
    with_times = tuple(
        replace(part, collectives=tuple(with_waits.get(id(own), own) for own in part.collectives)) for part in ranks
    )
    return Job(
        ranks=with_times,
        collectives=collectives,
        alone=_by_rank(alone),
        unmatched=_unmatched(with_times, [collective for _, collective in alone]),
        not_joined={why: count for why, count in not_joined.items() if count},
        differences=pairing.differences,
        one_clock=clocks.are_same,
        residue_us=clocks.residue_us,
    )


def _with_shared_values(parts: Iterable[RankPart]) -> Iterator[RankPart]:
    """Yield the parts, and keep what is equal in them once: each of many ranks lists all of them, and runs the same."""
    known: dict[Hashable, Any] = {}

    def shared(value: Any, key: Hashable = None) -> Any:
        return known.setdefault(value if key is None else key, value)

    for part in parts:
        kernels = part.kernels
        yield replace(
            part,
            collectives=tuple(replace(collective, group=shared(collective.group)) for collective in part.collectives),
            groups=tuple(map(shared, part.groups)),
            kernels=None if kernels is None else tuple(shared(step, repr(step)) for step in kernels),
        )


def _together(of_rank: Mapping[int, Collective], offsets_ns: Mapping[int, int]) -> JoinedCollective:
    starts = {rank: (collective.start_ns or 0) + offsets_ns[rank] for rank, collective in of_rank.items()}
    latest, transfer = max(starts.values()), min(collective.dur_ns or 0 for collective in of_rank.values())
    own = {
        rank: replace(collective, wait_ns=latest - starts[rank], transfer_ns=transfer)
        for rank, collective in of_rank.items()
    }
    first = own[min(own)]
    return JoinedCollective(name=first.name or "", group=first.group, step=first.step, of_rank=own, starts_ns=starts)


def _alone(ranks: Sequence[RankPart], of_ranks: Iterable[Mapping[int, Collective]]) -> Iterator[tuple[int, Collective]]:
    """Yield each collective that only one rank has, although others of its group are there."""
    there = {part.rank for part in ranks}
    # Where another rank does not tell the group, it may be the same collective.
    unsure = {
        collective.name
        for part in ranks
        for collective in part.collectives
        if why_not_paired(collective, part.world_size) is Gap.NO_GROUP
    }
    for of_rank in of_ranks:
        (rank, collective), *others = of_rank.items()
        members = there if collective.group.ranks is None else there.intersection(collective.group.ranks)
        if not others and members - {rank} and collective.name not in unsure:
            yield rank, collective


def _by_rank(alone: Iterable[tuple[int, Collective]]) -> dict[int, Counter[str]]:
    counts: dict[int, Counter[str]] = {}
    for rank, collective in alone:
        counts.setdefault(rank, Counter())[collective.name or ""] += 1
    return counts


def _unmatched(ranks: Sequence[RankPart], alone: Sequence[Collective]) -> int:
    """Return how many collectives ranks may have had together that are not compared.

    Each rank has its share of such a collective; a collective that one rank has ``alone`` counts whole.
    """
    there, single = {part.rank for part in ranks}, set(map(id, alone))
    shares = sum(
        1 / _members(collective.group, there)
        for part in ranks
        for collective in part.unmatched
        if id(collective) not in single
    )
    unknown = max(part.may_be_collectives for part in ranks)
    return math.ceil(round(shares, 6)) + len(alone) + unknown


def _members(group: ProcessGroup, there: set[int]) -> int:
    """Return how many ranks of a group are there, as far as that is known; no fewer than two have a collective."""
    known = min(group.size or 2, len(there)) if group.ranks is None else len(there.intersection(group.ranks))
    return max(2, known)

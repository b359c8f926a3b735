"""How the recordings of ranks become a job: by which clock the collectives that they had together started."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_torchprof.analysis.clocks import aligned
from pytest_torchprof.analysis.one_job import refuse_mixed
from pytest_torchprof.analysis.pairing import NO_GROUP, paired, why_not_paired
from pytest_torchprof.analysis.ranks import Job, JoinedCollective

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.messages import ProcessGroup
    from pytest_torchprof.analysis.ranks import RankPart

_NO_TIME: Final = "when it ran is not recorded"
_NO_CLOCK: Final = "nothing aligns the clocks of its ranks' hosts"


def joined(parts: Iterable[RankPart]) -> Job:
    """Return the job that these ranks are of; TorchprofError where they are not of one, or only one rank is there."""
    ranks = tuple(sorted(_sharing(parts), key=lambda one: one.rank))
    refuse_mixed(ranks)
    found = paired(ranks)
    not_joined = found.not_paired
    # What has nothing to send takes no time, and needs no other rank.
    working = [{rank: one for rank, one in of_rank.items() if one.is_with_others} for of_rank in found.of_ranks]
    together = [of_rank for of_rank in working if len(of_rank) > 1]
    timed = [of_rank for of_rank in together if all(one.dur_ns is not None for one in of_rank.values())]
    clocks = aligned(ranks, timed)
    comparable = [of_rank for of_rank in timed if clocks.are_one(of_rank)]
    not_joined[_NO_TIME] += sum(map(len, together)) - sum(map(len, timed))
    not_joined[_NO_CLOCK] += sum(map(len, timed)) - sum(map(len, comparable))
    collectives = tuple(_together(of_rank, clocks.offsets_ns) for of_rank in comparable)
    with_waits = {
        id(before): one.of_rank[rank]
        for of_rank, one in zip(comparable, collectives, strict=True)
        for rank, before in of_rank.items()
    }
    alone = list(_alone(ranks, found.of_ranks))
    told = tuple(
        replace(part, collectives=tuple(with_waits.get(id(one), one) for one in part.collectives)) for part in ranks
    )
    return Job(
        ranks=told,
        collectives=collectives,
        alone=_by_rank(alone),
        unmatched=_unmatched(told, [one for _, one in alone]),
        not_joined={why: count for why, count in not_joined.items() if count},
        differences=found.differences,
        one_clock=clocks.are_same,
        residue_us=clocks.residue_us,
    )


def _sharing(parts: Iterable[RankPart]) -> Iterator[RankPart]:
    """Yield the parts, and keep what is equal in them once: each of many ranks lists all of them, and runs the same."""
    known: dict[Hashable, Any] = {}

    def shared(value: Any, key: Hashable = None) -> Any:
        return known.setdefault(value if key is None else key, value)

    for part in parts:
        kernels = part.kernels
        yield replace(
            part,
            collectives=tuple(replace(one, group=shared(one.group)) for one in part.collectives),
            groups=tuple(map(shared, part.groups)),
            kernels=None if kernels is None else tuple(shared(step, repr(step)) for step in kernels),
        )


def _together(of_rank: Mapping[int, Collective], offsets_ns: Mapping[int, int]) -> JoinedCollective:
    starts = {rank: (one.start_ns or 0) + offsets_ns[rank] for rank, one in of_rank.items()}
    latest, transfer = max(starts.values()), min(one.dur_ns or 0 for one in of_rank.values())
    own = {rank: replace(one, wait_ns=latest - starts[rank], transfer_ns=transfer) for rank, one in of_rank.items()}
    first = own[min(own)]
    return JoinedCollective(name=first.name or "", group=first.group, step=first.step, of_rank=own, starts_ns=starts)


def _alone(ranks: Sequence[RankPart], found: Iterable[Mapping[int, Collective]]) -> Iterator[tuple[int, Collective]]:
    """Yield what only one rank has, although others of its group are there."""
    there = {part.rank for part in ranks}
    # Where another rank does not tell the group, it may be the same collective.
    unsure = {
        one.name for part in ranks for one in part.collectives if why_not_paired(one, part.world_size) == NO_GROUP
    }
    for of_rank in found:
        (rank, one), *others = of_rank.items()
        members = there if one.group.ranks is None else there.intersection(one.group.ranks)
        if not others and members - {rank} and one.name not in unsure:
            yield rank, one


def _by_rank(alone: Iterable[tuple[int, Collective]]) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = {}
    for rank, one in alone:
        found.setdefault(rank, Counter())[one.name or ""] += 1
    return found


def _unmatched(ranks: Sequence[RankPart], alone: Sequence[Collective]) -> int:
    """Return how many collectives ranks may have had together that are not held against each other.

    Each rank has its share of one; what one rank has ``alone`` is one by itself.
    """
    there, single = {part.rank for part in ranks}, set(map(id, alone))
    shares = sum(1 / _members(one.group, there) for part in ranks for one in part.unmatched if id(one) not in single)
    unknown = max(part.may_be_collectives for part in ranks)
    return math.ceil(round(shares, 6)) + len(alone) + unknown


def _members(group: ProcessGroup, there: set[int]) -> int:
    """Return how many ranks of a group are there, as far as that is known; no fewer than two have a collective."""
    known = min(group.size or 2, len(there)) if group.ranks is None else len(there.intersection(group.ranks))
    return max(2, known)

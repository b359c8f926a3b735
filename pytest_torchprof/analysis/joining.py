"""How the recordings of ranks become a job: which collectives are the same one, and by which clock they started."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from pytest_torchprof.analysis.clocks import aligned
from pytest_torchprof.analysis.collectives import EMPTY, ONE_RANK
from pytest_torchprof.analysis.ranks import Job, JoinedCollective
from pytest_torchprof.codes import Code
from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.ranks import RankPart

_PAIRWISE: Final = "send_recv"
_NO_NAME: Final = "what it does is not recorded"
_NO_TIME: Final = "when it ran is not recorded"
_NO_GROUP: Final = "its group, one of several, is not recorded"
_NO_PEER: Final = "which rank it is with is not recorded"
_BATCHED: Final = "one kernel carried out several"
_NO_OTHER: Final = "the rank that it is with has no recording"
_UNEVEN: Final = "the rank that it is with has not as many in the same step"
_NO_CLOCK: Final = "nothing aligns the clocks of its ranks' hosts"


class _Keyed(NamedTuple):
    """The collectives of all ranks, by what they are called on each of them."""

    of_key: Mapping[Hashable, Mapping[int, Collective]]
    not_joined: Counter[str]


def joined(parts: Iterable[RankPart]) -> Job:
    """Return the job that these ranks are of; TorchprofError where they are not of one, or only one rank is there."""
    ranks = tuple(sorted(parts, key=lambda one: one.rank))
    _refuse_mixed(ranks)
    found = _collectives_of(ranks)
    together = [of_rank for of_rank in found.of_key.values() if len(of_rank) > 1]
    timed = [of_rank for of_rank in together if all(one.dur_ns is not None for one in of_rank.values())]
    clocks = aligned(ranks, timed)
    comparable = [of_rank for of_rank in timed if clocks.are_one(of_rank)]
    found.not_joined[_NO_TIME] += sum(len(of_rank) for of_rank in together) - sum(map(len, timed))
    found.not_joined[_NO_CLOCK] += sum(map(len, timed)) - sum(map(len, comparable))
    collectives = tuple(_together(of_rank, clocks.offsets_ns) for of_rank in comparable)
    with_waits = {
        id(before): one.of_rank[rank]
        for of_rank, one in zip(comparable, collectives, strict=True)
        for rank, before in of_rank.items()
    }
    return Job(
        ranks=tuple(
            replace(part, collectives=tuple(with_waits.get(id(one), one) for one in part.collectives)) for part in ranks
        ),
        collectives=collectives,
        alone=_alone(ranks, found.of_key.values()),
        not_joined={why: count for why, count in found.not_joined.items() if count},
        one_clock=clocks.are_same,
        residue_us=clocks.residue_us,
    )


def _collectives_of(ranks: Sequence[RankPart]) -> _Keyed:
    of_key: dict[Hashable, dict[int, Collective]] = defaultdict(dict)
    not_joined: Counter[str] = Counter()
    pairs: dict[Hashable, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for part in ranks:
        seen: Counter[Hashable] = Counter()
        for one in part.collectives:
            # These have no time because they need none, and no other rank.
            if one.group.size == 1 or one.why_no_time in (ONE_RANK, EMPTY):
                continue
            if (reason := _why_not(one, part.world_size)) is not None:
                not_joined[reason] += 1
            elif one.name == _PAIRWISE:
                pairs[_pair_of(one, part.rank)][part.rank].append(one)
            else:
                key = _key_of(one)
                seen[key] += 1
                of_key[key, seen[key]][part.rank] = one
    there = {part.rank for part in ranks}
    for key, of_rank in pairs.items():
        counts = {len(ones) for ones in of_rank.values()}
        if len(of_rank) == 2 and len(counts) == 1:
            # Between two ranks messages of one tag arrive in the order in which they were sent.
            for number, ones in enumerate(zip(*of_rank.values(), strict=True)):
                of_key[key, number] = dict(zip(of_rank, ones, strict=True))
            continue
        peers = {one.peer for ones in of_rank.values() for one in ones}
        not_joined[_UNEVEN if peers <= there else _NO_OTHER] += sum(map(len, of_rank.values()))
    return _Keyed(of_key, not_joined)


def _why_not(one: Collective, world_size: int) -> str | None:
    """Return why nothing tells which collective of other ranks this one is."""
    if one.name is None:
        return _NO_NAME
    if one.together > 1:
        return _BATCHED
    if one.name == _PAIRWISE and one.peer is None:
        return _NO_PEER
    # A group that is not named is that of all ranks, or may be another one on each rank.
    known = one.group.name is not None or one.group.ranks is not None or one.group.size == world_size
    return None if known or one.comms_id is not None else _NO_GROUP


def _key_of(one: Collective) -> Hashable:
    """Return what it is called on all ranks: its id, its number in its group, or what it is in which step."""
    group = (one.group.name, one.group.ranks, one.group.size)
    if one.comms_id is not None:
        return one.comms_id, one.name, one.sequence
    if one.sequence is not None:
        return group, one.name, one.sequence
    return one.step, group, one.name


def _pair_of(one: Collective, rank: int) -> Hashable:
    """Return the step, the group, the sender, the receiver and the tag."""
    ends = (rank, one.peer) if one.is_send else (one.peer, rank)
    return one.step, one.group.name, one.group.ranks, ends, one.tag


def _together(of_rank: Mapping[int, Collective], offsets_ns: Mapping[int, int]) -> JoinedCollective:
    starts = {rank: (one.start_ns or 0) + offsets_ns[rank] for rank, one in of_rank.items()}
    latest, transfer = max(starts.values()), min(one.dur_ns or 0 for one in of_rank.values())
    own = {rank: replace(one, wait_ns=latest - starts[rank], transfer_ns=transfer) for rank, one in of_rank.items()}
    first = own[min(own)]
    return JoinedCollective(name=first.name or "", group=first.group, step=first.step, of_rank=own, starts_ns=starts)


def _alone(ranks: Sequence[RankPart], found: Iterable[Mapping[int, Collective]]) -> dict[int, Counter[str]]:
    there = {part.rank for part in ranks}
    # Where another rank does not tell the group, it may be the same collective.
    unsure = {one.name for part in ranks for one in part.collectives if _why_not(one, part.world_size) == _NO_GROUP}
    alone: dict[int, Counter[str]] = {}
    for of_rank in found:
        (rank, one), *others = of_rank.items()
        members = there if one.group.ranks is None else there.intersection(one.group.ranks)
        if not others and members - {rank} and one.name not in unsure:
            alone.setdefault(rank, Counter())[one.name or ""] += 1
    return alone


def _refuse_mixed(ranks: Sequence[RankPart]) -> None:
    """Raise TorchprofError where these are not the recordings of several ranks of one job."""
    if len(ranks) < 2:
        said = "there is one rank's recording; those of two ranks at least are held against each other."
        raise TorchprofError(said, Code.NO_RANK)
    first, reason = ranks[0], None
    groups = {one.name: one.ranks for one in first.groups if one.name is not None}
    for before, one in pairwise(ranks):
        if one.world_size != first.world_size:
            reason = f"is of a job of {one.world_size} ranks, {first.path} of one of {first.world_size}"
        elif one.rank == before.rank:
            reason = f"is of rank {one.rank}, as {before.path} is"
        elif one.test != first.test:
            reason = f"is of the test {one.test[0]}, {first.path} of {first.test[0]}"
        elif any(group.name in groups and groups[group.name] != group.ranks for group in one.groups):
            reason = f"has other process groups than {first.path}"
        elif None not in (one.run_id, first.run_id) and one.run_id != first.run_id:
            reason = f"is of another run than {first.path}"
        elif one.clock is not None and one.clock == first.clock and _apart(one.window_ns, first.window_ns):
            reason = f"was recorded at another time than {first.path}"
        if reason is not None:
            said = f"the recordings are not of one job: {one.path} {reason}"
            raise TorchprofError(f"{said}. Name a folder that holds those of one job only.", Code.MIXED_JOBS)


def _apart(these: tuple[int, int], those: tuple[int, int]) -> bool:
    return these[1] < those[0] or those[1] < these[0]

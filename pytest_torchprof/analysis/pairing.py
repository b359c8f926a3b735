"""Which collectives of several ranks are the same one, and where ranks disagree on what they do together."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pytest_torchprof.reasons.collectives import Gap, OtherMessage, OtherOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.collectives import Collective
    from pytest_torchprof.analysis.ranks import RankPart
    from pytest_torchprof.reasons.collectives import RankDifference

_Value = TypeVar("_Value")
_PAIRWISE: Final = "send_recv"
_UNEVEN_ALLOWED: Final = ("all_to_all", "barrier")
"""Collectives whose message may have another size on each rank, or has none."""


class Paired(NamedTuple):
    """The collectives that ranks had together."""

    of_ranks: Sequence[Mapping[int, Collective]]
    """Each by rank; of one rank alone, where others of its group have none that fits."""
    not_paired: Counter[Gap]
    """How many others there are, by the reason."""
    differences: tuple[RankDifference, ...]


def paired(ranks: Sequence[RankPart]) -> Paired:
    """Return which collectives of the ranks are the same one."""
    not_paired: Counter[Gap] = Counter()
    pairs: dict[Hashable, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[Hashable, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for part in ranks:
        for collective in part.collectives:
            # A send of nothing needs no other rank; of a collective the others may have more to send.
            if collective.group.size == 1 or (
                collective.name == _PAIRWISE and collective.why_no_time is Gap.NOTHING_TO_SEND
            ):
                continue
            if (reason := why_not_paired(collective, part.world_size)) is not None:
                not_paired[reason] += 1
            elif collective.name == _PAIRWISE:
                pairs[_pair_of(collective, part.rank)][part.rank].append(collective)
            else:
                rows[_row_of(collective, part)][part.rank].append(collective)
    differences: list[RankDifference] = []
    together = [*_in_rows(rows, not_paired, differences), *_in_pairs(pairs, {part.rank for part in ranks}, not_paired)]
    alike = []
    for of_rank in together:
        if unlike := list(_unlike_ranks(of_rank)):
            differences += unlike
            not_paired[Gap.UNLIKE] += len(of_rank)
        else:
            alike.append(of_rank)
    return Paired(alike, not_paired, tuple(differences))


def why_not_paired(collective: Collective, world_size: int) -> Gap | None:
    """Return why it is not known which collective of other ranks this one is."""
    if collective.name is None:
        return Gap.NO_NAME
    if collective.together > 1:
        return Gap.BATCHED
    if collective.name == _PAIRWISE and collective.peer is None:
        return Gap.NO_PEER
    # A group that is not named is that of all ranks, or may be another one on each rank.
    known = (
        collective.group.name is not None or collective.group.ranks is not None or collective.group.size == world_size
    )
    return None if known or collective.comms_id is not None else Gap.NO_GROUP


def _row_of(collective: Collective, part: RankPart) -> Hashable:
    """Return the key of collectives that all ranks call in one order: an id or number, or else group and step."""
    group = (collective.group.name, collective.group.ranks, collective.group.size)
    if collective.comms_id is not None:
        return collective.comms_id, collective.name, collective.sequence
    if collective.sequence is not None:
        return group, collective.name, collective.sequence
    # Between several groups, of which it may be any, ranks need keep no order.
    several = collective.group.name is None and collective.group.ranks is None and len(part.groups) > 1
    return collective.step, group, collective.name if several else None


def _pair_of(collective: Collective, rank: int) -> Hashable:
    """Return the step, the group, the sender, the receiver and the tag."""
    ends = (rank, collective.peer) if collective.is_send else (collective.peer, rank)
    return collective.step, collective.group.name, collective.group.ranks, ends, collective.tag


def _in_rows(
    rows: Mapping[Hashable, Mapping[int, Sequence[Collective]]],
    not_paired: Counter[Gap],
    differences: list[RankDifference],
) -> Iterator[Mapping[int, Collective]]:
    """Yield each rank's collective at each index of each row, up to where orders differ; differences are added."""
    for of_rank in rows.values():
        orders = {rank: tuple(collective.name or "" for collective in row) for rank, row in of_rank.items()}
        until = _alike_until(set(orders.values()))
        if until is not None:
            not_paired[Gap.OTHER_ORDER] += sum(max(len(row) - until, 0) for row in of_rank.values())
            differences += _other_orders(of_rank, orders, until)
        for index in range(max(map(len, of_rank.values())) if until is None else until):
            yield {rank: row[index] for rank, row in of_rank.items() if index < len(row)}


def _alike_until(orders: Iterable[Sequence[str]]) -> int | None:
    """Return the first index at which two orders have different names; None where each begins as the longer ones do."""
    longest = max(orders, key=len)
    unlike = [
        next((index for index, (mine, other) in enumerate(zip(order, longest, strict=False)) if mine != other), None)
        for order in orders
    ]
    return min((index for index in unlike if index is not None), default=None)


def _other_orders(
    of_rank: Mapping[int, Sequence[Collective]], orders: Mapping[int, tuple[str, ...]], until: int
) -> Iterator[RankDifference]:
    usual, first = _most_common(orders)
    for rank, order in orders.items():
        if order != usual:
            yield OtherOrder(rank, of_rank[rank][0].step + 1, first, order[until:], usual[until:])


def _in_pairs(
    pairs: Mapping[Hashable, Mapping[int, Sequence[Collective]]], there: set[int], not_paired: Counter[Gap]
) -> Iterator[Mapping[int, Collective]]:
    for of_rank in pairs.values():
        if len(of_rank) == 2 and len({len(collectives) for collectives in of_rank.values()}) == 1:
            # Between two ranks messages of one tag arrive in the order in which they were sent.
            for collectives in zip(*of_rank.values(), strict=True):
                yield dict(zip(of_rank, collectives, strict=True))
            continue
        peers = {collective.peer for collectives in of_rank.values() for collective in collectives}
        not_paired[Gap.PEER_HAS_OTHERS if peers <= there else Gap.PEER_NOT_THERE] += sum(map(len, of_rank.values()))


def _unlike_ranks(of_rank: Mapping[int, Collective]) -> Iterator[RankDifference]:
    """Yield the ranks that give another size or type to a collective than most others."""
    looks: tuple[Callable[[Collective], object], ...] = (_size_of, lambda collective: collective.dtype)
    odd: dict[int, int] = {}
    for look in looks:
        known = {rank: value for rank, collective in of_rank.items() if (value := look(collective)) is not None}
        if len(set(known.values())) > 1:
            usual, first = _most_common(known)
            odd |= {rank: first for rank, value in known.items() if value != usual}
    for rank, first in sorted(odd.items()):
        mine, theirs = of_rank[rank], of_rank[first]
        messages = (mine.message_bytes, mine.dtype, theirs.message_bytes, theirs.dtype)
        yield OtherMessage(rank, mine.step + 1, first, mine.name or "", *messages)


def _size_of(collective: Collective) -> int | None:
    """Return the message's size in bytes, which must be the same on all ranks; None if it need not be."""
    return None if collective.name in _UNEVEN_ALLOWED else collective.message_bytes


def _most_common(of_rank: Mapping[int, _Value]) -> tuple[_Value, int]:
    """Return the value that most ranks have, of several the lowest rank's, and the first rank that has it."""
    (usual, _), *_ = Counter(of_rank[rank] for rank in sorted(of_rank)).most_common(1)
    return usual, min(rank for rank, value in of_rank.items() if value == usual)

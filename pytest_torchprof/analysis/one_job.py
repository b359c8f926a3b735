"""Whether recordings are of ranks of one run: what they say of the job, when they were made, and what was numbered."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.clocks import TOGETHER
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.mixed_jobs import (
    JobOfOtherSize,
    OneRankRecorded,
    OtherCollectiveNumbers,
    OtherProcessGroups,
    ProcessGroupMissing,
    RankOfOtherRun,
    RankOfOtherTest,
    RecordedAtOtherTime,
    SameRankTwice,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.messages import ProcessGroup
    from pytest_torchprof.analysis.ranks import RankPart
    from pytest_torchprof.reasons.reason import Reason

_S: Final = 1_000_000_000
_APART_TOGETHER_NS: Final = _S
"""How far apart recordings of one host may be that both have what no rank leaves before all have come: with nothing in
between, a job that is started anew takes longer."""
_APART_NS: Final = 10 * _S
"""How far apart they may be without such a collective: a rank need not wait for what it has only sent or asked for."""
_APART_BY_OTHER_CLOCKS_NS: Final = 60 * _S
"""How far apart they may be where the clocks of several hosts are compared, which may differ."""


def refuse_mixed(ranks: Sequence[RankPart]) -> None:
    """Raise TorchprofError where these, in order, are not the recordings of several ranks of one run."""
    if len(ranks) < 2:
        raise TorchprofError.because(OneRankRecorded())
    looks = (_other_jobs, _other_groups, _other_times, _other_numbers)
    if (reason := next((reason for look in looks for reason in look(ranks)), None)) is not None:
        raise TorchprofError.because(reason)


def _other_jobs(ranks: Sequence[RankPart]) -> Iterator[Reason]:
    first = ranks[0]
    named = next((part for part in ranks if part.run_id is not None), first)
    for before, part in pairwise(ranks):
        if part.world_size != first.world_size:
            yield JobOfOtherSize(part.path, part.world_size, first.path, first.world_size)
        if part.rank == before.rank:
            yield SameRankTwice(part.path, part.rank, before.path)
        if part.test != first.test:
            yield RankOfOtherTest(part.path, part.test[0], first.path, first.test[0])
        if None not in (part.run_id, named.run_id) and part.run_id != named.run_id:
            yield RankOfOtherRun(part.path, named.path)


def _other_groups(ranks: Sequence[RankPart]) -> Iterator[Reason]:
    """Yield where two ranks say different things of a process group, or one of its members does not have it."""
    known: dict[str, tuple[ProcessGroup, RankPart]] = {}
    for part in ranks:
        for group in part.groups:
            if group.name is None:
                continue
            other, of = known.setdefault(group.name, (group, part))
            if _contradict(group, other):
                yield OtherProcessGroups(part.path, of.path, group.name)
    own = {part.rank: {group.name for group in part.groups} for part in ranks}
    for name, (group, of) in known.items():
        for part in ranks:
            if part.groups and part.rank in (group.ranks or ()) and name not in own[part.rank]:
                yield ProcessGroupMissing(part.path, of.path, name)


def _contradict(first: ProcessGroup, other: ProcessGroup) -> bool:
    pairs = ((first.ranks, other.ranks), (first.size, other.size))
    # The same object, mostly: all ranks list the groups of all.
    return any(mine is not theirs and None not in (mine, theirs) and mine != theirs for mine, theirs in pairs)


def _other_times(ranks: Sequence[RankPart]) -> Iterator[Reason]:
    """Yield where a recording begins long after all earlier ones have ended."""
    of_clock: dict[str, list[RankPart]] = defaultdict(list)
    for part in ranks:
        if part.clock is not None:
            of_clock[part.clock].append(part)
    for those in of_clock.values():
        most_ns = _APART_TOGETHER_NS if all(map(_has_come_together, those)) else _APART_NS
        yield from _apart(those, most_ns)
    yield from _apart(ranks, _APART_BY_OTHER_CLOCKS_NS)


def _has_come_together(part: RankPart) -> bool:
    return any(
        collective.name in TOGETHER and collective.dur_ns is not None and collective.is_with_others
        for collective in part.collectives
    )


def _apart(ranks: Iterable[RankPart], most_ns: int) -> Iterator[Reason]:
    last, *others = sorted(ranks, key=lambda part: part.window_ns)
    for part in others:
        if (apart_ns := part.window_ns[0] - last.window_ns[1]) > most_ns:
            yield RecordedAtOtherTime(part.path, last.path, apart_ns / 1000)
        last = max(last, part, key=lambda rank_part: rank_part.window_ns[1])


def _other_numbers(ranks: Sequence[RankPart]) -> Iterator[Reason]:
    """Yield a rank whose collectives have other numbers than those of all ranks with which it has a group."""
    spans: dict[Hashable, dict[int, tuple[int, int]]] = defaultdict(dict)
    for part in ranks:
        for key, number in _numbered(part):
            low, high = spans[key].get(part.rank, (number, number))
            spans[key][part.rank] = min(low, number), max(high, number)
    for part in ranks:
        own = [of_rank for of_rank in spans.values() if part.rank in of_rank and len(of_rank) > 1]
        if own and not any(_overlap(of_rank, part.rank) for of_rank in own):
            (low, high), others = own[0][part.rank], (span for rank, span in own[0].items() if rank != part.rank)
            yield OtherCollectiveNumbers(part.path, low, high, *next(others))


def _numbered(part: RankPart) -> Iterator[tuple[Hashable, int]]:
    for collective in part.collectives:
        # Sends and receives have numbers of their own on each rank.
        if collective.sequence is not None and collective.name != "send_recv" and collective.group.name is not None:
            yield (collective.group.name, collective.group.ranks), collective.sequence


def _overlap(spans: Mapping[int, tuple[int, int]], rank: int) -> bool:
    low, high = spans[rank]
    return any(low <= last and first <= high for other, (first, last) in spans.items() if other != rank)

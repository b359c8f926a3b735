"""The links between the launches of a recording and its GPU operations."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import count, pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pytest_torchprof.devices.kinds import COPIES, LAUNCHES, CallKind
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.trace.columns import ABSENT, KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.trace.columns import Calls, GpuOps

# As the tracer of ROCm 6.1 records them (ROCm/roctracer#100): the launch has an id, and its kernel 0.
_COLLECTIVE = r"(?:void )?(?:nccl|rccl)"


class Links(Struct, frozen=True, kw_only=True, eq=False):
    """The links between the calls of the CPU and the operations of the GPU."""

    attribution: Literal["launch", "time"]
    call_of: Sequence[int]
    """For each GPU operation the call that queued it; ABSENT without one."""
    orphans: frozenset[int]
    """GPU operations that no call in the recording queued."""
    unrecorded: frozenset[int]
    """GPU operations queued inside the window by a call that the profiler does not record."""
    launches: Sequence[int]
    """Launch calls, in file order."""
    unknown: frozenset[int]
    """The names of calls that ran a kernel and are not known as launches."""
    lost: tuple[int, ...]
    """Launch calls outside a capture whose GPU operation is missing."""
    lost_copies: tuple[int, ...]
    """Calls that copy, outside a capture, whose GPU operation is missing."""
    refused: tuple[int, ...] = ()
    """Launch calls that the driver refused, as far as the recording shows: no operation of theirs is missing."""
    untied: frozenset[int] = frozenset()
    """The orphans that are kernels of collectives without a correlation id, of which no launch can be known."""

    def __repr__(self) -> str:
        launches, orphans = counted(len(self.launches), "launch"), counted(len(self.orphans), "orphan")
        return bracketed(self, f"by {self.attribution}", launches, orphans)


class Intervals:
    """Half-open ranges [start, end) in ns by key, to look up which instants they cover."""

    def __init__(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Take (key, start, end) in any order; overlapping ranges of a key become one."""
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        starts: list[int] = []
        ends: list[int] = []
        last = None
        for key, start, end in sorted(ranges):
            if key != last:
                starts = self._starts[key] = []
                ends = self._ends[key] = []
                last = key
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __repr__(self) -> str:
        return bracketed(self, f"of {counted(sum(map(len, self._starts.values())), 'range')}")

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (key, start, end) of the disjoint ranges."""
        for key, starts in self._starts.items():
            for start, end in zip(starts, self._ends[key], strict=True):
                yield key, start, end

    def overlap(self, key: int, start: int, end: int) -> int:
        """Return the ns of [start, end) that the key's ranges cover."""
        starts, ends = self._starts.get(key, []), self._ends.get(key, [])
        covered = 0
        for index in range(bisect_right(ends, start), bisect_left(starts, end)):
            covered += min(ends[index], end) - max(starts[index], start)
        return covered

    def cover(self, key: int, instant: int) -> bool:
        """Return whether one of the key's ranges holds the instant."""
        index = bisect_right(self._starts.get(key, ()), instant) - 1
        return index >= 0 and instant < self._ends[key][index]


def captures(calls: Calls, kinds: Sequence[CallKind]) -> Intervals:
    """Return the times at which a stream was being captured, all under the key 0.

    Autograd's threads launch into the capture of the thread that began it, so a capture holds for every thread.
    """
    captures = {CallKind.CAPTURE_BEGIN, CallKind.CAPTURE_END}
    named = {i for i, kind in enumerate(kinds) if kind in captures}
    if not named:
        return Intervals(())
    marks = sorted((calls.start[i], i) for i in where(calls.name, named))
    open_since: dict[int, int] = {}
    ranges = []
    for _, i in marks:
        thread = calls.thread[i]
        if kinds[calls.name[i]] is CallKind.CAPTURE_BEGIN:
            open_since.setdefault(thread, calls.start[i])
        else:
            # A capture that began before the window has no begin in the file.
            ranges.append((0, open_since.pop(thread, -(2**62)), calls.end[i]))
    ranges += [(0, start, 2**62) for start in open_since.values()]
    return Intervals(ranges)


def link(calls: Calls, gpu: GpuOps, kinds: Sequence[CallKind], names: Sequence[str], *, own: bool) -> Links:
    """Join launches and GPU operations by correlation id; ``own`` says that the window began with the GPU idle."""
    launching = {i for i, kind in enumerate(kinds) if kind in LAUNCHES}
    launches = where(calls.name, launching)
    copying = {i for i, kind in enumerate(kinds) if kind in COPIES}
    correlated = any(correlation > 0 for correlation in gpu.correlation)
    if len(gpu) and not (len(calls) and correlated):
        nowhere = [ABSENT] * len(gpu)
        return Links(
            attribution="time",
            call_of=nowhere,
            orphans=frozenset(),
            unrecorded=frozenset(),
            launches=launches,
            unknown=frozenset(),
            lost=(),
            lost_copies=(),
        )
    call_at = dict(zip(calls.correlation, count(), strict=False))
    # CUPTI counts from 1; some ROCm files write 0 for an unknown id.
    call_at.pop(0, None)
    call_at.pop(ABSENT, None)
    call_of = list(map(call_at.get, gpu.correlation, repeat(ABSENT)))
    worked = set(gpu.correlation)
    missing = _missing(calls, worked, kinds, launches)
    refused = _refused(calls, kinds, missing)
    lost = [i for i in missing if i not in refused]
    untied = _uncorrelated_collectives(gpu, names)
    if in_turn := _launched_in_turn(calls, gpu, untied, lost):
        for i, call in in_turn:
            call_of[i] = call
        untied, lost = [], []
    alone = where(call_of, {ABSENT}) if ABSENT in call_of else []
    unrecorded = _unrecorded(alone, calls, gpu, launches) if own else frozenset()
    return Links(
        attribution="launch",
        call_of=call_of,
        orphans=frozenset(alone) - unrecorded,
        unrecorded=unrecorded,
        launches=launches,
        unknown=_unknown(calls, gpu, call_of, launching),
        lost=tuple(lost),
        lost_copies=tuple(_missing(calls, worked, kinds, where(calls.name, copying))),
        refused=tuple(sorted(refused)),
        untied=frozenset(untied),
    )


def _unrecorded(alone: Iterable[int], calls: Calls, gpu: GpuOps, launches: Sequence[int]) -> frozenset[int]:
    if not launches:
        return frozenset()
    first = calls.correlation[min(launches, key=calls.start.__getitem__)]
    return frozenset(i for i in alone if gpu.correlation[i] >= first > 0)


def _unknown(calls: Calls, gpu: GpuOps, call_of: Sequence[int], launching: set[int]) -> frozenset[int]:
    named, of_kernels = calls.name, zip(call_of, gpu.kind, strict=True)
    return frozenset({named[call] for call, kind in of_kernels if kind == KERNEL and call != ABSENT}) - launching


def _missing(
    calls: Calls, worked: AbstractSet[int], kinds: Sequence[CallKind], queueing: Sequence[int]
) -> Sequence[int]:
    """Return the calls, outside a capture, to which no GPU operation belongs; ``worked``: the ids that these have."""
    if not worked:
        return ()
    correlation = calls.correlation
    missing = [i for i in queueing if correlation[i] not in worked]
    if not missing:
        return ()
    captured = captures(calls, kinds)
    return [i for i in missing if not captured.cover(0, calls.start[i])]


def _refused(calls: Calls, kinds: Sequence[CallKind], missing: Iterable[int]) -> frozenset[int]:
    """Return the launches directly after which the text of an error was asked for: the driver had refused them.

    No recording holds what a call returned. Libraries that check it ask for the text only if there was an error.
    """
    error_texts = {i for i, kind in enumerate(kinds) if kind is CallKind.ERROR_TEXT}
    suspects = {calls.thread[i] for i in missing} if error_texts and not error_texts.isdisjoint(calls.name) else ()
    followed = set[int]()
    for thread in suspects:
        members = sorted(where(calls.thread, {thread}), key=calls.start.__getitem__)
        followed.update(call for call, following in pairwise(members) if calls.name[following] in error_texts)
    return frozenset(followed.intersection(missing))


def _uncorrelated_collectives(gpu: GpuOps, names: Sequence[str]) -> list[int]:
    """Return the kernels of collectives that have no correlation id, in file order."""
    if not gpu.correlation or min(gpu.correlation) > 0:
        return []
    is_collective = re.compile(_COLLECTIVE).match
    named = {i for i, name in enumerate(names) if is_collective(name)}
    alone = where(gpu.name, named) if named else []
    return [i for i in alone if gpu.correlation[i] <= 0 and gpu.kind[i] == KERNEL]


def _launched_in_turn(
    calls: Calls, gpu: GpuOps, kernels: Sequence[int], launches: Sequence[int]
) -> list[tuple[int, int]]:
    """Return each kernel with its launch; empty if that is not known.

    A stream runs its work in the order of the launches. So if one stream ran as many kernels as there are launches
    whose kernel is missing, and none began before its launch, each belongs to the launch in the same position.
    """
    if len(kernels) != len(launches) or len({(gpu.process[i], gpu.stream[i]) for i in kernels}) != 1:
        return []
    ran = sorted((gpu.start[i], i) for i in kernels)
    launched = sorted((calls.start[i], i) for i in launches)
    if any(ran_at < launched_at for (ran_at, _), (launched_at, _) in zip(ran, launched, strict=True)):
        return []
    return list(zip(map(itemgetter(1), ran), map(itemgetter(1), launched), strict=True))

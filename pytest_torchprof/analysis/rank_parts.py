"""The part of one rank's recording that is kept, to compare it with those of the other ranks of its job."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_torchprof.analysis.messages import groups_of
from pytest_torchprof.analysis.ranks import RankPart
from pytest_torchprof.kernels.names import without_index
from pytest_torchprof.kernels.operand_types import recorded_types
from pytest_torchprof.reasons.decoding import to_stored
from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.kernels.kernel import LaunchedKernel
    from pytest_torchprof.trace import Trace

_MOST_RANKS: Final = 1 << 20


def part_of(analysis: Analysis) -> RankPart:
    """Return the part of a rank's recording that is kept; TorchprofError where the recording does not name its rank."""
    trace, ours = analysis.trace, analysis.trace.metadata
    known = rank_and_size(trace)
    if known is None:
        from pytest_torchprof.reasons.mixed_jobs import RankNotRecorded  # noqa: PLC0415 - for what is refused alone

        raise TorchprofError.because(RankNotRecorded(str(trace.path)))
    rank, world_size = known
    offset = trace.header.get("baseTimeNanoseconds")
    offset_ns = offset if isinstance(offset, int) else 0
    collectives = analysis.communication.collectives
    # What a step has asked for may run after its end.
    ran = [
        (collective.start_ns, collective.start_ns + (collective.dur_ns or 0))
        for collective in collectives
        if collective.start_ns is not None
    ]
    begin = min([trace.steps[0].start_ns, *(start for start, _ in ran)])
    until = max([trace.steps[-1].end_ns, *(end for _, end in ran)])
    named = trace.header.get("host_name")
    host = named if isinstance(named, str) else None
    hidden = analysis.kernels_unknown is not None or analysis.doubt is not None
    brief = analysis.launching.brief_kernels
    kernels = None if hidden else tuple(_count(brief(step.part)) for step in analysis.steps)
    supposed = None if hidden else analysis.supposing("communication")
    return RankPart(
        rank=rank,
        world_size=world_size,
        path=trace.path or "",
        host=host,
        clock=host if ours is None or ours.clock is None else ours.clock,
        run_id=None if ours is None else ours.run_id,
        device=", ".join(dict.fromkeys(device.name or "GPU" for device in trace.devices))
        or trace.device_kind.title
        or "no GPU events",
        window_ns=(begin + offset_ns, until + offset_ns),
        collectives=collectives,
        offset_ns=offset_ns,
        steps=tuple(replace(step, collectives=()) for step in analysis.communication.steps),
        kernels=kernels,
        groups=tuple(groups_of(trace, "")),
        test=(None, None) if ours is None else (ours.nodeid, ours.label),
        why_not=to_stored(analysis.doubt),
        kernels_unknown=to_stored(analysis.kernels_unknown),
        launches_wait=trace.environment.launches_wait,
        samples_hardware=trace.samples_hardware,
        may_communicate=() if supposed is None else tuple(sorted(supposed.own_kernels.supposed)),
        may_be_collectives=0 if supposed is None else len(supposed.communication.collectives) - len(collectives),
    )


def named_part(analysis: Analysis) -> RankPart | None:
    """Return the part of a rank's recording that is kept; None where the recording does not name its rank."""
    return None if rank_and_size(analysis.trace) is None else part_of(analysis)


def _count(kernels: Iterable[LaunchedKernel]) -> Mapping[str, Mapping[str, int]]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kernel in kernels:
        counts[without_index(kernel.name)][recorded_types(kernel) or ""] += 1
    return {name: dict(types) for name, types in counts.items()}


def rank_and_size(trace: Trace) -> tuple[int, int] | None:
    """Return the rank and how many there are, as our own recordings say it, or torch's; None where neither does.

    A number that no job has is a damaged one: each rank without a recording is named, which takes memory.
    """
    ours, header = trace.metadata, trace.header.get("distributedInfo")
    of_torch: Mapping[str, Any] = header if isinstance(header, dict) else {}
    sides = [(None, None) if ours is None else (ours.rank, ours.world_size)]
    sides.append((of_torch.get("rank"), of_torch.get("world_size")))
    known = [
        (rank, size)
        for rank, size in sides
        if isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size <= _MOST_RANKS
    ]
    # Without a launcher our own say that the process is by itself.
    return max(known, key=lambda side: side[1] > 1, default=None)

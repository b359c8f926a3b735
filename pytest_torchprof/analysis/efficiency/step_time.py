"""Where the time of the steps went, by the priority of kineto's TensorBoard plugin.

Kernels come first, then copies, fills, communication, calls of the runtime, loading of data, operators; each takes only
what those before it left, and the rest is "other". A step ends with the last GPU operation that it launched, and begins
where the one before ended. Unlike the plugin, no step at the end is left out.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import fields

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.trace import Trace

_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
_COMMUNICATING = ("nccl:", "gloo:")
_STEP = "ProfilerStep#"

_Ranges = tuple[list[int], list[int]]
"""Starts and ends in ns, in any order."""


class StepTime(Struct, frozen=True, kw_only=True):
    """The mean over the steps, in microseconds."""

    kernel: float
    memcpy: float
    memset: float
    communication: float
    runtime: float
    data_loader: float
    cpu: float
    other: float

    @property
    def total(self) -> float:
        """The mean length of a step."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def step_time(work: GpuWork) -> StepTime:
    """Return the breakdown of the recording's steps."""
    ranges = [*_roles(work)]
    starts, ends = _outside(work, ranges)
    reached, spent = intervals.covered_length(starts, ends), []
    for role_starts, role_ends in ranges:
        before = reached
        if role_starts:
            # What a role takes is what it adds to those before it.
            starts, ends = sorted(starts + role_starts), sorted(ends + role_ends)
            reached = intervals.covered_length(starts, ends)
        spent.append(reached - before)
    spent.append(ends[-1] - starts[0] - reached)
    names = [field.name for field in fields(StepTime)]
    return StepTime(**{name: ns / 1000 / len(work.trace.steps) for name, ns in zip(names, spent, strict=True)})


def _outside(work: GpuWork, ranges: Iterable[_Ranges]) -> _Ranges:
    """Return what no step covers, from the first moment of the recording to the last."""
    steps = intervals.merged(_steps(work))
    earliest = min([steps[0][0], *(min(starts) for starts, _ in ranges if starts)])
    latest = max([steps[-1][1], *(max(ends) for _, ends in ranges if ends)])
    return [earliest, *(end for _, end in steps)], [*(start for start, _ in steps), latest]


def _steps(work: GpuWork) -> Iterator[tuple[int, int]]:
    """Yield the steps as the plugin sees them: one after the other, each up to its last GPU operation's end."""
    trace, parts = work.trace, work.launching.parts
    start, end = trace.gpu.start, trace.gpu.end
    reached = trace.steps[0].start_ns
    if parts[0].gpu_ops:
        first = start[parts[0].gpu_ops[0]]
        reached = max([reached, *(end[i] for i in trace.links.orphans if end[i] < first)])
    for step, part in zip(trace.steps, parts, strict=True):
        begin = max(reached, step.start_ns)
        reached = max([begin, step.end_ns, *map(end.__getitem__, part.gpu_ops)])
        yield begin, reached


def _roles(work: GpuWork) -> Iterator[_Ranges]:
    """Yield the ranges of each role, in the order of priority."""
    trace = work.trace
    gpu, kind = trace.gpu, trace.gpu.kind
    talking = work.communication

    def ran(members: list[int]) -> _Ranges:
        return [gpu.start[i] for i in members], [gpu.end[i] for i in members]

    kernels = where(kind, {KERNEL})
    yield ran([i for i in kernels if i not in talking] if talking else kernels)
    yield ran(where(kind, {MEMCPY}))
    yield ran(where(kind, {MEMSET}))
    yield _together(ran(sorted(talking)), *_named(trace, _COMMUNICATING))
    yield trace.calls.start, trace.calls.end
    yield _together(*_named(trace, _LOADING))
    ops, frames = trace.ops, trace.frames
    outermost = [ops.start[i] for i in work.outermost], [ops.end[i] for i in work.outermost]
    notes = [i for i, name in enumerate(trace.annotations.name) if not trace.names[name].startswith(_STEP)]
    noted = [trace.annotations.start[i] for i in notes], [trace.annotations.end[i] for i in notes]
    yield _together(outermost, noted, (frames.start, frames.end))


def _together(*ranges: _Ranges) -> _Ranges:
    return [*chain.from_iterable([starts for starts, _ in ranges])], [
        *chain.from_iterable([ends for _, ends in ranges])
    ]


def _named(trace: Trace, prefixes: tuple[str, ...]) -> Iterator[_Ranges]:
    names = {i for i, name in enumerate(trace.names) if name.startswith(prefixes)}
    for part in (trace.ops, trace.annotations) if names else ():
        members = where(part.name, names)
        yield [part.start[i] for i in members], [part.end[i] for i in members]

"""Where the time of the steps went, by the priority of kineto's TensorBoard plugin.

Kernels come first, then copies, fills, communication, calls of the runtime, loading of data, operators; each takes only
what those before it left, and the rest is "other". A step ends with the last GPU operation that it launched, and begins
where the one before ended. Unlike the plugin, no step at the end is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pytest_torchprof import spans
from pytest_torchprof.columns import KERNEL, MEMCPY, MEMSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.columns import Ranges
    from pytest_torchprof.scene import Scene
    from pytest_torchprof.spans import Spans
    from pytest_torchprof.trace import Trace

_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
_COMMUNICATING = ("nccl:", "gloo:")
_STEP = "ProfilerStep#"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
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


def step_time(scene: Scene) -> StepTime:
    """Return the breakdown of the recording's steps."""
    steps = spans.merged(_steps(scene))
    whole = spans.length(steps)
    covered: Spans = []
    reached, spent = 0, []
    for role in _roles(scene):
        # What a role takes is what it adds to those before it.
        before = reached
        if role:
            covered = spans.merged([*covered, *role]) if covered else role
            reached = spans.length_within(covered, steps)
        spent.append(reached - before)
    spent.append(whole - reached)
    names = [field.name for field in fields(StepTime)]
    return StepTime(**{name: ns / 1000 / len(scene.trace.steps) for name, ns in zip(names, spent, strict=True)})


def _steps(scene: Scene) -> Iterator[tuple[int, int]]:
    """Yield the steps as the plugin sees them: one after the other, each up to its last GPU operation's end."""
    trace, parts = scene.trace, scene.launching.parts
    start, end = trace.gpu.start, trace.gpu.end
    reached = trace.steps[0].start_ns
    if parts[0].gpu_ops:
        first = min(start[i] for i in parts[0].gpu_ops)
        reached = max([reached, *(end[i] for i in trace.links.orphans if end[i] < first)])
    for step, part in zip(trace.steps, parts, strict=True):
        begin = max(reached, step.start_ns)
        reached = max([begin, step.end_ns, *(end[i] for i in part.gpu_ops)])
        yield begin, reached


def _roles(scene: Scene) -> Iterator[Spans]:
    """Yield when something of each role ran, in the order of priority."""
    trace = scene.trace
    gpu, kind = trace.gpu, trace.gpu.kind
    talking = scene.communication

    def ran(members: Iterable[int]) -> Spans:
        return spans.merged([(gpu.start[i], gpu.end[i]) for i in members])

    yield ran(i for i, one in enumerate(kind) if one == KERNEL and i not in talking)
    yield ran(i for i, one in enumerate(kind) if one == MEMCPY)
    yield ran(i for i, one in enumerate(kind) if one == MEMSET)
    yield spans.merged([*ran(talking), *_named(trace, _COMMUNICATING)])
    yield spans.merged(zip(trace.calls.start, trace.calls.end, strict=True))
    yield spans.merged(_named(trace, _LOADING))
    yield spans.merged([*_outermost(trace), *_all(trace.annotations, trace), *_all(trace.frames, trace)])


def _named(trace: Trace, prefixes: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    names = {i for i, name in enumerate(trace.names) if name.startswith(prefixes)}
    for part in (trace.ops, trace.annotations) if names else ():
        for i in [i for i, name in enumerate(part.name) if name in names]:
            yield part.start[i], part.end[i]


def _outermost(trace: Trace) -> Iterator[tuple[int, int]]:
    start, end = trace.ops.start, trace.ops.end
    return ((start[i], end[i]) for i, holder in enumerate(trace.nesting.parent) if holder < 0)


def _all(part: Ranges, trace: Trace) -> Iterator[tuple[int, int]]:
    steps = {i for i, name in enumerate(trace.names) if name.startswith(_STEP)}
    return ((part.start[i], part.end[i]) for i, name in enumerate(part.name) if name not in steps)

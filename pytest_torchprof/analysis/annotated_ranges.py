"""Ranges inside CUDA graphs that annotations of the graphs' nodes tell, in recordings of others: one for each replay.

A node carries the innermost scope alone. So a range of a scope holds what is directly in it, and nothing of scopes
inside it; its name says so, by what it ends with.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.parts import ListedPart
from pytest_torchprof.analysis.ranges import Occurrence
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.trace import StepRange
from pytest_torchprof.trace.captures import LANE
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.analysis.ranges import Stretch
    from pytest_torchprof.trace import Trace


def annotated_ranges(trace: Trace) -> set[str]:
    """Return the names of all scopes that nodes are annotated with, as ranges."""
    return {name for annotation in set(trace.captured.annotated.values()) if (name := annotation.range) is not None}


def without_annotation(trace: Trace, gpu_ops: Iterable[int]) -> list[int]:
    """Return those operations that ran in graphs and carry nothing, where the recording has annotations at all."""
    annotated, known = trace.captured.annotated, trace.captured.of
    if not annotated:
        return []
    call_of, graphs = trace.links.call_of, trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))

    def in_graph(i: int) -> bool:
        launched = call_of[i] >= 0 and trace.calls.name[call_of[i]] in graphs
        return bool(launched or trace.gpu.graph[i] or trace.gpu.node[i])

    return [i for i in gpu_ops if i not in annotated and i not in known and in_graph(i)]


def parts_annotated(trace: Trace, parts: Iterable[Part], name: str) -> list[Part]:
    """Return each part's work in a scope of this name; a part without any is left out, since it says nothing of it."""
    return [
        ListedPart(
            name=part.name,
            ranges=tuple(_range(name, _launched_ns(trace, ops)) for ops in replays),
            gpu_ops=[op for ops in replays for op in ops],
            calls=[],
            operators=[],
        )
        for part in parts
        if (replays := list(_replays(trace, part, name)))
    ]


def replays_annotated(trace: Trace, steps: Sequence[Part], name: str) -> list[Occurrence]:
    """Return the work in a scope of each replay in the steps that has any, in the order of the launches."""
    begun = []
    for index, step in enumerate(steps):
        for ops in _replays(trace, step, name):
            launched_ns = _launched_ns(trace, ops)
            stretch = (ABSENT, launched_ns, launched_ns)
            begun.append(Occurrence(_WorkOfReplay(ops), index, (_range(name, launched_ns),), stretch))
    return begun


def _replays(trace: Trace, part: Part, name: str) -> Iterator[Sequence[int]]:
    replays: dict[int, list[int]] = defaultdict(list)
    for i in part.gpu_ops:
        annotation = trace.captured.annotated.get(i)
        if annotation is not None and annotation.range == name:
            replays[trace.gpu.correlation[i]].append(i)
    yield from sorted(replays.values(), key=lambda ops: _launched_ns(trace, ops))


def _launched_ns(trace: Trace, ops: Sequence[int]) -> int:
    call = trace.links.call_of[ops[0]]
    return trace.calls.start[call] if call >= 0 else trace.gpu.start[ops[0]]


def _range(name: str, launched_ns: int) -> StepRange:
    return StepRange(name, launched_ns, launched_ns, LANE)


class _WorkOfReplay:
    """The work of one replay, as an occurrence asks for it: the CPU has no part in it."""

    def __init__(self, gpu_ops: Sequence[int]) -> None:
        """Take the operations."""
        self._gpu_ops = gpu_ops
        self.calls = self.operators = self

    def gpu_ops(self, _: Stretch) -> Sequence[int]:
        """Return the operations."""
        return self._gpu_ops

    def within(self, _: Stretch) -> Sequence[int]:
        """Return the calls and operators inside: none."""
        return ()

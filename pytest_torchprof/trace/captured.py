"""The operators of CUDA graphs, which a replay does not call: put into the recording as they were when captured.

Each replay has them on a thread of their own, at the moment at which the graph was launched, in their order. They
take no time there: their instants are nanoseconds that follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pytest_torchprof.trace.captures import LANE, NOT_CAPTURED, Captured
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_torchprof.recording.metadata import CapturedGraph, CapturedNode
    from pytest_torchprof.trace.columns import Ranges
    from pytest_torchprof.trace.trace import Trace

_OF_GRAPH = 32
"""How many bits of a node's number tell the node, below those that tell its graph."""
_KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
_PREFIXES = {"module": "nn.Module: ", "line": "[line] "}


class _Replay(NamedTuple):
    launched_ns: int
    graph: CapturedGraph
    nodes: Sequence[tuple[int, CapturedNode]]
    """GPU operations with their nodes."""


def with_captured(trace: Trace, annotated: Mapping[int, str]) -> Trace:
    """Return a recording with what was captured for the graphs that it replays, as far as it says so."""
    graphs = None if trace.metadata is None else trace.metadata.captured_graphs
    replays = sorted(_replays(trace, graphs), key=lambda one: one.launched_ns) if graphs else []
    if not replays:
        return replace(trace, captured=NOT_CAPTURED._replace(annotated=annotated)) if annotated else trace
    number = _numbering(trace.names)
    operands = _numbering(trace.inputs)
    names, inputs, lane = list(trace.names), list(trace.inputs), len(trace.threads)
    put = _Putting(trace, lane, number(names), operands(inputs))
    for replay in replays:
        put.replay(replay)
    captured = Captured(put.calls, put.of, put.unsure, lane, annotated)
    return replace(trace, names=names, inputs=inputs, threads=[*trace.threads, LANE], captured=captured)


def _numbering(known: Sequence[object]) -> Callable[[list], Callable[[object], int]]:  # type: ignore[type-arg]
    places = {one: place for place, one in enumerate(known)}

    def into(found: list) -> Callable[[object], int]:  # type: ignore[type-arg]
        def place_of(one: object) -> int:
            if one not in places:
                places[one] = len(found)
                found.append(one)
            return places[one]

        return place_of

    return into


def _replays(trace: Trace, graphs: Sequence[CapturedGraph]) -> Iterator[_Replay]:
    """Yield the replays of graphs that are known: GPU operations of one graph with one correlation."""
    gpu, calls = trace.gpu, trace.calls
    by_number = {number: graph for graph in graphs for number in graph.graphs}
    nodes_of = {id(graph): {node.node: node for node in graph.nodes} for graph in graphs}
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, (graph, node) in enumerate(zip(gpu.graph, gpu.node, strict=True)):
        if (number := graph or node >> _OF_GRAPH) in by_number:
            found[number, gpu.correlation[i]].append(i)
    wanted = {correlation for _, correlation in found}
    launched = {one: calls.start[i] for i, one in enumerate(calls.correlation) if one in wanted}
    for (number, correlation), members in found.items():
        if (at := launched.get(correlation)) is not None:
            captured = by_number[number]
            nodes = nodes_of[id(captured)]
            known = [(i, nodes.get(gpu.node[i] & ((1 << _OF_GRAPH) - 1))) for i in members]
            # Where one was not captured, or as something else, the numbers may mean others.
            if all(node is not None and _KINDS.get(node.kind) == gpu.kind[i] for i, node in known):
                yield _Replay(at, captured, [(i, node) for i, node in known if node is not None])


class _Putting:
    """Puts replays behind one another on the lane."""

    def __init__(
        self, trace: Trace, lane: int, name: Callable[[object], int], operands: Callable[[object], int]
    ) -> None:
        self._lane, self._name, self._operands = lane, name, operands
        self._columns: dict[str, Ranges] = {
            "operator": trace.ops,
            "range": trace.annotations,
            "module": trace.frames,
            "line": trace.frames,
        }
        self._free_ns = 0
        self.calls = Calls()
        self.of: dict[int, int] = {}
        self.unsure: dict[int, tuple[str, ...]] = {}

    def replay(self, replay: _Replay) -> None:
        base = max(replay.launched_ns, self._free_ns)
        for one in replay.graph.ranges:
            if (column := self._columns.get(one.kind)) is None:
                continue
            column.name.append(self._name(_PREFIXES.get(one.kind, "") + one.name))
            column.start.append(base + one.begin)
            column.end.append(base + one.end)
            column.thread.append(self._lane)
            if one.kind == "operator":
                column.inputs.append(self._operands("\0".join(one.operands or ("", "", "")).encode()))
                column.external.append(-1)
            self._free_ns = max(self._free_ns, base + one.end + 1)
        for gpu_op, node in replay.nodes:
            self.of[gpu_op] = len(self.calls.start)
            self.calls.name.append(0)
            self.calls.start.append(base + node.at)
            self.calls.end.append(base + node.at)
            self.calls.thread.append(self._lane)
            if node.unsure:
                self.unsure[gpu_op] = node.unsure

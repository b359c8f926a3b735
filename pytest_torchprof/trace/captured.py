"""The operators of CUDA graphs, which a replay does not call: put into the recording as they ran in the capture.

Each replay has them on a thread of their own, within the call that launched the graph, in their order. They take no
time there: a node is an instant, and two nanoseconds lie between it and the next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.trace.captures import LANE, NOT_CAPTURED, Captured
from pytest_torchprof.trace.columns import KERNEL, MEMCPY, MEMSET, Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.trace.captured_graphs import CapturedGraph, CapturedNode, CapturedRange
    from pytest_torchprof.trace.columns import Ranges
    from pytest_torchprof.trace.graph_annotations import Annotation
    from pytest_torchprof.trace.trace import Trace

_OF_GRAPH = 32
"""The number of low bits of a node's number that identify the node; the others identify its graph."""
_MOST_RANGES = 10_000_000
"""The most ranges that are put there, as many as a thousand replays with ten thousand each have."""
_KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
_PREFIXES = {"module": "nn.Module: ", "line": "[line] "}


class _Laid(Struct, frozen=True):
    """The capture of a graph, in ns since its launch."""

    graph: CapturedGraph
    at: Mapping[int, int]
    """The instants at which nodes were made, by their number in the graph."""
    nodes: Mapping[int, CapturedNode]
    ranges: Sequence[tuple[CapturedRange, int, int]]
    length: int


class _Replay(Struct, frozen=True):
    launched_ns: int
    laid: _Laid
    nodes: Sequence[tuple[int, CapturedNode]]
    """GPU operations with their nodes."""


def with_captured(trace: Trace, annotated: Mapping[int, Annotation]) -> Trace:
    """Return the recording with the captured operators of the graphs that it replays, as far as it holds them."""
    graphs = None if trace.metadata is None else trace.metadata.captured_graphs
    replays = sorted(_replays(trace, graphs), key=lambda replay: replay.launched_ns) if graphs else []
    if not replays:
        return replace(trace, captured=replace(NOT_CAPTURED, annotated=annotated)) if annotated else trace
    number = _numbering(trace.names)
    operands = _numbering(trace.inputs)
    names, inputs, lane = list(trace.names), list(trace.inputs), len(trace.threads)
    put = _Putting(trace, lane, number(names), operands(inputs))
    for replay, done in zip(replays, accumulate(len(replay.laid.ranges) for replay in replays), strict=True):
        if done <= _MOST_RANGES:
            put.replay(replay)
    captured = Captured(put.calls, put.of, put.unsure, lane, annotated)
    return replace(trace, names=names, inputs=inputs, threads=[*trace.threads, LANE], captured=captured)


def _numbering(known: Sequence[object]) -> Callable[[list], Callable[[object], int]]:  # type: ignore[type-arg]
    indices = {value: index for index, value in enumerate(known)}

    def into(values: list) -> Callable[[object], int]:  # type: ignore[type-arg]
        def index_of(value: object) -> int:
            if value not in indices:
                indices[value] = len(values)
                values.append(value)
            return indices[value]

        return index_of

    return into


def _laid(graph: CapturedGraph) -> _Laid:
    """Return nodes at odd instants, and ranges between even ones: a range around a node begins before it."""
    ordered = sorted(graph.nodes, key=lambda node: node.at)
    made = [node.at for node in ordered]
    return _Laid(
        graph,
        {node.node: 2 * index + 1 for index, node in enumerate(ordered)},
        {node.node: node for node in ordered},
        [
            (captured, 2 * bisect_left(made, captured.begin), 2 * bisect_right(made, captured.end))
            for captured in graph.ranges
            if captured.begin <= captured.end
        ],
        2 * len(made),
    )


def _replays(trace: Trace, graphs: Sequence[CapturedGraph]) -> Iterator[_Replay]:
    """Yield the replays of the graphs: GPU operations of one graph with one correlation id."""
    gpu, calls = trace.gpu, trace.calls
    by_number = {number: laid for laid in map(_laid, graphs) for number in laid.graph.graphs}
    operations: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, node in enumerate(gpu.node):
        # Work in the body of a conditional node has the number of the body, not of the graph.
        if (number := node >> _OF_GRAPH) in by_number:
            operations[number, gpu.correlation[i]].append(i)
    wanted = {correlation for _, correlation in operations}
    launched = {queued: i for i, queued in enumerate(calls.correlation) if queued in wanted}
    for (number, correlation), members in operations.items():
        call, laid = launched.get(correlation), by_number[number]
        nodes = [(i, laid.nodes.get(gpu.node[i] & ((1 << _OF_GRAPH) - 1))) for i in members]
        known = [(i, node) for i, node in nodes if node is not None and _is_same(trace, i, laid.graph, node)]
        # If a node was not captured, or was captured as something else, the numbers may mean other nodes.
        if call is None or len(known) < len(members):
            continue
        if calls.end[call] - calls.start[call] >= laid.length:
            yield _Replay(calls.start[call], laid, known)


def _is_same(trace: Trace, gpu_op: int, graph: CapturedGraph, node: CapturedNode) -> bool:
    """Return whether a node is the same as when it was captured: graphs can be given other kernels later."""
    if _KINDS.get(node.kind) != trace.gpu.kind[gpu_op]:
        return False
    if node.kind != "kernel":
        return True
    name = graph.kernels[node.kernel] if node.kernel is not None and node.kernel < len(graph.kernels) else None
    return name == trace.names[trace.gpu.name[gpu_op]]


class _Putting:
    """Puts replays one after another on the lane."""

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
        """Put a replay on the lane, unless the launching call of another replay, on another thread, has not ended."""
        base, laid = replay.launched_ns, replay.laid
        if base < self._free_ns:
            return
        self._free_ns = base + laid.length
        for captured, begin, end in laid.ranges:
            if (column := self._columns.get(captured.kind)) is None:
                continue
            column.name.append(self._name(_PREFIXES.get(captured.kind, "") + captured.name))
            column.start.append(base + begin)
            column.end.append(base + end)
            column.thread.append(self._lane)
            if captured.kind == "operator":
                column.inputs.append(self._operands(_operands_text(captured.operands or ("", "", ""))))
                column.external.append(-1)
        for gpu_op, node in replay.nodes:
            self.of[gpu_op] = len(self.calls.start)
            self.calls.name.append(0)
            self.calls.start.append(base + laid.at[node.node])
            self.calls.end.append(base + laid.at[node.node])
            self.calls.thread.append(self._lane)
            if node.unsure:
                self.unsure[gpu_op] = node.unsure


def _operands_text(operands: Iterable[str]) -> bytes:
    """Return dims, types and strides in the form of ``Trace.inputs``."""
    return f"[{','.join(text or 'null' for text in operands)}]".encode()

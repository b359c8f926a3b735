"""Replays of CUDA graphs that ran more than the recording holds."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.trace.columns import ABSENT, KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.trace import Trace

# What changes a graph between its replays, or switches nodes of it off.
_CHANGES = r"(?:cuda|cu)Graph(?:Exec\w*(?:Update|SetParams)\w*|NodeSetEnabled\w*)"
_GRAPH_BITS = 32


class Cut(Struct, frozen=True):
    """A replay in a step that ran more than the recording holds."""

    graph: int
    """Its id in the recording, 0 where the file has none."""
    step: int
    recorded: int
    whole: int


def cut_replays(trace: Trace) -> list[Cut]:
    """Return the replays that lost operations, the first step's first; outside of the steps it does not matter."""
    cut = {**_by_count(trace), **_by_nodes(trace)}
    return sorted(cut.values(), key=lambda replay: replay.step)


def counts_are_known(trace: Trace) -> bool:
    """Return whether torch noted how many kernels each replay runs, so that no loss of theirs stays unseen."""
    noted = trace.metadata.graph_replays if trace.metadata is not None else None
    return noted is not None and None not in noted and len(noted) == len(_launches(trace))


def _by_nodes(trace: Trace) -> dict[int, Cut]:
    """Return those that lack a node which another replay of the same graph has, by their correlation id.

    The body of a conditional node is a graph of its own, whose number the node ids begin with: replays that did not
    enter it are not compared with those that did.
    """
    gpu, call_of, launched = trace.gpu, trace.links.call_of, trace.calls.start
    if not any(gpu.node) and not any(gpu.graph):
        return {}
    replays: dict[tuple[int, int, int], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    changes, step_of = _graph_changes(trace), {}
    for i, node in enumerate(gpu.node):
        # Where the file has only the low 32 bits of the node, the first one of a graph is 0.
        if node or gpu.graph[i]:
            replay, call = gpu.correlation[i], call_of[i]
            step_of[replay] = trace.step_of_gpu_op[i]
            changed = bisect_right(changes, launched[call] if call >= 0 else gpu.start[i])
            replays[gpu.graph[i], node >> _GRAPH_BITS, changed][replay].add(node)
    cuts: dict[int, Cut] = {}
    for (graph, _, _), nodes in replays.items():
        whole = len(set().union(*nodes.values()))
        for replay, own in nodes.items():
            if len(own) < whole and step_of[replay] != ABSENT:
                cuts[replay] = Cut(graph, step_of[replay], len(own), whole)
    return cuts


def _graph_changes(trace: Trace) -> list[int]:
    names = {i for i in set(trace.calls.name) if re.match(_CHANGES, trace.names[i])}
    return sorted(trace.calls.start[i] for i in where(trace.calls.name, names)) if names else []


def _by_count(trace: Trace) -> dict[int, Cut]:
    """Return those with fewer kernels than torch says that their graph has; our own recordings may know."""
    gpu, calls, cuts = trace.gpu, trace.calls, {}
    known = dict(_known_counts(trace))
    kernels: dict[int, list[int]] = {call: [] for call in known}
    for i, call in enumerate(trace.links.call_of if known else ()):
        if call in kernels and gpu.kind[i] == KERNEL:
            kernels[call].append(i)
    for call, whole in known.items():
        step, ran = trace.step_of_call[call], kernels[call]
        if len(ran) < whole and step != ABSENT:
            graph = gpu.graph[ran[0]] if ran else 0
            cuts[calls.correlation[call]] = Cut(graph, step, len(ran), whole)
    return cuts


def _known_counts(trace: Trace) -> Iterator[tuple[int, int]]:
    """Yield the launches of graphs whose number of kernels was noted: those of the recording one by one, or none."""
    noted = trace.metadata.graph_replays if trace.metadata is not None else None
    if noted is None:
        return
    launches = _launches(trace)
    if len(launches) == len(noted):
        ordered = sorted(launches, key=trace.calls.start.__getitem__)
        yield from ((call, count) for call, count in zip(ordered, noted, strict=True) if count is not None)


def _launches(trace: Trace) -> Sequence[int]:
    return where(trace.calls.name, trace.call_names(frozenset({CallKind.GRAPH_LAUNCH})))

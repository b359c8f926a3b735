"""Whether kernels of CUDA graphs bear the correlation ids of their launches.

NVIDIA's release notes of CUDA 13.1 Update 1 say that CUPTI before it gave wrong ones to cudaGraphLaunch and to the
kernels that it launches, in each session of a process but the first. A measurement's session never is the first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.reasons.lost_work import SharedGraphNumbers, StrayGraphNumbers
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace


def wrong_numbers(trace: Trace) -> Reason | None:
    """Return why it is not known which launch ran which kernels of graphs; None where it is."""
    if not len(trace.calls):
        return None
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    launches = where(trace.calls.name, {i for i in graphs if trace.names[i].startswith("cu")}) if graphs else ()
    if not launches:
        return None
    return _shared_numbers(trace, launches) or _stray_numbers(trace, launches)


def _cupti(trace: Trace) -> int | None:
    """Return the version of CUPTI that recorded the trace, as kineto notes it; None where the file does not say."""
    version = trace.header.get("cupti_version")
    return version if isinstance(version, int) and version > 0 else None


def _shared_numbers(trace: Trace, launches: Sequence[int]) -> Reason | None:
    """Return that launches have the number of other calls: each has its own."""
    ids = trace.calls.correlation
    wanted = {ids[i] for i in launches if ids[i] > 0}
    calls = Counter(filter(wanted.__contains__, ids))
    shared = sum(calls[ids[i]] > 1 for i in launches)
    return SharedGraphNumbers(shared, len(launches), _cupti(trace)) if shared else None


def _stray_numbers(trace: Trace, launches: Sequence[int]) -> Reason | None:
    """Return that operations of graphs are under other numbers than those of the launches, some of which have none."""
    empty = set(launches).intersection(trace.links.lost)
    strays = sum(_is_astray(trace)) if empty else 0
    if strays < max(1, len(empty)):
        return None
    return StrayGraphNumbers(strays, len(empty), len(launches), _cupti(trace))


def _is_astray(trace: Trace) -> Iterator[bool]:
    """Yield of each operation of a graph whether it is under another call than a graph's launch, or under none.

    Files before 2026 do not say what a graph ran. There it is what is under no call, and what shares one with others.
    """
    kinds, names, has_nodes = trace.call_kinds, trace.calls.name, any(trace.gpu.node)
    together, later = Counter(trace.links.call_of), _ran_later(trace)
    for i, (node, call) in enumerate(zip(trace.gpu.node, trace.links.call_of, strict=True)):
        if call < 0:
            yield (node > 0 or not has_nodes) and later(i)
        elif kinds[names[call]] is not CallKind.GRAPH_LAUNCH:
            yield node > 0 or (not has_nodes and together[call] > 1)


def _ran_later(trace: Trace) -> Callable[[int], bool]:
    """Return whether an operation without a call was queued inside the window: our own begins with an idle GPU."""
    gpu = trace.gpu
    if trace.metadata is not None and (sentinel := next(iter(trace.spans(SENTINEL)), None)):
        return lambda i: gpu.start[i] >= sentinel.end_ns
    first = min((correlation for correlation in trace.calls.correlation if correlation > 0), default=0)
    return lambda i: gpu.correlation[i] > first

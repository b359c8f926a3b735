"""Whether kernels of CUDA graphs bear the correlation ids of their launches.

NVIDIA's release notes of CUDA 13.1 Update 1 say that CUPTI before it gave wrong ones to cudaGraphLaunch and to the
kernels that it launches, in each session of a process but the first. A measurement's session never is the first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_torchprof.codes import Code
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.reasons import Reason, Verbatim
from pytest_torchprof.text import counted
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.columns import where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_torchprof.trace import Trace

_INSTALL = "pip install 'nvidia-cuda-cupti>=13.1.115'"
REMEDY: Final = f"torch 2.15 brings a newer one, and a torch built for CUDA 13 works with one: {_INSTALL}"
_CAUSE = "CUPTI before CUDA 13.1 Update 1 numbers graphs wrongly in all sessions of a process but the first"


def wrong_numbers(trace: Trace) -> Reason | None:
    """Return that nobody can tell which launch ran which kernels of graphs; None where it can be told."""
    graphs = trace.call_names(frozenset({CallKind.GRAPH_LAUNCH}))
    launches = where(trace.calls.name, {i for i in graphs if trace.names[i].startswith("cu")}) if graphs else ()
    if not launches:
        return None
    said = _shared(trace, launches) or _strays(trace, launches)
    return Verbatim(f"{said}. {_CAUSE}; {REMEDY}", Code.WRONG_GRAPH_NUMBERS) if said else None


def _shared(trace: Trace, launches: Sequence[int]) -> str | None:
    """Return that launches have the number of other calls: each has its own."""
    ids = trace.calls.correlation
    wanted = {ids[i] for i in launches if ids[i] > 0}
    calls = Counter(filter(wanted.__contains__, ids))
    shared = sum(calls[ids[i]] > 1 for i in launches)
    return f"{_of(shared, launches)} the correlation id of another call as well" if shared else None


def _strays(trace: Trace, launches: Sequence[int]) -> str | None:
    """Return that operations of graphs are under other numbers than those of the launches, some of which have none."""
    empty = set(launches).intersection(trace.links.lost)
    strays = sum(_is_astray(trace)) if empty else 0
    if strays < max(1, len(empty)):
        return None
    are = "operation of a CUDA graph is" if strays == 1 else "operations of CUDA graphs are"
    said = f"{strays} {are} in the recording under other correlation ids than their launch's"
    return f"{said}: {_of(len(empty), launches)} none"


def _is_astray(trace: Trace) -> Iterator[bool]:
    """Yield of each operation of a graph whether it is under another call than a graph's launch, or under none.

    Files before 2026 do not say what a graph ran. There it is what is under no call, and what shares one with others.
    """
    kinds, names, told = trace.call_kinds, trace.calls.name, any(trace.gpu.node)
    together, later = Counter(trace.links.call_of), _ran_later(trace)
    for i, (node, call) in enumerate(zip(trace.gpu.node, trace.links.call_of, strict=True)):
        if call < 0:
            yield (node > 0 or not told) and later(i)
        elif kinds[names[call]] is not CallKind.GRAPH_LAUNCH:
            yield node > 0 or (not told and together[call] > 1)


def _of(some: int, launches: Sequence[int]) -> str:
    return f"{some} of {counted(len(launches), 'launch')} of graphs {'has' if some == 1 else 'have'}"


def _ran_later(trace: Trace) -> Callable[[int], bool]:
    """Tell of an operation without a call whether it was queued inside the window: our own begins with an idle GPU."""
    gpu = trace.gpu
    if trace.metadata is not None and (sentinel := next(iter(trace.spans(SENTINEL)), None)):
        return lambda i: gpu.start[i] >= sentinel.end_ns
    first = min((one for one in trace.calls.correlation if one > 0), default=0)
    return lambda i: gpu.correlation[i] > first

"""How many kernels the CUDA graphs of this process hold: torch tells it when one is made, a trace never does."""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_torchprof.capture.devices.cuda import has_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

# As the driver numbers the types of nodes.
_KERNEL, _CHILD = 0, 4


@dataclass(slots=True)
class Graphs:
    """The graphs that were instantiated since the process began to watch, and what was replayed meanwhile."""

    kernels: WeakKeyDictionary[Any, int | None] = field(default_factory=WeakKeyDictionary)

    def note(self, graph: Any) -> None:
        """Count a graph's kernels while its template is there; torch keeps what this raises to itself."""
        self.kernels[graph] = None
        self.kernels[graph] = _kernels(graph.raw_cuda_graph())


@dataclass(slots=True)
class Replays:
    """The replays of a recording, in order: for each the number of its graph's kernels, None where it is not known."""

    kernels: list[int | None] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    @property
    def in_order(self) -> tuple[int | None, ...] | None:
        """The replays; None where several threads made them, in whatever order, or none did."""
        return tuple(self.kernels) if len(self.threads) == 1 else None


@cache
def watched() -> Graphs | None:
    """Begin to watch, once; None where torch (before 2.14) or ROCm has nothing to watch with."""
    if not has_gpu():
        return None
    import torch
    from torch.cuda import graphs

    register = getattr(graphs, "register_graph_instantiate_hook", None)
    if register is None or torch.version.hip:
        return None
    found = Graphs()
    register(found.note)
    return found


@contextmanager
def replays() -> Iterator[Replays]:
    """Note the replays that the code inside makes."""
    graphs, found = watched(), Replays()
    if graphs is None:
        yield found
        return
    from torch.cuda import graphs as hooks

    def note(graph: Any) -> None:
        found.kernels.append(graphs.kernels.get(graph))
        found.threads.add(threading.get_ident())

    registering: Any = hooks
    handle = registering.register_graph_replay_start_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def _kernels(graph: int | None) -> int | None:
    """Return the number of kernel nodes, those of child graphs too, which run in each replay; None: not known."""
    driver, count = _driver(), ctypes.c_size_t(0)
    if driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)):
        return None
    found = 0
    for node in nodes:
        kind, child = ctypes.c_int(-1), ctypes.c_void_p()
        if driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
            return None
        found += kind.value == _KERNEL
        if kind.value == _CHILD and not driver.cuGraphChildGraphNodeGetGraph(
            ctypes.c_void_p(node), ctypes.byref(child)
        ):
            found += _kernels(child.value) or 0
    return found


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")

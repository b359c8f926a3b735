"""The facts that our recordings keep of the capture of the CUDA graphs that they replay."""

from __future__ import annotations

from msgspec import Struct

from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import bracketed
from pytest_torchprof.trace.caches import Count  # noqa: TC001 - msgspec reads the annotations


class CapturedRange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator or range that was open during a part of a capture; its instants are an order, and not times."""

    name: str
    begin: Count
    end: Count
    kind: str = "operator"
    """"operator", "range" (the user's), "module", or "line": the line at which the user's code is from then on."""
    operands: tuple[str, str, str] | None = None
    """For an operator, dims, types and strides of its operands as the trace has them, each as JSON."""


class CapturedNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a captured CUDA graph."""

    node: Count
    """The low 32 bits of the number that the trace calls "graph node id"."""
    kind: str
    """"kernel", "memcpy" or "memset"."""
    at: Count
    """The instant at which it was made."""
    kernel: Count | None = None
    """The position of its kernel's name among those of the graph; null if the driver does not give the name."""
    unsure: tuple[str, ...] = ()
    """Operators that may have launched it; an operator around them may have, too."""


class CapturedGraph(Struct, frozen=True, kw_only=True):
    """The notes on the capture of a CUDA graph that the steps replay."""

    graphs: tuple[Count, ...]
    """The number that the trace calls "graph id", for each time that the graph was instantiated."""
    ranges: tuple[CapturedRange, ...] = ()
    nodes: tuple[CapturedNode, ...] = ()
    kernels: tuple[str, ...] = ()
    """The distinct names of its kernels."""

    def __repr__(self) -> str:
        graphs = ", ".join(map(str, self.graphs))
        return bracketed(self, f"of graphs {graphs}", counted(len(self.nodes), "node"))

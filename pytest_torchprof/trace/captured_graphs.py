"""What our recordings keep of the capture of the CUDA graphs that they replay."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]


class CapturedRange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was going on for a while, while a CUDA graph was captured; its instants are an order, and no times."""

    name: str
    begin: Count
    end: Count
    kind: str = "operator"
    """Else "range" (the user's), "module", or "line": where the user's code is from then on."""
    operands: tuple[str, str, str] | None = None
    """Of an operator, dims, types and strides of its operands as the trace has them, each as JSON."""


class CapturedNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a captured CUDA graph."""

    node: Count
    """The low 32 bits of what the trace calls "graph node id"."""
    kind: str
    """"kernel", "memcpy" or "memset"."""
    at: Count
    """The instant at which it was made."""
    kernel: Count | None = None
    """The place of its kernel's name among those of the graph; null where the driver does not tell it."""
    unsure: tuple[str, ...] = ()
    """Operators of which it is not known whether they launched it: one around them may have."""


class CapturedGraph(Struct, frozen=True, kw_only=True):
    """What was noted while a CUDA graph was captured that the steps replay."""

    graphs: tuple[Count, ...]
    """What the trace calls "graph id", of each time it was instantiated."""
    ranges: tuple[CapturedRange, ...] = ()
    nodes: tuple[CapturedNode, ...] = ()
    kernels: tuple[str, ...] = ()
    """The names of its kernels, each once."""

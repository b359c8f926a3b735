"""One event of a trace file as msgspec decodes it, without what nobody asks for."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Union

import msgspec
from msgspec import Raw, Struct, defstruct

WHOLE, FRACTIONAL, EXACT = "whole", "fractional", "exact"
"""Time stamps are whole microseconds; have fractions that a double holds; have more digits than it holds."""
STAMPS = (WHOLE, FRACTIONAL, EXACT)
_EMPTY = Raw(b"")


class Args(
    Struct,
    frozen=True,
    gc=False,
    rename={
        "dims": "Input Dims",
        "types": "Input type",
        "strides": "Input Strides",
        "blocks_per_sm": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
        "size": "bytes",
        "graph": "graph id",
        "node": "graph node id",
        "collective": "Collective name",
        "collective_dtype": "dtype",
    },
):
    """What an event's ``args`` tell: operands of operators, correlation of calls and GPU operations, and so on."""

    dims: Raw = _EMPTY
    types: Raw = _EMPTY
    strides: Raw = _EMPTY
    correlation: int = -1
    stream: int | str | None = None
    blocks_per_sm: float = -1.0
    occupancy: float = -1.0
    size: int = -1
    graph: int = 0
    node: int = 0
    collective: str | None = None
    collective_dtype: str | None = None


class Allocation(Struct, frozen=True, gc=False, rename={"size": "Bytes", "device_type": "Device Type"}):
    """What the ``args`` of an allocation tell, which is an instant; it has others too."""

    size: int = 0
    device_type: int = -1


class Kinds(NamedTuple):
    """The type of complete events for one way of reading time stamps; decoders of a list of events and of one."""

    event: type[Struct]
    other: type[Struct]
    """Any event that is not complete; its ``told`` is what an instant is called, the category of others."""
    start: type[Struct]
    """Where an arrow starts."""
    finish: type[Struct]
    instant: type[Struct]
    events: msgspec.json.Decoder[list[Any]]
    one: msgspec.json.Decoder[Any]


RANGE, NOTE, FRAME, CALL, OWN, NOTHING = "range", "note", "frame", "call", "own", "nothing"
KERNEL, MEMCPY, MEMSET = "kernel", "memcpy", "memset"
GPU = (KERNEL, MEMCPY, MEMSET)
FORWARD_BACKWARD, MEMORY = "fwdbwd", "[memory]"
"""The category of arrows from an operator to its backward, and the name of allocations."""
ROLES = {
    "cpu_op": RANGE,
    "operator": RANGE,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "xpu_runtime": CALL,
    "xpu_driver": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "overhead": OWN,
}
"""What complete events of a category are; the oldest files begin some of the names with a capital."""

# The phases of Chrome's trace format; of these kineto writes s, t, f (arrows), i (instants), M (names), C (counters).
_PHASES = "stfiMCIBEbenNODPRcVv()pFTS"


@cache
def kinds(stamps: str = WHOLE) -> Kinds:
    """Return the event types that read time stamps so; exact ones take three times as long."""
    stamp: Any = int if stamps == WHOLE else int | float
    if stamps == EXACT:
        from decimal import Decimal as stamp  # noqa: PLC0415, N813 - few files need it
    event = defstruct(
        "Event",
        [
            *(("cat", str), ("name", str), ("pid", int | str), ("tid", int | str)),
            *(("ts", stamp), ("dur", stamp), ("args", Args, Args())),
        ],
        tag_field="ph",
        tag="X",
        gc=False,
    )
    told: Any = ("told", str, "")
    arrow = [told, ("id", int | str, 0), ("tid", int | str, ""), ("ts", stamp, 0)]
    instant = [told, ("tid", int | str, ""), ("ts", stamp, 0), ("args", Allocation, Allocation())]
    more = {"s": arrow, "f": arrow, "i": instant}
    others = {
        phase: defstruct(
            f"Event_{ord(phase)}",
            more.get(phase, [told]),
            rename={"told": "name" if phase == "i" else "cat"},
            tag_field="ph",
            tag=phase,
            gc=False,
        )
        for phase in _PHASES
    }
    union: Any = Union[event, *others.values()]
    decoders = msgspec.json.Decoder(list[union]), msgspec.json.Decoder(union)
    return Kinds(event, others["M"], others["s"], others["f"], others["i"], *decoders)

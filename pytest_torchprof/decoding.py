"""One event of a trace file, as msgspec decodes it: typed by category, without what nobody asks for."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Union

import msgspec
from msgspec import Raw, Struct, defstruct

WHOLE, FRACTIONAL, EXACT = "whole", "fractional", "exact"
"""Time stamps are whole microseconds; have fractions that a double holds; have more digits than it holds."""
STAMPS = (WHOLE, FRACTIONAL, EXACT)

_EMPTY = Raw(b"")


class RangeArgs(
    Struct,
    frozen=True,
    gc=False,
    rename={"dims": "Input Dims", "types": "Input type", "strides": "Input Strides"},
):
    """What an operator's ``args`` tell."""

    dims: Raw = _EMPTY
    types: Raw = _EMPTY
    strides: Raw = _EMPTY


class CallArgs(Struct, frozen=True, gc=False):
    """What a runtime call's ``args`` tell."""

    correlation: int = -1


class GpuArgs(
    Struct,
    frozen=True,
    gc=False,
    rename={
        "blocks_per_sm": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
        "size": "bytes",
        "collective": "Collective name",
        "collective_dtype": "dtype",
    },
):
    """What a GPU operation's ``args`` tell."""

    correlation: int = -1
    stream: int | str | None = None
    blocks_per_sm: float = -1.0
    occupancy: float = -1.0
    size: int = -1
    collective: str | None = None
    collective_dtype: str | None = None


class Family(NamedTuple):
    """The event types for one way of reading time stamps, and the decoders of a list of them and of one."""

    by_category: dict[str, type[Struct]]
    decoder: msgspec.json.Decoder[list[Any]]
    one: msgspec.json.Decoder[Any]


RANGE, NOTE, FRAME, CALL, OWN, NOTHING = "range", "note", "frame", "call", "own", "nothing"
KERNEL, MEMCPY, MEMSET = "kernel", "memcpy", "memset"
GPU = (KERNEL, MEMCPY, MEMSET)
ROLES = {
    "cpu_op": RANGE,
    "Operator": RANGE,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "Runtime": CALL,
    "xpu_runtime": CALL,
    "xpu_driver": CALL,
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "overhead": OWN,
    **dict.fromkeys(
        [
            *("ac2g", "fwdbwd", "async", "async_gpu", "Trace", "gpu_user_annotation", "cpu_instant_event"),
            *("cuda_sync", "cuda_event", "cuda_profiler_range", "collective_comm", "hardware_counters"),
        ],
        NOTHING,
    ),
}
"""What the reader does with each category it knows; the oldest files spell them with a capital."""


@cache
def family(stamps: str = WHOLE) -> Family:
    """Return the event types that read time stamps so; exact ones take three times as long."""
    stamp: Any = int if stamps == WHOLE else int | float
    if stamps == EXACT:
        from decimal import Decimal as stamp  # noqa: PLC0415, N813 - few files need it
    ranged = [("name", str), ("ts", stamp), ("dur", stamp)]
    place = ("tid", int | str)
    fields: dict[str, list[Any]] = {
        RANGE: [*ranged, place, ("args", RangeArgs, RangeArgs())],
        NOTE: [*ranged, place],
        FRAME: [*ranged, place],
        OWN: [*ranged, place],
        CALL: [*ranged, place, ("args", CallArgs, CallArgs())],
        **{role: [*ranged, place, ("pid", int | str), ("args", GpuArgs, GpuArgs())] for role in GPU},
        NOTHING: [],
    }
    types = {
        category: defstruct(
            f"Event_{category}",
            fields[role],
            tag_field="cat",
            tag=category,
            namespace={"role": role},
            gc=False,
        )
        for category, role in ROLES.items()
    }
    union: Any = Union[tuple(types.values())]  # noqa: UP007 - the members are only known here
    return Family(types, msgspec.json.Decoder(list[union]), msgspec.json.Decoder(union))

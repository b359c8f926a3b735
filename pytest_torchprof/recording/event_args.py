"""The ``args`` of a trace's events, as msgspec decodes them: what nobody asks for is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from pytest_torchprof.recording.bounds import LARGEST
from pytest_torchprof.trace.columns import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

_EMPTY = Raw(b"")
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Args(
    Struct,
    frozen=True,
    gc=False,
    rename={
        "dims": "Input Dims",
        "types": "Input type",
        "strides": "Input Strides",
        "settings": "Concrete Inputs",
        "external": "External id",
        "blocks_per_sm": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
        "size": "bytes",
        "graph": "graph id",
        "node": "graph node id",
        "ran_on": "original_stream",
        "annotation": "name",
        "collective": "Collective name",
        "collective_dtype": "dtype",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group": "Process Group Name",
        "group_description": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "group_size": "Group size",
        "sequence": "Seq",
        "comms_id": "Comms Id",
        "sender": "Src Rank",
        "receiver": "Dst Rank",
    },
):
    """What an event's ``args`` hold: operands of operators, correlation of calls and GPU operations, and so on."""

    external: Whole = -1
    dims: Raw = _EMPTY
    strides: Raw = _EMPTY
    types: Raw = _EMPTY
    settings: Raw = _EMPTY
    correlation: Whole = -1
    stream: Whole | str | None = None
    ran_on: Whole | str | None = None
    """The stream, where the exporter moved what ran on it to another one (torch 2.15, ``graph_lanes="all"``)."""
    blocks_per_sm: float = -1.0
    occupancy: float = -1.0
    size: Whole = -1
    graph: Whole = 0
    node: Whole = 0
    annotation: Raw = _EMPTY
    """Of a CUDA graph's node, what torch's ``mark_kernels`` called the innermost scope of its capture."""
    collective: str | None = None
    collective_dtype: str | None = None
    in_elements: Whole = -1
    out_elements: Whole = -1
    group: str | None = None
    group_description: str | None = None
    group_ranks: str | None = None
    group_size: Whole = -1
    sequence: Whole = -1
    comms_id: int | str | None = None
    sender: Whole = -1
    receiver: Whole = -1


class Allocation(Struct, frozen=True, gc=False, rename={"size": "Bytes", "device_type": "Device Type"}):
    """The ``args`` of an allocation, which is an instant, as far as anybody asks for them."""

    size: Whole = 0
    device_type: Whole = -1


def messages_of(events: Sequence[Any], first: int) -> dict[int, Message]:
    """Return what the events say of collectives, by their places in a column."""
    return {
        i: Message(
            args.collective,
            args.collective_dtype,
            args.in_elements,
            args.out_elements,
            args.group,
            args.group_description,
            args.group_ranks,
            args.group_size,
            args.sequence,
            args.comms_id,
            max(args.sender, args.receiver),
        )
        for i, args in enumerate((event.args for event in events), first)
        if args.collective is not None
    }


def annotations_of(args: Sequence[Args], first: int) -> dict[int, str]:
    """Return what nodes of CUDA graphs are annotated with, by their places in a column."""
    annotated = (
        (i, event_args.annotation)
        for i, event_args in enumerate(args, first)
        if event_args.node and event_args.annotation
    )
    decoded = ((i, msgspec.json.decode(text)) for i, text in annotated)
    return {i: name for i, name in decoded if isinstance(name, str)}

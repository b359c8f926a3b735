"""The ``args`` of a trace's events, as msgspec decodes them: fields that nothing uses are left out."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from pytest_torchprof.recording.bounds import LARGEST
from pytest_torchprof.trace.columns import Message
from pytest_torchprof.trace.graph_annotations import annotation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.trace.graph_annotations import Annotation

# Annotations are no texts here: msgspec would evaluate each of them for every type that it makes.

# Bytes where the file has Raw: joining copies them without asking for a view.
_EMPTY: Any = b""
NULL: Any = b"null"
"""The very object that stands for what an event does not have."""
Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]


class Args(
    Struct,
    frozen=True,
    gc=False,
    rename={
        "external": "External id",
        "dims": "Input Dims",
        "types": "Input type",
        "settings": "Concrete Inputs",
        "strides": "Input Strides",
        "registers": "registers per thread",
        "shared": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
        "size": "bytes",
    },
):
    """The fields of ``args`` that any event may have: operands of operators, correlation of calls, shapes of launches.

    In the order in which kineto writes them, in which msgspec finds them fastest.
    """

    external: Whole = -1
    dims: Raw = NULL
    types: Raw = NULL
    settings: Raw = NULL
    strides: Raw = NULL
    stream: Whole | str | None = None
    correlation: Whole = -1
    registers: Raw = _EMPTY
    shared: Raw = _EMPTY
    blocks_per_sm: float = -1.0
    grid: Raw = _EMPTY
    block: Raw = _EMPTY
    occupancy: float = -1.0
    size: Whole | str = -1
    """A text in ROCm's calls that copy: an error there would have each event read by itself."""


_RARE = {
    "ran_on": "original_stream",
    "graph": "graph id",
    "node": "graph node id",
    "collective": "Collective name",
}


class FewArgs(Args, frozen=True, gc=False, rename=_RARE):
    """The ``args`` of most events; decoding fails where there is more to read, for which it takes `AllArgs`.

    A struct with all fields takes a third longer to decode, and many recordings have neither graphs nor collectives.
    """

    ran_on: None = None
    graph: Literal[0] = 0
    node: Literal[0] = 0
    collective: None = None


def part_of(args: type[Args], without: "AbstractSet[str]") -> type[Struct]:
    """Return a type of ``args`` that lacks some of the fields, each of which takes time even where it is not given."""
    fields = [field for field in msgspec.structs.fields(args) if field.name not in without]
    return msgspec.defstruct(
        args.__name__,
        [(field.name, field.type, field.default) for field in fields],
        rename={field.name: field.encode_name for field in fields},
        frozen=True,
        gc=False,
    )


class AllArgs(
    Args,
    frozen=True,
    gc=False,
    rename=_RARE
    | {
        "scope": "name",
        "bare_scope": "annotation",
        "first_scope": "str",
        "module": "module_fqn",
        "phase": "autograd_phase",
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
    """All fields: those too of nodes of CUDA graphs and of collectives."""

    ran_on: Whole | str | None = None
    """The original stream, if the exporter moved its work to another one (torch 2.15, ``graph_lanes="all"``)."""
    graph: Whole = 0
    node: Whole = 0
    scope: Raw = _EMPTY
    """For a CUDA graph's node, the name that torch's ``mark_kernels`` gave the innermost scope of its capture."""
    bare_scope: Raw = _EMPTY
    """That name from a scope that was written without fields, or with all its fields in a text (Cuspy)."""
    first_scope: Raw = _EMPTY
    """That name as the first versions wrote it."""
    module: Raw = _EMPTY
    """The path of a node's module, as torchtitan annotates it."""
    phase: Raw = _EMPTY
    """"backward" if torch has carried an annotation over to the backward pass."""
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
    """The fields of an allocation's ``args`` that are used; an allocation is an instant."""

    size: Whole = 0
    device_type: Whole = -1


def quantity(value: Any, most: int = LARGEST) -> int | Decimal | None:
    """Return the number in an argument; None if there is none, or if it is larger than ``most``."""
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except ArithmeticError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    return value if -most <= value <= most else None


def messages_of(events_args: "Sequence[AllArgs]", first: int) -> dict[int, Message]:
    """Return the messages of collectives in the events, by their index in a column."""
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
        for i, args in enumerate(events_args, first)
        if args.collective is not None
    }


def annotations_of(args: "Sequence[AllArgs]", first: int) -> "dict[int, Annotation]":
    """Return the annotations of nodes of CUDA graphs, by their index in a column."""
    nodes = ((i, event_args) for i, event_args in enumerate(args, first) if event_args.graph or event_args.node)
    return {i: annotated for i, event_args in nodes if (annotated := _annotation(event_args)) is not None}


def _annotation(args: AllArgs) -> "Annotation | None":
    written = (args.scope, args.bare_scope, args.first_scope, args.module, args.phase)
    if not any(written):
        return None
    scope, bare, first, module, phase = map(_text, written)
    if bare is not None and bare.startswith(("[", "{")):
        scopes = _fields_of(bare)
        named = [scopes.get(key) for key in ("name", "module_fqn", "autograd_phase")]
        scope, module, phase = (ours or theirs for ours, theirs in zip((scope, module, phase), named, strict=True))
        bare = None
    return annotation(scope or bare or first, module, backward=phase == "backward")


def _text(raw: Raw) -> str | None:
    value = msgspec.json.decode(raw) if raw else None
    return value if isinstance(value, str) and value else None


def _fields_of(text: str) -> dict[str, str]:
    """Return the fields of scopes that are written as one text; of a repeated field the first, as in torch."""
    try:
        scopes = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    fields: dict[str, str] = {}
    for scope in scopes if isinstance(scopes, list) else [scopes]:
        for key, value in scope.items() if isinstance(scope, dict) else ():
            if isinstance(value, str):
                fields.setdefault(key, value)
    return fields

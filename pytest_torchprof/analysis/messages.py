"""The message and group of a collective, as far as its backend, its operator or the recording's header has them."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pytest_torchprof.kernels.operand_work import DTYPE_BYTES
from pytest_torchprof.kernels.operands import DTYPES
from pytest_torchprof.text.reprs import ShownFields
from pytest_torchprof.trace.columns import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.analysis.operator_inputs import Inputs
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.columns import Message

_DTYPES: Final = {**DTYPES, "Int": "int32", "Bool": "bool"}
_IN_PLACE: Final = ("all_reduce", "broadcast", "reduce")
_EMPTY_LIST: Final = "ScalarList"
"""The record of an empty list of tensors: only the root gives or takes some."""
# The factor from algorithm bandwidth to what the busiest link carries, in a group of n ranks, as nccl-tests has it
# (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
_ON_THE_BUS: Final[dict[str, Callable[[int], float]]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "send_recv"), lambda _: 1.0),
    # A root takes or gives what all others have: its link carries everything but its own part.
    **dict.fromkeys(("gather", "scatter"), lambda n: (n - 1) / n),
}


class ProcessGroup(ShownFields, frozen=True, kw_only=True):
    """A group of ranks; what the recording does not say of it is None."""

    name: str | None = None
    description: str | None = None
    ranks: tuple[int, ...] | None = None
    size: int | None = None


NO_GROUP: Final = ProcessGroup()


class Sent(ShownFields, frozen=True, kw_only=True):
    """The data that one rank gives to a collective and takes from it, each None where it is not known."""

    dtype: str | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None


def bus_factor(collective: str, size: int) -> float | None:
    """Return the factor from the algorithm's bandwidth to the bus's; None for a collective that moves no data."""
    factor = _ON_THE_BUS.get(collective)
    return None if factor is None else factor(size)


def message_bytes(collective: str, sent: Sent, size: int | None) -> int | None:
    """Return the size of the message as nccl-tests counts it: the whole of it, on the side where it is whole."""
    part = {"gather": sent.bytes_in, "scatter": sent.bytes_out}
    if collective in part:
        own = part[collective]
        return None if own is None or size is None else own * size
    known = [side for side in (sent.bytes_in, sent.bytes_out) if side is not None]
    return max(known) if len(known) == 2 else None


def sent_by(operator: str | None, inputs: Inputs, backend: Inputs, message: Message | None, size: int | None) -> Sent:
    """Return the type and bytes that a collective sends and takes, by its operands, its backend's, or its message."""
    collective = COLLECTIVES.get(operator or "")
    if collective == "barrier":
        return Sent(bytes_in=0, bytes_out=0)
    dtype = _dtype(inputs, backend, message)
    width = DTYPE_BYTES.get(dtype or "")
    taken, given = _elements_of_message(message) or (None, None)
    if collective is not None and operator is not None:
        own_taken, own_given = _elements(operator, inputs, backend, size)
        # Of what only one side or the root has, the backend tells the size of the other side too.
        certain = collective in ("send_recv", "gather", "scatter")
        taken = own_taken if certain or taken is None else taken
        given = own_given if certain or given is None else given
    if width is None:
        return Sent(dtype=dtype)
    return Sent(
        dtype=dtype,
        bytes_in=None if taken is None else taken * width,
        bytes_out=None if given is None else given * width,
    )


def _elements_of_message(message: Message | None) -> tuple[int, int] | None:
    if message is None or min(message.in_elements, message.out_elements) < 0:
        return None
    return message.in_elements, message.out_elements


def _elements(operator: str, inputs: Inputs, backend: Inputs, size: int | None) -> tuple[int | None, int | None]:
    """Return how many elements this rank gives and how many it takes."""
    collective = COLLECTIVES[operator]
    first, second = (_operand(inputs, index) for index in (0, 1))
    if collective in _IN_PLACE:
        # Old recordings tell the operands of the backend's range only.
        first = first if first is not None else _operand(backend, 0)
        return first, first
    if collective == "gather":
        return second, _elements_at_root(inputs, 0, second, size)
    if collective == "scatter":
        return _elements_at_root(inputs, 1, first, size), first
    return {
        "c10d::send": (first, 0),
        "c10d::recv_": (0, first),
        "c10d::recv_any_source_": (0, first),
        # Their lists of lists leave no dims; each rank's part is as large as the others'.
        "c10d::allgather_": (second, _multiplied(second, size)),
        "c10d::allgather_coalesced_": (second, _multiplied(second, size)),
        "c10d::reduce_scatter_": (_multiplied(first, size), first),
    }.get(operator, (second, first))


def elements(inputs: Inputs) -> int | None:
    """Return how many elements the tensors that an operator or a range is given have on the side of this rank.

    Of several, the last one: what is sent, behind what is written.
    """
    types = inputs[0]
    counts = [count for index in range(len(types or ())) if (count := _operand(inputs, index)) is not None]
    return counts[-1] if counts else None


def is_dtype(kind: str) -> bool:
    """Return whether an operand of this kind is a tensor whose type is recorded."""
    return kind in _DTYPES


def _multiplied(elements: int | None, size: int | None) -> int | None:
    return None if elements is None or size is None else elements * size


def _elements_at_root(inputs: Inputs, index: int, part: int | None, size: int | None) -> int | None:
    """Return how many elements a list has that only the root gives or takes: one part for each rank."""
    types = inputs[0]
    if types is None or len(types) <= index:
        return None
    return 0 if types[index] == _EMPTY_LIST else _multiplied(part, size)


def _operand(inputs: Inputs, index: int) -> int | None:
    """Return how many elements a tensor has, or a list of them; None where its dims are not recorded."""
    types, shapes, _ = inputs
    if types is None or shapes is None or min(len(types), len(shapes)) <= index:
        return None
    kind, shape = types[index], shapes[index]
    try:
        if kind == "TensorList":
            return sum(prod(dims) for dims in shape) if shape else None
        count = prod(shape) if kind in _DTYPES else None
    except TypeError:
        return None
    # A shape with lists in it is none: multiplied, these are only repeated.
    return count if isinstance(count, int) else None


def _dtype(inputs: Inputs, backend: Inputs, message: Message | None) -> str | None:
    if message is not None and message.dtype in _DTYPES:
        return _DTYPES[message.dtype]
    for types, _, _ in (inputs, backend):
        dtypes = {_DTYPES[kind] for kind in types or () if kind in _DTYPES}
        if dtypes:
            return dtypes.pop() if len(dtypes) == 1 else None
    return None


def group_of(message: Message | None, settings: Sequence[Any] | None, known: Sequence[ProcessGroup]) -> ProcessGroup:
    """Return the group that the backend names, else the only one that there is, else what all of them have in common.

    ``settings`` are those of the operator in which the backend speaks: before torch 2.4 it ended in the group's size.
    """
    if message is not None and (message.group is not None or message.group_size >= 0):
        listed = next((group for group in known if group.name == message.group and group.name is not None), NO_GROUP)
        return ProcessGroup(
            name=message.group,
            description=message.group_description,
            ranks=_ranks(message.group_ranks) or listed.ranks,
            size=message.group_size if message.group_size >= 0 else listed.size,
        )
    if settings and len(settings) >= 8 and str(settings[-1]).isdecimal():
        return ProcessGroup(size=int(settings[-1]))
    if len(known) == 1:
        return known[0]
    sizes = {group.size for group in known}
    return ProcessGroup(size=sizes.pop()) if len(sizes) == 1 else NO_GROUP


@lru_cache(maxsize=1024)  # Each event lists all ranks of its group, on each of many ranks.
def _ranks(text: str | None) -> tuple[int, ...] | None:
    try:
        return tuple(msgspec.json.decode(text, type=list[int])) if text else None
    except msgspec.DecodeError:
        return None


def groups_of(trace: Trace, backend: str) -> list[ProcessGroup]:
    """Return the groups that the recording's header lists and that such a backend ("gloo", "nccl") serves."""
    header = _object(trace.header.get("distributedInfo"))
    listed = header.get("pg_config")
    groups = [
        ProcessGroup(
            name=_text(entry.get("pg_name")),
            description=_text(entry.get("pg_desc")),
            # No ranks are listed of a group of all.
            ranks=_whole_numbers(entry.get("ranks")) or None,
            size=size if isinstance(size := entry.get("pg_size"), int) else None,
        )
        for entry in map(_object, listed if isinstance(listed, list) else [])
        if not backend or re.search(rf"\b{backend}\b", str(entry.get("backend_config", backend)))
    ]
    return groups or ([ProcessGroup(size=1)] if header.get("world_size") == 1 else [])


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    numbers = value if isinstance(value, list) and all(isinstance(number, int) for number in value) else None
    return None if numbers is None else tuple(numbers)

"""The events of a recording as columns, because a recording may hold a million events.

Lists rather than arrays: they fill and read twice as fast, and an event still takes no more than 180 bytes.
"""

from __future__ import annotations

from array import array
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from pytest_torchprof.text import counted
from pytest_torchprof.text.reprs import ShownFields, bracketed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

KERNEL, MEMCPY, MEMSET = 0, 1, 2
ABSENT = -1
"""The value in a column of integers for facts that the file does not hold."""

CONSTANTS = frozenset(
    {
        *("aten::arange", "aten::linspace", "aten::logspace", "aten::eye", "aten::tril_indices", "aten::triu_indices"),
        *("aten::hann_window", "aten::hamming_window", "aten::blackman_window", "aten::bartlett_window"),
    }
)
"""Operators that make the same values from the same numbers each time, unlike those that return memory to be filled."""
SEND = "c10d::send"
RECEIVE = "c10d::recv_"
COLLECTIVES = {
    **dict.fromkeys(("c10d::allreduce_", "c10d::allreduce_coalesced_"), "all_reduce"),
    **dict.fromkeys(("c10d::allgather_", "c10d::_allgather_base_"), "all_gather"),
    **dict.fromkeys(("c10d::allgather_coalesced_", "c10d::allgather_into_tensor_coalesced_"), "all_gather"),
    **dict.fromkeys(("c10d::reduce_scatter_", "c10d::_reduce_scatter_base_"), "reduce_scatter"),
    "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter",
    **dict.fromkeys(("c10d::alltoall_", "c10d::alltoall_base_"), "all_to_all"),
    "c10d::broadcast_": "broadcast",
    "c10d::reduce_": "reduce",
    "c10d::gather_": "gather",
    "c10d::scatter_": "scatter",
    **dict.fromkeys((SEND, RECEIVE, "c10d::recv_any_source_"), "send_recv"),
    **dict.fromkeys(("c10d::barrier", "c10d::monitored_barrier_"), "barrier"),
}
"""The collective that each operator of torch.distributed asks for."""
PARAMETERS = "record_param_comms"
"""The operator around a collective in which its backend records the message and the group."""
WITH_SETTINGS = {*CONSTANTS, *COLLECTIVES, PARAMETERS} | {
    *("aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::miopen_convolution"),
    *("aten::_flash_attention_forward", "aten::_efficient_attention_forward", "aten::_cudnn_attention_forward"),
    "aten::_scaled_mm",
    *("aten::sum", "aten::nansum", "aten::mean", "aten::prod", "aten::_sparse_csr_sum", "aten::_sparse_csr_prod"),
    *("aten::cumsum", "aten::cumsum_", "aten::cumprod", "aten::cumprod_", "aten::linalg_vector_norm"),
    *("aten::native_norm", "aten::_sparse_softmax", "aten::_sparse_log_softmax", "aten::randperm"),
    *("aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::quantize_per_tensor_dynamic"),
}
"""Operators that depend on inputs that are not tensors (numbers, types, strides, masks, groups): these are kept."""

_Entry = TypeVar("_Entry")


def picked(column: Sequence[_Entry], indices: Collection[int]) -> list[_Entry]:
    """Return the column's entries at these indices; this costs two thirds of looking up one after the other."""
    # Of a single index an itemgetter makes no tuple.
    return list(itemgetter(*indices)(column)) if len(indices) > 1 else [column[index] for index in indices]


_FEW, _RARE = 3, 16
_BEGINNING = 1024
"""So many entries tell at little cost what is not rare."""


def where(column: Sequence[int], values: AbstractSet[int]) -> list[int]:
    """Return the indices of any of the values in the column, in order; this costs at most half of a loop over it."""
    rare = _indices(column, values, len(column) // _RARE) if _seem_rare(column[:_BEGINNING], values) else None
    return list(compress(range(len(column)), map(values.__contains__, column))) if rare is None else sorted(rare)


def _seem_rare(beginning: Sequence[int], values: AbstractSet[int]) -> bool:
    return len(values) <= _FEW and sum(map(beginning.count, values)) <= len(beginning) // _RARE


def _indices(column: Sequence[int], values: AbstractSet[int], most: int) -> list[int] | None:
    """Return the indices of the values, found one by one, a fifth of the cost if they are rare; None if not."""
    indices: list[int] = []
    for value in values:
        index = -1
        try:
            while len(indices) <= most:
                index = column.index(value, index + 1)
                indices.append(index)
        except ValueError:
            # That was the last of this value.
            continue
        return None
    return indices


def in_order(column: Sequence[int]) -> bool:
    """Return whether no entry of the column is less than the one before it."""
    # What is in order is sorted in a third of the time that it takes to compare neighbours, and most columns are.
    return sorted(column) == column


def _real() -> array[float]:
    return array("d")


def _whole() -> array[int]:
    return array("q")


def _short() -> array[int]:
    return array("H")


class _Columns(Struct, frozen=True, kw_only=True, eq=False):
    def __repr__(self) -> str:
        return bracketed(self, f"of {counted(len(getattr(self, self.__struct_fields__[0])), 'event')}")


class Timed(_Columns, frozen=True, kw_only=True, eq=False):
    """Events that take time. Times in ns."""

    name: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)


class _OfThreads(Timed, frozen=True, kw_only=True, eq=False):
    thread: list[int] = field(default_factory=list)


class Ranges(_OfThreads, frozen=True, kw_only=True, eq=False):
    """Ranges on the CPU side: operators, user annotations or Python frames. Times in ns."""

    inputs: list[int] = field(default_factory=list)
    """Index into ``Trace.inputs``: dims, types and strides of the operands; for some operators their settings too."""
    external: array[int] = field(default_factory=_whole)
    """The number of an operator, which the work that it launched has too; empty for other ranges."""


class Calls(_OfThreads, frozen=True, kw_only=True, eq=False):
    """Calls of the runtime or the driver. Times in ns."""

    correlation: list[int] = field(default_factory=list)


class GpuOps(Timed, frozen=True, kw_only=True, eq=False):
    """Kernels, copies and fills as the GPU ran them. Times in ns."""

    kind: list[int] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    """Index into ``Trace.processes``; ``Trace.device_of`` turns it into the device's index."""
    stream: list[int] = field(default_factory=list)
    """Index into ``Trace.streams``."""
    correlation: list[int] = field(default_factory=list)
    external: array[int] = field(default_factory=_whole)
    """The number of the operator that launched it. Without one, files from before 2024 repeat the correlation here."""
    blocks_per_sm: array[float] = field(default_factory=_real)
    """Below zero if the file does not say, as on ROCm."""
    occupancy: array[float] = field(default_factory=_real)
    size: list[int] = field(default_factory=list)
    shape: array[int] = field(default_factory=_short)
    """Index into ``Trace.shapes``: the shape of a kernel's launch; 0 if there are more shapes than fit.

    The column ends with the last kernel whose shape is in the file.
    """
    graph: list[int] = field(default_factory=list)
    """The CUDA graph that launched it; 0 without one, or if the file does not say (kineto before 2026)."""
    node: list[int] = field(default_factory=list)
    """The node of that graph, the same in each replay; 0 without a graph, or if the file does not say."""


class GpuRanges(Timed, frozen=True, kw_only=True, eq=False):
    """Ranges of the CPU, recorded once more around the work launched inside them, for each stream. Times in ns."""

    process: list[int | str] = field(default_factory=list)
    """The recorded process id, which is that of a device, and not the device's index."""
    stream: list[int | str] = field(default_factory=list)


class Arrows(_Columns, frozen=True, kw_only=True, eq=False):
    """The starts and finishes of arrows from operators to their backward, as (thread, ns) by the arrow's id."""

    starts: dict[int | str, tuple[int, int]] = field(default_factory=dict)
    finishes: dict[int | str, tuple[int, int]] = field(default_factory=dict)


class Message(ShownFields, frozen=True, array_like=True):
    """A backend's record of a collective; a field that it lacks is None, or below zero."""

    collective: str
    """The backend's name of the collective: "_allgather_base"."""
    dtype: str | None = None
    in_elements: int = ABSENT
    out_elements: int = ABSENT
    group: str | None = None
    group_description: str | None = None
    group_ranks: str | None = None
    """The numbers of the group's ranks as a list in JSON, which is cut off for large groups."""
    group_size: int = ABSENT
    sequence: int = ABSENT
    comms_id: int | str | None = None
    """The id of the collective, which is the same on all ranks."""
    peer: int = ABSENT
    """The rank that a message is sent to or received from."""


class Allocations(_Columns, frozen=True, kw_only=True, eq=False):
    """Memory that allocators gave out and took back, by thread. Times in ns, sizes in bytes, below zero if freed."""

    moment: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    device_type: list[int] = field(default_factory=list)
    """The numbers of c10: 0 is the CPU."""

    def __len__(self) -> int:
        return len(self.moment)

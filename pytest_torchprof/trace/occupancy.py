"""The occupancy of kernels with much shared memory, of which kineto writes 0.

kineto asks CUDA's calculator how many blocks of a kernel fit on a multiprocessor, without the kernel's own limit of
shared memory (``FUNC_SHMEM_LIMIT_DEFAULT`` in its ``CudaDeviceProperties.cpp``). By default a block has 48 KiB at most,
so that a kernel with more does not fit at all: products and attention of every generation since Volta. Here the same is
calculated with all the shared memory that the device has.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from pytest_torchprof.trace.columns import where
from pytest_torchprof.trace.gpus import facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.trace.columns import GpuOps

_Amount = Annotated[int, Meta(ge=0, le=2**53)]
_AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]

_DEFAULT_SHARED_BYTES: Final = 48 * 1024
_DIGITS: Final = 16
_WARP: Final = 32
_PARTITIONS: Final = 4
"""The parts of a multiprocessor, each with its share of the registers."""
_REGISTERS_UNIT: Final = 256
"""A warp's registers are a multiple of this."""
_AMPERE: Final = 8
"""The major compute capability from which on each block takes another KiB of shared memory, in units of 128 bytes."""


class _Device(
    Struct,
    frozen=True,
    rename={
        "threads": "maxThreadsPerMultiprocessor",
        "registers": "regsPerMultiprocessor",
        "shared_bytes": "sharedMemPerMultiprocessor",
        "major": "computeMajor",
    },
):
    """The resources of one multiprocessor of a device, as kineto records them."""

    threads: _AtLeastOne
    registers: _AtLeastOne
    shared_bytes: _AtLeastOne
    major: _Amount


def occupancies(
    gpu: GpuOps, shapes: Sequence[bytes], processes: Sequence[int | str], header: Mapping[str, object]
) -> Sequence[float]:
    """Return the occupancy of all GPU operations in percent, below zero where it is not known.

    It is kineto's, but of kernels with more than 48 KiB of shared memory not its 0.
    """
    beyond = {number for number, shape in enumerate(shapes) if _shared_bytes(shape) > _DEFAULT_SHARED_BYTES}
    if not beyond:
        return gpu.occupancy
    column = gpu.occupancy[:]
    known: dict[tuple[int, int, float], float] = {}
    for i in where(gpu.shape, beyond):
        if column[i] == 0:
            launched = process, shape, blocks = gpu.process[i], gpu.shape[i], gpu.blocks_per_sm[i]
            if launched not in known:
                known[launched] = estimated_percent(facts_of(processes[process], header), shapes[shape], blocks)
            column[i] = known[launched]
    return column


def estimated_percent(device: Mapping[str, object], shape: bytes, blocks: float) -> float:
    """Return the warps on a multiprocessor in percent of those that fit, by kineto's formula; -1 if it is not known.

    ``device`` are its facts as kineto writes them, ``shape`` is one of ``Trace.shapes``, of a kernel that takes so much
    shared memory that no limit on the number of blocks counts, and ``blocks`` are its grid's per multiprocessor.
    """
    _, block, registers, shared = shape.split(b"\0")
    try:
        facts = msgspec.convert(device, _Device)
        size = msgspec.json.decode(block, type=tuple[_AtLeastOne, _AtLeastOne, _AtLeastOne])
        of_thread = msgspec.json.decode(registers, type=_Amount)
        fitting = _fitting(facts, prod(size), of_thread, msgspec.json.decode(shared, type=_AtLeastOne))
    except msgspec.MsgspecError:
        return -1.0
    return 100 * min(fitting, blocks) * prod(size) / facts.threads if fitting and blocks >= 0 else -1.0


def _shared_bytes(shape: bytes) -> int:
    shared = shape.rpartition(b"\0")[2]
    return int(shared) if shared.isdigit() and len(shared) < _DIGITS else 0


def _fitting(device: _Device, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many blocks fit on a multiprocessor."""
    warps = ceil(threads / _WARP)
    reserved, unit = (1024, 128) if device.major >= _AMPERE else (0, 256)
    limits = [
        device.threads // (warps * _WARP),
        device.shared_bytes // (ceil((shared_bytes + reserved) / unit) * unit),
    ]
    if registers:
        of_warp = ceil(registers * _WARP / _REGISTERS_UNIT) * _REGISTERS_UNIT
        limits.append(device.registers // _PARTITIONS // of_warp * _PARTITIONS // warps)
    return min(limits)

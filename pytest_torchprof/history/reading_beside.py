"""Reading many runs in as many processes as there are cores, each of which reads a part of the records."""

from __future__ import annotations

import tempfile
from collections import deque
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from pytest_torchprof.history.reading import RunReader
from pytest_torchprof.system import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from pytest_torchprof.history.reading import HistoryRun, Packed, ReadPart
    from pytest_torchprof.history.record import BadRecord
    from pytest_torchprof.system.spawned_pool import SpawnedPool

_FEW: Final = 200
"""Of fewer records no process is started: that would take longer."""
_IN_A_PART: Final = 40
_AHEAD: Final = 4
"""How many parts wait, and are held in memory."""


def read_many(reader: RunReader, packed: Iterable[Packed]) -> Iterator[HistoryRun | BadRecord]:
    """Yield the runs in records, as the reader's own ``read`` does: of many records parts are read side by side."""
    records = iter(packed)
    few = [*islice(records, _FEW)]
    if len(few) < _FEW:
        yield from reader.read(few)
        return
    for part in _parts(chain(few, records)):
        yield from reader.take(part)


def _parts(records: Iterator[Packed]) -> Iterator[ReadPart]:
    from pytest_torchprof.system.spawned_pool import SpawnedPool  # noqa: PLC0415 - slow; few histories are long

    with (
        tempfile.TemporaryDirectory(prefix="torchprof-", ignore_cleanup_errors=True) as folder,
        SpawnedPool(folder, begin=interrupts.ignore) as pool,
    ):
        waiting: deque[tuple[list[Packed], Future[ReadPart] | None]] = deque()
        while part := [*islice(records, _IN_A_PART)]:
            waiting.append((part, _given(pool, part)))
            if len(waiting) > _AHEAD:
                yield _part_of(*waiting.popleft())
        while waiting:
            yield _part_of(*waiting.popleft())


def read_part(packed: list[Packed]) -> ReadPart:
    """Return the content of some records."""
    return RunReader().read_part(packed)


def _given(pool: SpawnedPool, part: list[Packed]) -> Future[ReadPart] | None:
    """Let other processes read a part; None where one of them has been ended, after which they take no more."""
    try:
        return pool.submit(read_part, part)
    except BrokenExecutor:
        return None


def _part_of(packed: list[Packed], reading: Future[ReadPart] | None) -> ReadPart:
    if reading is not None:
        # Somebody may have ended the process, as a system does that is short of memory; or a disk is full.
        with suppress(BrokenExecutor, OSError):
            return reading.result()
    return read_part(packed)

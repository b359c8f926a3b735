"""Reading many runs in as many processes as there are cores, each of which reads a part of the records."""

from __future__ import annotations

import signal
from collections import deque
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from pytest_torchprof.history.reading import RunReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.history.reading import Packed, ReadPart

_IN_A_PART: Final = 40
_AHEAD: Final = 4
"""How many parts wait, and are held in memory."""


def read_beside(packed: Iterable[Packed]) -> Iterator[ReadPart]:
    """Yield what is in records, part by part."""
    records = iter(packed)
    # No fork: the libraries of object stores and databases may have threads.
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_begin) as pool:
        waiting: deque[tuple[list[Packed], Future[ReadPart]]] = deque()
        while part := [*islice(records, _IN_A_PART)]:
            waiting.append((part, pool.submit(read_part, part)))
            if len(waiting) > _AHEAD:
                yield _part_of(*waiting.popleft())
        while waiting:
            yield _part_of(*waiting.popleft())


def read_part(packed: Iterable[Packed]) -> ReadPart:
    """Return what is in some records."""
    return RunReader().read_part(packed)


def _part_of(packed: Iterable[Packed], reading: Future[ReadPart]) -> ReadPart:
    try:
        return reading.result()
    except BrokenExecutor:
        # Somebody has ended the process, as a system does that is short of memory.
        return read_part(packed)


def _begin() -> None:
    # Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

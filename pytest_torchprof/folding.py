"""Typed events, a piece of the file at a time, into columns."""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any

from pytest_torchprof.columns import KERNEL, MEMCPY, MEMSET, Calls, GpuOps, Ranges
from pytest_torchprof.decoding import CALL, FRAME, GPU, NOTE, NOTHING, RANGE, ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from msgspec import Struct

_KINDS = {"kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY}
# Beyond these a time stamp is none: 0x8000... is what CUPTI writes when it has no time.
_LATEST_NS = 2**62
_EXACT_NS = 2**53


class TooFineError(Exception):
    """Time stamps with more digits than a double holds."""


class _Numbering(defaultdict[Any, int]):
    """Numbers values in the order they come."""

    def __init__(self) -> None:
        super().__init__(count().__next__)


class _Threads(defaultdict[Any, int]):
    """Numbers thread and stream ids, which the oldest files write as text here and as a number there."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[int | str] = []

    def __missing__(self, key: int | str) -> int:
        label = int(key) if isinstance(key, str) and key.strip().lstrip("-").isdecimal() else key
        number = self[label] if label is not key and label in self else None
        if number is None:
            number = len(self.labels)
            self.labels.append(label)
            self[label] = number
        self[key] = number
        return number


class Columns:
    """Collects events; ``steps`` of the work are one call of :meth:`fold` per piece of the file."""

    def __init__(self) -> None:
        self.events = 0
        self.names = _Numbering()
        self.threads = _Threads()
        self.streams = _Threads()
        self.processes = _Threads()
        self.inputs = _Numbering()
        self.inputs[b"", b"", b""]  # The empty set is the first.
        self.ops, self.annotations, self.frames = Ranges(), Ranges(), Ranges()
        self.calls, self.gpu = Calls(), GpuOps()
        self.collectives: dict[int, tuple[str, str | None]] = {}

    def fold(self, events: list[Any], types: Mapping[str, type[Struct]]) -> None:
        """Append the events' columns; TooFineError if their time stamps need the exact types."""
        roles: dict[str, list[Any]] = {role: [] for role in (RANGE, NOTE, FRAME, CALL, GPU, NOTHING)}
        put = {types[category]: roles[role].append for category, role in ROLES.items()}
        for event in events:
            put[type(event)](event)
        # All times first: a piece is folded whole or, when its times turn out too fine, not at all.
        times = {role: _times(found) for role, found in roles.items() if found and role != NOTHING}
        self.events += len(events)
        for role, part in ((RANGE, self.ops), (NOTE, self.annotations), (FRAME, self.frames)):
            if roles[role]:
                self._ranges(part, roles[role], *times[role])
        if roles[CALL]:
            self._calls(roles[CALL], *times[CALL])
        if roles[GPU]:
            self._gpu(roles[GPU], *times[GPU])

    def _ranges(self, part: Ranges, events: list[Any], start: array[int], end: array[int]) -> None:
        names, threads, inputs = self.names, self.threads, self.inputs
        part.name.extend([names[event.name] for event in events])
        part.thread.extend([threads[event.tid] for event in events])
        part.start.extend(start)
        part.end.extend(end)
        if part is self.ops:
            args = [event.args for event in events]
            part.external.extend(_whole([arg.external for arg in args]))
            part.inputs.extend([inputs[bytes(arg.dims), bytes(arg.types), bytes(arg.strides)] for arg in args])

    def _calls(self, events: list[Any], start: array[int], end: array[int]) -> None:
        names, threads, calls = self.names, self.threads, self.calls
        args = [event.args for event in events]
        calls.name.extend([names[event.name] for event in events])
        calls.thread.extend([threads[event.tid] for event in events])
        calls.start.extend(start)
        calls.end.extend(end)
        calls.correlation.extend(_whole([arg.correlation for arg in args]))
        calls.external.extend(_whole([arg.external for arg in args]))

    def _gpu(self, events: list[Any], start: array[int], end: array[int]) -> None:
        names, gpu, first = self.names, self.gpu, len(self.gpu)
        streams, processes = self.streams, self.processes
        args = [event.args for event in events]
        gpu.kind.extend([_KINDS.get(event.__struct_config__.tag, MEMSET) for event in events])
        gpu.name.extend([names[event.name] for event in events])
        gpu.start.extend(start)
        gpu.end.extend(end)
        gpu.process.extend([processes[event.pid] for event in events])
        gpu.stream.extend(
            [streams[event.tid if arg.stream is None else arg.stream] for event, arg in zip(events, args, strict=True)]
        )
        gpu.correlation.extend(_whole([arg.correlation for arg in args]))
        gpu.external.extend(_whole([arg.external for arg in args]))
        gpu.blocks_per_sm.extend([arg.blocks_per_sm for arg in args])
        gpu.occupancy.extend([arg.occupancy for arg in args])
        gpu.size.extend(_whole([arg.size for arg in args]))
        for i, arg in enumerate(args, first):
            if arg.collective is not None:
                self.collectives[i] = (arg.collective, arg.collective_dtype)


def _times(events: list[Any]) -> tuple[array[int], array[int]]:
    """Return starts and ends in ns."""
    start = _ns([event.ts for event in events])
    spent = _ns([event.dur for event in events])
    return start, array("q", [begin + lasted for begin, lasted in zip(start, spent, strict=True)])


def _ns(stamps: list[Any]) -> array[int]:
    try:
        return array("q", [stamp * 1000 for stamp in stamps])
    except (TypeError, OverflowError):
        pass
    exact = [round(stamp * 1000) for stamp in stamps]
    if max(exact) >= _EXACT_NS and any(
        isinstance(stamp, float) and _EXACT_NS <= stamp * 1000 < _LATEST_NS and not stamp.is_integer()
        for stamp in stamps
    ):
        raise TooFineError
    return array("q", [min(max(moment, -_LATEST_NS), _LATEST_NS) for moment in exact])


def _whole(numbers: Iterable[int]) -> Iterable[int]:
    """Return the numbers, those that fit no column as absent ones."""
    return [number if -(2**63) <= number < 2**63 else -1 for number in numbers]

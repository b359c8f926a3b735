"""The lanes of a timeline: what ran on one thread or stream, each event in a row where nothing else runs meanwhile."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.columns import Calls, GpuOps, GpuRanges, Ranges

_Key = TypeVar("_Key")


class LaneKind(StrEnum):
    """The kinds of events that a lane has."""

    RANGES = "ranges"
    """User annotations."""
    PYTHON = "Python"
    OPERATORS = "operators"
    CALLS = "launches"
    """All calls of the runtime: launches, copies, waits."""
    PROFILER = "profiler"
    """The overhead of the profiler and of the driver."""
    STREAM = "stream"
    COMMUNICATION = "communication"
    """Kernels of a stream that carry out collectives."""
    GPU_RANGES = "GPU ranges"
    """User annotations around what was launched inside them and ran on a stream."""


ON_GPU = frozenset({LaneKind.STREAM, LaneKind.COMMUNICATION})


class Lane(Struct, frozen=True, kw_only=True, eq=False):
    """Events of one kind on one thread or stream, in order of their starts, the longest first of those that tie."""

    kind: LaneKind
    title: str
    """The title of the thread or the GPU: several lanes have the same."""
    subtitle: str
    columns: Ranges | Calls | GpuOps | GpuRanges
    members: Sequence[int]
    rows: Sequence[int]
    """For each member the row in which it is drawn, the uppermost one 0: no two of a row overlap."""


def rows_of(starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    """Return a row for each of these ranges, the first that is free; ranges are in order, the longest first of a tie.

    Ranges that nest are in rows as deep as they are nested. One without length takes its row for an instant.
    """
    rows: list[int] = []
    until: list[int] = []
    for start, end in zip(starts, ends, strict=True):
        while until and until[-1] <= start:
            until.pop()
        last = end if end > start else start + 1
        if until and min(until) <= start:
            row = next(row for row, reached in enumerate(until) if reached <= start)
            until[row] = last
        else:
            row = len(until)
            until.append(last)
        rows.append(row)
    return rows


def lanes_of(analysis: Analysis) -> list[Lane]:
    """Return all events as lanes: the thread of the steps, those that launch, the GPUs, other threads."""
    trace = analysis.trace
    launching = {trace.calls.thread[call] for call in set(trace.links.call_of) if call >= 0}
    lanes = _thread_lanes(trace)
    leads = [thread for thread in lanes if thread in launching or trace.threads[thread] == trace.steps[0].tid]
    beside = [thread for thread in lanes if thread not in leads]
    first, last = ([lane for thread in some for lane in lanes[thread]] for some in (leads, beside))
    return [*first, *_stream_lanes(analysis), *last]


def _thread_lanes(trace: Trace) -> dict[int, list[Lane]]:
    """Return the lanes of each thread, first the thread of the steps, then as they begin."""
    parts: list[tuple[LaneKind, Ranges | Calls]] = [
        (LaneKind.RANGES, trace.annotations),
        (LaneKind.PYTHON, trace.frames),
        (LaneKind.OPERATORS, trace.ops),
        (LaneKind.CALLS, trace.calls),
        (LaneKind.PROFILER, trace.overheads),
    ]
    parts_of: dict[int, list[tuple[LaneKind, Ranges | Calls, Sequence[int]]]] = defaultdict(list)
    for kind, part in parts:
        for thread, members in _grouped(part.thread).items():
            parts_of[thread].append((kind, part, members))
    main = trace.steps[0].tid
    first = {thread: min(part.start[members[0]] for _, part, members in parts_of[thread]) for thread in parts_of}
    lanes = {}
    for thread in sorted(parts_of, key=lambda thread: (trace.threads[thread] != main, first[thread])):
        label = trace.threads[thread]
        shown = label if thread == trace.captured.lane else f"CPU thread {label}"
        title = f"{shown}" + (" (steps)" if label == main and trace.has_step_ranges else "")
        lanes[thread] = [_lane(kind, title, kind.value, part, members) for kind, part, members in parts_of[thread]]
    return lanes


def _stream_lanes(analysis: Analysis) -> Iterator[Lane]:
    trace, communicating = analysis.trace, analysis.gpu_work.communication
    gpu = trace.gpu
    names = {device.index: device.name for device in trace.devices}
    keys = zip(
        map(trace.device_of.__getitem__, gpu.process),
        gpu.stream,
        map(communicating.__contains__, range(len(gpu))),
        strict=True,
    )
    grouped = _grouped(list(keys))
    order = sorted(grouped, key=lambda key: (key[0], key[2], gpu.start[grouped[key][0]]))
    annotated = _annotated(trace)
    for device, stream, carries in order:
        name = names.get(device)
        title = f"GPU {device}" + (f" ({name})" if name else "")
        for label, members in annotated.pop(device, {}).items():
            yield _lane(LaneKind.GPU_RANGES, title, f"stream {label}, ranges", trace.gpu_annotations, members)
        kind = LaneKind.COMMUNICATION if carries else LaneKind.STREAM
        label = str(trace.streams[stream]).removeprefix("stream ")
        subtitle = f"stream {label}" + (", communication" if carries else "")
        yield _lane(kind, title, subtitle, gpu, grouped[device, stream, carries])
    for process, streams in annotated.items():
        for label, members in streams.items():
            yield _lane(
                LaneKind.GPU_RANGES, f"GPU {process}", f"stream {label}, ranges", trace.gpu_annotations, members
            )


def _annotated(trace: Trace) -> dict[int | str, dict[str, list[int]]]:
    """Return the GPU annotations by device and by what its streams are called; by process where nothing else ran."""
    device_of = dict(zip(map(str, trace.processes), trace.device_of, strict=True))
    by_device: dict[int | str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    annotations = trace.gpu_annotations
    for i, (process, stream) in enumerate(zip(annotations.process, annotations.stream, strict=True)):
        label = str(stream).removeprefix("stream ")
        by_device[device_of.get(str(process), str(process))][label].append(i)
    return by_device


def _grouped(keys: Sequence[_Key]) -> Mapping[_Key, Sequence[int]]:
    if len(set(keys)) == 1:
        return {keys[0]: range(len(keys))}
    grouped: dict[_Key, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        grouped[key].append(i)
    return grouped


def _lane(
    kind: LaneKind, title: str, subtitle: str, part: Ranges | Calls | GpuOps | GpuRanges, members: Sequence[int]
) -> Lane:
    start, end = part.start, part.end
    timed = sorted([(start[i], -end[i], i) for i in members])
    order = list(map(itemgetter(2), timed))
    rows = rows_of(map(start.__getitem__, order), map(end.__getitem__, order))
    return Lane(kind=kind, title=title, subtitle=subtitle, columns=part, members=order, rows=rows)

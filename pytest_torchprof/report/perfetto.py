"""A recording for Perfetto, which silently drops a slice that overlaps another one of its track."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pytest_torchprof.recording.kinds import GPU, ROLES
from pytest_torchprof.recording.reader import read, repaired
from pytest_torchprof.recording.text import inflated
from pytest_torchprof.text import counted
from pytest_torchprof.trace.metadata import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_EVENTS = "traceEvents"
_ARROWS = frozenset("stf")
_NO_ARGUMENTS = msgspec.Raw(b"{}")
_Id = int | float | str | None
_Track = tuple[_Id, _Id]
"""Process and thread ids; for GPU work they are the device and the stream."""


class _Event(Struct, frozen=True):
    """The fields of an event that decide where it is drawn."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: _Id = None
    tid: _Id = None
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)
    id: Any = None
    args: msgspec.Raw = _NO_ARGUMENTS

    @property
    def track(self) -> _Track:
        return self.pid, self.tid

    @property
    def on_gpu(self) -> bool:
        return ROLES.get(self.cat.lower()) in GPU

    def argument(self, name: str) -> Any:
        """Return one of the event's arguments, None without it."""
        arguments = msgspec.json.decode(self.args)
        return arguments.get(name) if isinstance(arguments, dict) else None


class LanesFile(Struct, frozen=True, kw_only=True):
    """A trace file whose slices all have room, and how it was changed."""

    content: bytes
    slices: int
    moved: int
    """Slices that are on another track than recorded."""
    lanes: int
    """Tracks that were added for them."""

    @property
    def summary(self) -> str:
        """The changes, in words."""
        lanes = f"{self.moved:,} of them on {counted(self.lanes, 'lane')} of their own"
        return f"{counted(self.slices, 'slice')}, {lanes if self.moved else 'none of which overlap'}"


def with_lanes(path: str) -> LanesFile:
    """Return a new trace file in which each slice that overlaps another of its track has a lane of its own below it.

    Slices that are not moved stay as they are in the file, byte by byte; the plugin's own data beside the events is
    left out. Raises UnreadableRecording, as any other reading does.
    """
    read(path)
    around, raw = repaired(b"".join(inflated(path)), _document)
    events = [_event(event) for event in raw]
    lane_of = _lanes(events)
    tids = _new_tids(events, lane_of)
    moved = {i: tids[events[i].track, lane] for i, lane in lane_of.items() if lane}
    moved |= _arrows(events, moved)
    written = [_moved(event, moved[i]) if i in moved else bytes(event) for i, event in enumerate(raw)]
    written += map(msgspec.json.encode, _names(events, tids))
    head = b"".join(msgspec.json.encode(key) + b":" + bytes(value) + b"," for key, value in around.items())
    return LanesFile(
        content=b"{" + head + b'"traceEvents":[\n' + b",\n".join(written) + b"\n]}\n",
        slices=len(lane_of),
        moved=sum(lane > 0 for lane in lane_of.values()),
        lanes=len(tids),
    )


def lanes_of_track(starts: Sequence[Any], ends: Sequence[Any], alone: Sequence[bool]) -> list[int]:
    """Return a lane for each slice of a track, in order of their starts, the longest first of those that tie.

    It is the first lane where the slice overlaps nothing or lies entirely inside another slice; of two that are
    ``alone``, as kernels are, neither is drawn inside the other.
    """
    lanes: list[list[int]] = []
    chosen = []
    for i, start in enumerate(starts):
        for lane, running in enumerate(lanes):
            while running and ends[running[-1]] <= start and not (ends[i] == start == starts[running[-1]]):
                running.pop()
            if not running or (ends[i] <= ends[running[-1]] and not (alone[i] and alone[running[-1]])):
                running.append(i)
                chosen.append(lane)
                break
        else:
            chosen.append(len(lanes))
            lanes.append([i])
    return chosen


def _document(text: bytes | msgspec.Raw) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]]:
    """Return the fields around the events by key, and the events, undecoded; the oldest files have no keys."""
    if bytes(text[:64]).lstrip()[:1] == b"[":
        return {}, msgspec.json.decode(text, type=list[msgspec.Raw])
    document = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(document.pop(_EVENTS), type=list[msgspec.Raw])
    # It holds checksums of the original file.
    document.pop(KEY, None)
    return document, events


def _event(raw: msgspec.Raw) -> _Event:
    try:
        return msgspec.json.decode(raw, type=_Event)
    except msgspec.ValidationError:
        # An event without a time or a track, or with arguments of another kind, cannot overlap.
        return _Event()


def _lanes(events: Sequence[_Event]) -> dict[int, int]:
    """Return the lane of each complete event by its index in the file."""
    tracks: dict[_Track, list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        if event.ph == "X":
            tracks[event.track].append(i)
    lanes_of: dict[int, int] = {}
    for members in tracks.values():
        order = sorted(members, key=lambda i: (events[i].ts, -events[i].dur))
        starts = [events[i].ts for i in order]
        ends = [events[i].ts + events[i].dur for i in order]
        lanes = lanes_of_track(starts, ends, [events[i].on_gpu for i in order])
        lanes_of.update(zip(order, lanes, strict=True))
    return lanes_of


def _new_tids(events: Sequence[_Event], lanes: Mapping[int, int]) -> dict[tuple[_Track, int], int]:
    """Return an unused thread id for each lane but the first of each track."""
    numbers = count(1 + max((event.tid for event in events if isinstance(event.tid, int)), default=0))
    wanted = sorted({(str(events[i].track), lane, i) for i, lane in lanes.items() if lane})
    thread_ids: dict[tuple[_Track, int], int] = {}
    for _, lane, i in wanted:
        if (events[i].track, lane) not in thread_ids:
            thread_ids[events[i].track, lane] = next(numbers)
    return thread_ids


def _arrows(events: Sequence[_Event], moved: Mapping[int, int]) -> dict[int, int]:
    """Return the new tracks of ends of arrows whose slice was moved: they are on its track, at its start."""
    touched = {(events[i].track, events[i].ts) for i in moved}
    starts: dict[tuple[_Track, Decimal], list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        if event.ph == "X" and (event.track, event.ts) in touched:
            starts[event.track, event.ts].append(i)
    ids = {}
    for i, event in enumerate(events):
        there = starts.get((event.track, event.ts), []) if event.ph in _ARROWS else []
        # Several slices may start together: for arrows from launches the id is the correlation.
        meant = [other for other in there if len(there) == 1 or events[other].argument("correlation") == event.id]
        if meant and meant[0] in moved:
            ids[i] = moved[meant[0]]
    return ids


def _moved(raw: msgspec.Raw, tid: int) -> bytes:
    event = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    event["tid"] = msgspec.Raw(str(tid).encode())
    return msgspec.json.encode(event)


def _names(events: Sequence[_Event], tids: Mapping[tuple[_Track, int], int]) -> Iterator[dict[str, Any]]:
    """Yield events that name the new lanes after their tracks, and sort them beside these."""
    metadata = {(event.track, event.name): event for event in events if event.ph == "M"}
    for (track, lane), tid in tids.items():
        named, sorted_by = (metadata.get((track, name)) for name in ("thread_name", "thread_sort_index"))
        name = (named and named.argument("name")) or track[1]
        arguments: dict[str, dict[str, Any]] = {"thread_name": {"name": f"{name} (lane {lane + 1})"}}
        if sorted_by is not None:
            arguments["thread_sort_index"] = {"sort_index": sorted_by.argument("sort_index")}
        for what, args in arguments.items():
            yield {"ph": "M", "name": what, "pid": track[0], "tid": tid, "args": args}

"""The events of a trace file, as msgspec decodes them, collected into columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import count, islice
from operator import gt
from struct import pack
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import Excess
from pytest_torchprof.recording.bounds import DISTINCT, EVENTS, MIB, too_large
from pytest_torchprof.recording.event_args import NULL, annotations_of, messages_of, quantity
from pytest_torchprof.recording.kinds import (
    CALL,
    FORWARD_BACKWARD,
    FRAME,
    GPU,
    GPU_NOTE,
    LEFT_OUT,
    MEMORY,
    NOTE,
    OWN,
    RANGE,
    ROLES,
    USUAL,
    kinds,
)
from pytest_torchprof.recording.runs import Run, narrowed
from pytest_torchprof.recording.stamps import EXACT, WHOLE, in_ns, times_ns
from pytest_torchprof.trace.columns import (
    ABSENT,
    PARAMETERS,
    WITH_SETTINGS,
    Allocations,
    Arrows,
    Calls,
    GpuOps,
    GpuRanges,
    Message,
    Ranges,
    where,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.recording.kinds import Kinds
    from pytest_torchprof.trace.graph_annotations import Annotation


_KEPT = {FORWARD_BACKWARD, MEMORY}
_SAMPLES = "hardware_counters"
# Counters of the GPU's units: kineto's category; NVIDIA's names of metrics, and torch 2.15's names of some.
_METRIC = r"[a-z]+__\w+(?:\.\w+)*|CUPTI PM Sampling|(?:SM Active|DRAM BW|HBM \w+|NVLink [RT]X|PCIe)(?: \(%\))?"


def _is_of_hardware(counter: tuple[str, str]) -> bool:
    category, name = counter
    return category == _SAMPLES or re.fullmatch(_METRIC, name) is not None


_NO_INPUTS = b"null,null,null"
_NO_SHAPE, _MOST_SHAPES = b"\0\0\0", 2**16 - 1


def _numbering() -> defaultdict[Any, int]:
    """Return a dict that numbers values in the order in which they come."""
    # No class of its own: looking something up in a subclass of dict takes CPython half as long again.
    return defaultdict(count().__next__)


_DIGITS = 19  # The most that 64 bits hold.


class _Threads:
    """Numbers thread and stream ids, which the oldest files write now as text, now as a number."""

    def __init__(self) -> None:
        self.labels: list[int | str] = []
        self._numbers: dict[int | str, int] = {}

    def numbers(self, ids: Sequence[int | str]) -> list[int]:
        """Return the number of each id."""
        # Most often a piece of the file has one id, and to compare takes a third of the time of looking up.
        if ids and ids.count(ids[0]) == len(ids):
            return self._of_each(ids[:1]) * len(ids)
        return self._of_each(ids)

    def _of_each(self, ids: Sequence[int | str]) -> list[int]:
        known = self._numbers
        try:
            return [known[identity] for identity in ids]
        except KeyError:
            for identity in dict.fromkeys(ids):
                if identity not in known:
                    known[identity] = self._number(identity)
            return [known[identity] for identity in ids]

    def _number(self, identity: int | str) -> int:
        spelled = isinstance(identity, str) and len(identity) < _DIGITS and identity.strip().lstrip("-").isdecimal()
        label = int(identity) if spelled else identity
        number = self._numbers.get(label)
        if number is None:
            number = self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return number


class _Roles:
    """Sorts events by role, in the order of the file; those of unknown work aside."""

    def __init__(self) -> None:
        self.events: dict[str, list[Any]] = {role: [] for role in ROLES.values()}
        self.of_category: dict[str, list[Any]] = {}
        """The list for the events of each category; categories of one role share it."""

    def sort(self, events: list[Any], types: Kinds) -> tuple[list[Any], set[tuple[str, str]]]:
        """Sort complete events, and return those of the others that are kept, and counters' categories and names."""
        others: list[Any] = []
        counters: set[tuple[str, str]] = set()
        if types.only is not None:
            self.begin(types.only).extend(events)
            return others, counters
        complete: Any = types.event
        counter: Any = types.counter
        # Asking the type takes a fifth of the time that asking events of changing types for a label takes.
        unused: Any = (types.start, types.finish) if not types.any_category else (None, None)
        start, finish = unused
        timed = types.start, types.finish, types.instant
        of_category = self.of_category
        for event in events:
            kind = type(event)
            if kind is complete:
                try:
                    of_category[event.cat].append(event)
                except KeyError:
                    self.begin(event.cat).append(event)
            elif kind is start or kind is finish:
                continue
            elif event.label in _KEPT:
                if kind in timed:
                    others.append(event)
            elif kind is counter:
                counters.add((event.label, event.name))
        return others, counters

    def begin(self, category: str) -> list[Any]:
        """Return the list for events of a category of which this is the first one."""
        role = ROLES.get(category.lower())
        members = self.of_category[category] = [] if role is None else self.events[role]
        return members

    @property
    def unknown(self) -> Counter[str]:
        """How many events of each unknown category ran on a stream."""
        others = [category for category in self.of_category if category not in USUAL]
        unknown = [category for category in others if category.lower() not in ROLES.keys() | LEFT_OUT]
        return Counter(
            event.cat for category in unknown for event in self.of_category[category] if event.args.stream is not None
        )


def _sizes(args: Iterable[Any]) -> list[int]:
    """Return how many bytes operations copied, ABSENT where that is not known."""
    sizes = [arg.size for arg in args]
    if str in set(map(type, sizes)):
        known = map(quantity, sizes)
        return [ABSENT if size is None else int(size) for size in known]
    return sizes


def _append(column: array[Any], values: Sequence[float]) -> None:
    """Append the values to an array, in a third of the time that `array.fromlist` takes."""
    column.frombytes(pack(f"{len(values)}{column.typecode}", *values))


class Columns:
    """The columns of all events, filled by one call of :meth:`fold` for each piece of the file."""

    def __init__(self) -> None:
        self.events = 0
        self._weight = 0
        self.types = kinds(WHOLE, all_args=False, any_category=False)
        """How the events so far were read."""
        self.narrow: Kinds | None = None
        """How the next pieces are read first, if the last ones were alike."""
        self._run = Run()
        self.names = _numbering()
        self.threads = _Threads()
        self.streams = _Threads()
        self.processes = _Threads()
        self.inputs = _numbering()
        self.inputs[_NO_INPUTS]
        self.shapes = _numbering()
        self.shapes[_NO_SHAPE]
        self.ops, self.annotations, self.frames, self.overheads = Ranges(), Ranges(), Ranges(), Ranges()
        self.calls, self.gpu, self.gpu_annotations = Calls(), GpuOps(), GpuRanges()
        self.arrows, self.allocations = Arrows(), Allocations()
        self.unended = 0
        self.unknown: Counter[str] = Counter()
        self.samples_hardware = False
        self._parts: dict[str, Ranges | Calls | GpuOps | GpuRanges] = {
            RANGE: self.ops,
            NOTE: self.annotations,
            FRAME: self.frames,
            OWN: self.overheads,
            CALL: self.calls,
            GPU_NOTE: self.gpu_annotations,
            **dict.fromkeys(GPU, self.gpu),
        }
        self.collectives: dict[int, Message] = {}
        self.annotated: dict[int, Annotation] = {}
        self.parameters: dict[int, Message] = {}

    @property
    def empty(self) -> bool:
        """Whether no event so far is in a column."""
        return not any(len(part) for part in self._parts.values())

    def fold(self, events: list[Any], types: Kinds, stamps: str) -> None:
        """Append the events' columns; TooFineError if their time stamps need the exact types."""
        roles = _Roles()
        others, counters = roles.sort(events, types)
        # All times first: a piece is folded whole or, when its times turn out too fine, not at all.
        times = {role: times_ns(members, stamps) for role, members in roles.events.items() if members}
        moments = in_ns([event.ts for event in others], stamps)
        if others:
            self._fold_others(others, moments, types)
        self.count(len(events))
        if types.any_category and (unknown := roles.unknown):
            self.unknown += unknown
        self.samples_hardware |= _SAMPLES in roles.of_category or any(map(_is_of_hardware, counters))
        known = len(self.names), len(self.inputs)
        for role, (start, end) in times.items():
            part = self._parts[role]
            # The usual types refuse what has no end.
            if (types.any_category or stamps == EXACT) and (unended := sum(map(gt, start, end))):
                self.unended += unended if isinstance(part, GpuOps) else 0
                end = list(map(max, start, end))  # noqa: PLW2901
            part.start.extend(start)
            part.end.extend(end)
            names, members = self.names, roles.events[role]
            part.name.extend([names[event.name] for event in members])
            self._arguments(part, role, members, types)
        self._weigh(known)
        if types is not self.narrow and not types.any_category:
            self._run = self._run.with_piece(roles.of_category, len(events))
            if self._run.is_complete:
                self.narrow = narrowed(types, self._run)

    def _arguments(
        self, part: Ranges | Calls | GpuOps | GpuRanges, role: str, members: list[Any], types: Kinds
    ) -> None:
        """Append the threads or streams of events of one kind, and their other fields besides names and times."""
        if isinstance(part, GpuOps):
            self._gpu(part, role, members, types)
        elif isinstance(part, GpuRanges):
            part.process.extend([event.pid for event in members])
            part.stream.extend([event.tid if event.args.stream is None else event.args.stream for event in members])
        else:
            ids = [event.tid for event in members] if types.only_thread is None else [types.only_thread] * len(members)
            part.thread.extend(self.threads.numbers(ids))
            if isinstance(part, Ranges):
                self._operands(part, role, members, types)
            else:
                part.correlation.extend([event.args.correlation for event in members])

    def count(self, events: int) -> None:
        """Count the events; RefusedError if there are more than any recording has."""
        self.events += events
        if self.events > EVENTS:
            raise too_large(Excess.EVENTS, EVENTS)

    def _weigh(self, known: tuple[int, int]) -> None:
        """Refuse more distinct names and operands than a program has; the ``known`` first ones were weighed before."""
        for numbers, before in zip((self.names, self.inputs), known, strict=True):
            self._weight += sum(map(getsizeof, islice(reversed(numbers), len(numbers) - before)))
        if self._weight > DISTINCT:
            raise too_large(Excess.DISTINCT, DISTINCT // MIB)

    def _fold_others(self, events: list[Any], moments: list[int], types: Kinds) -> None:
        """Append arrows from forward to backward, and allocations."""
        start: Any = types.start
        instant: Any = types.instant
        arrows, allocations = self.arrows, self.allocations
        threads = self.threads.numbers([event.tid for event in events])
        for event, moment, thread in zip(events, moments, threads, strict=True):
            if type(event) is instant:
                allocations.moment.append(moment)
                allocations.thread.append(thread)
                allocations.size.append(event.args.size)
                allocations.device_type.append(event.args.device_type)
            else:
                ends = arrows.starts if type(event) is start else arrows.finishes
                ends[event.id] = (thread, moment)

    def _operands(self, part: Ranges, role: str, events: list[Any], types: Kinds) -> None:
        """Append the operands of operators and annotations, and the messages of collectives."""
        if role not in (RANGE, NOTE):
            return
        args, first = [event.args for event in events], len(part.inputs)
        part.inputs.extend(self._inputs(part.name[first:], args))
        if role == RANGE:
            _append(part.external, [arg.external for arg in args])
            if types.all_args and PARAMETERS in self.names:
                self.parameters |= messages_of(args, first)

    def _inputs(self, names: list[int], args: list[Any]) -> list[int]:
        """Return the numbers of the operands, to which for some names the settings belong."""
        inputs, joined = self.inputs, b",".join
        # To join nothing takes as long as to join operands, which a suite's rule mostly leaves unrecorded.
        if all(arg.dims is NULL and arg.types is NULL and arg.strides is NULL for arg in args):
            numbers = [inputs[_NO_INPUTS]] * len(args)
        else:
            numbers = [inputs[joined((arg.dims, arg.types, arg.strides))] for arg in args]
        # The settings of most operators differ from call to call, and say nothing about the work.
        for index in where(names, {self.names[name] for name in WITH_SETTINGS & self.names.keys()}):
            arg = args[index]
            numbers[index] = inputs[joined((arg.dims, arg.types, arg.strides, arg.settings))]
        return numbers

    def _gpu(self, gpu: GpuOps, role: str, events: list[Any], types: Kinds) -> None:
        first = len(gpu.kind)
        args = [event.args for event in events]
        gpu.kind.extend([GPU[role]] * len(events))
        gpu.process.extend(self.processes.numbers([event.pid for event in events]))
        streams = [event.tid if arg.stream is None else arg.stream for event, arg in zip(events, args, strict=True)]
        if types.all_args:
            streams = [stream if arg.ran_on is None else arg.ran_on for stream, arg in zip(streams, args, strict=True)]
        gpu.stream.extend(self.streams.numbers(streams))
        gpu.correlation.extend([arg.correlation for arg in args])
        _append(gpu.external, [arg.external for arg in args])
        _append(gpu.blocks_per_sm, [arg.blocks_per_sm for arg in args])
        _append(gpu.occupancy, [arg.occupancy for arg in args])
        gpu.size.extend(_sizes(args))
        shapes, joined = self.shapes, b"\0".join
        numbers = [shapes[joined((arg.grid, arg.block, arg.registers, arg.shared))] for arg in args]
        if any(numbers):
            known = [number if number <= _MOST_SHAPES else 0 for number in numbers]
            _append(gpu.shape, [0] * (first - len(gpu.shape)) + known)
        if types.all_args:
            gpu.graph.extend([arg.graph for arg in args])
            gpu.node.extend([arg.node for arg in args])
            self.annotated |= annotations_of(args, first)
            self.collectives |= messages_of(args, first)
        else:
            gpu.graph.extend([0] * len(args))
            gpu.node.extend([0] * len(args))

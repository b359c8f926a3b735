"""The events of a trace file: decoded by msgspec without unused fields, and collected into columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from itertools import count, islice, repeat
from operator import add
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import msgspec
from msgspec import Struct, defstruct

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import Excess
from pytest_torchprof.recording.bounds import DISTINCT, EVENTS, MIB, too_large
from pytest_torchprof.recording.event_args import (
    NULL,
    AllArgs,
    Allocation,
    FewArgs,
    Fraction,
    Whole,
    annotations_of,
    messages_of,
    quantity,
)
from pytest_torchprof.recording.stamps import EXACT, WHOLE, in_ns, times_ns
from pytest_torchprof.trace.columns import (
    ABSENT,
    KERNEL,
    MEMCPY,
    MEMSET,
    PARAMETERS,
    WITH_SETTINGS,
    Allocations,
    Arrows,
    Calls,
    GpuOps,
    GpuRanges,
    Message,
    Ranges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.trace.graph_annotations import Annotation


class Kinds(NamedTuple):
    """The types of events for one way of reading time stamps; decoders of a list of events and of a single one."""

    stamps: str
    all_args: bool
    """Whether graphs and collectives are read; without it, decoding them is an error."""
    any_category: bool
    """Whether events of any category are read; without it, decoding one that is not `_USUAL` is an error."""
    event: type[Struct]
    other: type[Struct]
    """Any event that is not complete; its ``label`` is the name of an instant, and the category of other events."""
    start: type[Struct]
    """The start of an arrow."""
    finish: type[Struct]
    instant: type[Struct]
    counter: type[Struct]
    events: msgspec.json.Decoder[list[Any]]
    single: msgspec.json.Decoder[Any]


RANGE, NOTE, FRAME, CALL, OWN, GPU_NOTE = "range", "note", "frame", "call", "own", "GPU note"
GPU = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
"""The kinds of GPU operations, by role."""
FORWARD_BACKWARD, MEMORY = "fwdbwd", "[memory]"
"""The category of arrows from an operator to its backward, and the name of allocations."""
ROLES = {
    "cpu_op": RANGE,
    "operator": RANGE,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "xpu_runtime": CALL,
    "xpu_driver": CALL,
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "overhead": OWN,
    "gpu_user_annotation": GPU_NOTE,
}
"""The roles of complete events by category; in the oldest files some categories begin with a capital."""
_LEFT_OUT = {
    *("cuda_sync", "cuda_event", "cuda_profiler_range", "external_correlation", "trace"),
    *("cpu_instant_event", "collective_comm", "gpu_pm_counter", "xpu_sync", "glow_runtime"),
    # torch 2.15's own profiler (CuspyConfig): nodes of graphs that run on the CPU, or only record an event.
    *("graph_host_node", "graph_event_node", "hardware_counters"),
}
"""Categories of kineto that are not the GPU's work, although some name a stream (kineto's ActivityType.cpp)."""

_USUAL = frozenset((*ROLES, *_LEFT_OUT, *map(str.capitalize, (*ROLES, *_LEFT_OUT))))
"""The categories of which msgspec makes no text: it returns the one that stands here, for each event the same."""
_LAUNCH_ARROWS = ("ac2g", "async", "async_cpu_to_gpu", "async_gpu")
"""Categories of arrows from a launch to its work, which nothing uses: correlation ids say the same."""

# The phases of Chrome's trace format; of these kineto writes s, t, f (arrows), i (instants), M (names), C (counters).
_PHASES = "stfiMCIBEbenNODPRcVv()pFTS"


@cache
def kinds(stamps: str, *, all_args: bool, any_category: bool) -> Kinds:
    """Return the event types for this way of reading time stamps; exact time stamps take three times as long."""
    stamp, args = _stamp(stamps), AllArgs if all_args else FewArgs
    category: Any = str if any_category else Literal[*_USUAL]
    event = defstruct(
        "Event",
        [
            *(("cat", category), ("name", str), ("pid", _IDENTITY), ("tid", _IDENTITY)),
            *(("ts", stamp), ("dur", stamp), ("args", args, args())),
        ],
        tag_field="ph",
        tag="X",
        gc=False,
    )
    others = _others(stamps, any_category=any_category)
    union: Any = Union[event, *others.values()]
    decoders = msgspec.json.Decoder(list[union]), msgspec.json.Decoder(union)
    other, start, finish, instant, counter = (others[phase] for phase in "MsfiC")
    return Kinds(stamps, all_args, any_category, event, other, start, finish, instant, counter, *decoders)


_IDENTITY: Any = Whole | str


def _stamp(stamps: str) -> Any:
    if stamps == EXACT:
        from decimal import Decimal  # noqa: PLC0415 - few files need it

        return Decimal
    return Whole if stamps == WHOLE else Whole | Fraction


@cache
def _others(stamps: str, *, any_category: bool) -> Mapping[str, type[Struct]]:
    """Return the types of events that are not complete, by phase."""
    stamp, identity = _stamp(stamps), _IDENTITY
    label: Any = ("label", str, "")
    arrow = [label, ("id", identity, 0), ("tid", identity, ""), ("ts", stamp, 0)]
    if not any_category:
        # Three of ten events are such arrows.
        arrow = [("label", Literal[_LAUNCH_ARROWS], "")]
    instant = [label, ("tid", identity, ""), ("ts", stamp, 0), ("args", Allocation, Allocation())]
    more = {"s": arrow, "f": arrow, "i": instant, "C": [label, ("name", str, "")]}
    return {
        phase: defstruct(
            f"Event_{ord(phase)}",
            more.get(phase, [label]),
            rename={"label": "name" if phase == "i" else "cat"},
            tag_field="ph",
            tag=phase,
            gc=False,
        )
        for phase in _PHASES
    }


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

    def begin(self, category: str) -> list[Any]:
        """Return the list for events of a category of which this is the first one."""
        role = ROLES.get(category.lower())
        members = self.of_category[category] = [] if role is None else self.events[role]
        return members

    @property
    def unknown(self) -> Counter[str]:
        """How many events of each unknown category ran on a stream."""
        others = [category for category in self.of_category if category not in _USUAL]
        unknown = [category for category in others if category.lower() not in ROLES.keys() | _LEFT_OUT]
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


class Columns:
    """The columns of all events, filled by one call of :meth:`fold` for each piece of the file."""

    def __init__(self) -> None:
        self.events = 0
        self._weight = 0
        self.types = kinds(WHOLE, all_args=False, any_category=False)
        """How the events so far were read."""
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
        complete: Any = types.event
        counter: Any = types.counter
        roles, others, counters = _Roles(), [], set()
        of_category = roles.of_category
        for event in events:
            kind = type(event)
            if kind is complete:
                try:
                    of_category[event.cat].append(event)
                except KeyError:
                    roles.begin(event.cat).append(event)
            elif event.label in _KEPT:
                others.append(event)
            elif kind is counter:
                counters.add((event.label, event.name))
        # All times first: a piece is folded whole or, when its times turn out too fine, not at all.
        times = {role: times_ns(members, stamps) for role, members in roles.events.items() if members}
        if others:
            self._fold_others(others, types, stamps)
        self.count(len(events))
        if unknown := roles.unknown:
            self.unknown += unknown
        self.samples_hardware |= _SAMPLES in of_category or any(map(_is_of_hardware, counters))
        known = len(self.names), len(self.inputs)
        for role, (start, took) in times.items():
            part = self._parts[role]
            if min(took) < 0:
                self.unended += sum(map((0).__gt__, took)) if isinstance(part, GpuOps) else 0
                took = list(map(max, took, repeat(0)))  # noqa: PLW2901 - it has no end
            part.start.extend(start)
            part.end.extend(map(add, start, took))
            names, members = self.names, roles.events[role]
            part.name.extend([names[event.name] for event in members])
            self._arguments(part, role, members, types)
        self._weigh(known)

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
            part.thread.extend(self.threads.numbers([event.tid for event in members]))
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

    def _fold_others(self, events: list[Any], types: Kinds, stamps: str) -> None:
        """Append arrows from forward to backward, and allocations."""
        start: Any = types.start
        finish: Any = types.finish
        instant: Any = types.instant
        # First all that can fail, as above.
        kept = [event for event in events if type(event) in (start, finish, instant)]
        moments = in_ns([event.ts for event in kept], stamps)
        arrows, allocations = self.arrows, self.allocations
        threads = self.threads.numbers([event.tid for event in kept])
        for event, moment, thread in zip(kept, moments, threads, strict=True):
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
        inputs, joined, args, first = self.inputs, b",".join, [event.args for event in events], len(part.inputs)
        without = inputs[_NO_INPUTS]
        # The settings of most operators differ from call to call, and say nothing about the work.
        part.inputs.extend(
            [
                inputs[joined((arg.dims, arg.types, arg.strides, arg.settings))]
                if event.name in WITH_SETTINGS
                # To join nothing takes as long as to join operands, which a suite's rule mostly leaves unrecorded.
                else without
                if arg.dims is arg.types is arg.strides is NULL
                else inputs[joined((arg.dims, arg.types, arg.strides))]
                for event, arg in zip(events, args, strict=True)
            ]
        )
        if role == RANGE:
            part.external.fromlist([arg.external for arg in args])
            if types.all_args and PARAMETERS in self.names:
                self.parameters |= messages_of(args, first)

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
        gpu.external.fromlist([arg.external for arg in args])
        gpu.blocks_per_sm.fromlist([arg.blocks_per_sm for arg in args])
        gpu.occupancy.fromlist([arg.occupancy for arg in args])
        gpu.size.extend(_sizes(args))
        shapes, joined = self.shapes, b"\0".join
        numbers = [shapes[joined((arg.grid, arg.block, arg.registers, arg.shared))] for arg in args]
        if any(numbers):
            known = [number if number <= _MOST_SHAPES else 0 for number in numbers]
            gpu.shape.fromlist([0] * (first - len(gpu.shape)) + known)
        if types.all_args:
            gpu.graph.extend([arg.graph for arg in args])
            gpu.node.extend([arg.node for arg in args])
            self.annotated |= annotations_of(args, first)
            self.collectives |= messages_of(args, first)
        else:
            gpu.graph.extend([0] * len(args))
            gpu.node.extend([0] * len(args))

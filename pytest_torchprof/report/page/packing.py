"""A recording as compact columns, from which the page draws its timeline and its flame graph.

The bytes are the length of a header, the header as JSON, and the columns that it lists. A column of whole numbers comes
as planes: the lowest byte of each number, then the next higher byte of each, because that compresses well.
"""

from __future__ import annotations

from array import array
from collections import Counter
from functools import cached_property
from itertools import chain
from math import gcd
from operator import sub
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.lanes import ON_GPU, LaneKind, lanes_of
from pytest_torchprof.analysis.stacks import stack_kinds, stacks_of
from pytest_torchprof.analysis.waits import waiting_copies
from pytest_torchprof.report.page.document import as_json
from pytest_torchprof.report.page.facts import Facts
from pytest_torchprof.report.page.header import FlameTree, Header, LaneOnPage, Mark, MemoryChart, StepOnPage
from pytest_torchprof.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.lanes import Lane
    from pytest_torchprof.findings.events import Events
    from pytest_torchprof.report.page.header import Widths
    from pytest_torchprof.trace import Trace

_LONGEST_NAME = 10_000
_LARGEST: Final = 2**53 - 1
"""The largest integer that the page's numbers hold exactly."""
_EARLIEST_NS, _LATEST_NS = 3600 * 10**9, 2**62
_DEVICE_TYPES: Final = {0: "CPU"}
"""The CPU's number among c10's types of devices; all others are GPUs."""


def pack(analysis: Analysis, marks: Sequence[Events | None] = ()) -> bytes:
    """Return all slices of a recording as bytes, which are the same for the same recording.

    ``marks`` are events that the page can show by their places in this list.
    """
    packing = _Packing(analysis)
    header = as_json(packing.header(marks))
    return b"".join([len(header).to_bytes(4, "little"), header, *packing.planes])


class _Packing:
    """The columns as they come, and what the header says of them."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._trace = trace = analysis.trace
        self._facts = Facts(analysis)
        self.planes: list[bytes] = []
        self._lanes = lanes_of(analysis)
        self._untimed = 0
        self._start_ns, self._unit_ns = self._clock()
        self._number_of_call = self._numbers_of([LaneKind.CALLS], len(trace.calls))
        self._number_of_op = self._numbers_of([LaneKind.OPERATORS], len(trace.ops))
        self._name_numbers = _by_frequency(chain.from_iterable(part.name for part in _all_parts(trace)))
        self._texts = {trace.names[name]: number for name, number in self._name_numbers.items()}

    def header(self, marks: Sequence[Events | None]) -> Header:
        """Pack all columns and return the header, which says how to read them."""
        lanes = [self._lane(lane) for lane in self._lanes]
        memory, flames, marked = self._memory(), self._flames(), [self._mark(events) for events in marks]
        return Header(
            version=1,
            origin_ns=self._start_ns,
            unit_ns=self._unit_ns,
            steps=self._steps(),
            worst=self._facts.worst_step,
            lanes=lanes,
            memory=memory,
            flames=flames,
            marks=marked,
            names=[_shown(name) for name in self._texts],
            inputs=self._facts.inputs,
            origins=self._facts.origins,
            variants=self._facts.variants,
            shapes=self._facts.shapes,
            left_out=self._left_out(),
        )

    def _clock(self) -> tuple[int, int]:
        """Return when the first event began, and the largest unit in which all times are whole."""
        trace = self._trace
        first = min((min(part.start) for part in _cpu_parts(trace) if len(part)), default=0)
        usable = [start for start in trace.gpu.start if first - _EARLIEST_NS <= start < _LATEST_NS]
        if first:
            self._untimed = len(trace.gpu) - len(usable)
        else:
            usable = list(trace.gpu.start)
        origin = min(first or min(usable, default=0), min(usable, default=first))
        # Of the times themselves: where a time has a fraction of a microsecond, so has its distance from the first.
        unit = origin
        for times in (times for part in _all_parts(trace) for times in (part.start, part.end)):
            unit = gcd(unit, *times) if unit != 1 else 1
        return origin, unit or 1

    def _numbers_of(self, kinds: Collection[LaneKind], count: int) -> array[int]:
        """Return the number of each event of these kinds among all slices, from 1 on."""
        numbers = array("q", bytes(8 * (count + 1)))
        first = 1
        for lane in self._lanes:
            if lane.kind in kinds:
                for number, i in enumerate(lane.members, first):
                    numbers[i] = number
            first += len(lane.members)
        return numbers

    def _lane(self, lane: Lane) -> LaneOnPage:
        part, members, unit = lane.columns, lane.members, self._unit_ns
        start, end, since = part.start, part.end, self._start_ns
        times = [max(start[i] - since, 0) // unit for i in members]
        columns: dict[str, Iterable[int]] = {
            "start": map(sub, times, [0, *times[:-1]]),
            "duration": [(end[i] - start[i]) // unit for i in members],
            "name": [self._name_numbers[part.name[i]] for i in members],
            "row": lane.rows,
        }
        if lane.kind in ON_GPU:
            columns |= self._of_gpu(members)
        elif lane.kind is LaneKind.OPERATORS:
            columns |= self._facts.of_operators(members)
        elif lane.kind is LaneKind.CALLS:
            columns["waits"] = [i in self._waits for i in members]
        return LaneOnPage(
            kind=lane.kind.value,
            title=_shown(lane.title),
            subtitle=_shown(lane.subtitle),
            slices=len(members),
            rows=max(lane.rows) + 1,
            columns=self._added(columns),
        )

    @cached_property
    def _waits(self) -> frozenset[int]:
        """The calls in which the CPU waits for the GPU: those that block, and copies that come back when done."""
        trace = self._trace
        copies = waiting_copies(trace, range(len(trace.gpu)))
        return frozenset({*trace.blocking, *(trace.links.call_of[i] for i in copies)} - {trace.flush})

    def _mark(self, events: Events | None) -> Mark:
        """Pack the numbers of slices, and the times that have no slice; gaps are in order of time."""
        trace, unit = self._trace, self._unit_ns
        if events is None:
            return Mark(slices=0, gaps=0, chains=())
        on_gpu = self._number_of_gpu_op
        ranges = self._numbers_of([LaneKind.RANGES], len(trace.annotations)) if events.annotations else ()
        own = self._numbers_of([LaneKind.PROFILER], len(trace.overheads)) if events.overheads else ()
        slices = [
            *(on_gpu[i] for i in events.gpu_ops),
            *(self._number_of_call[i] for i in events.calls),
            *(self._number_of_op[i] for i in events.ops),
            *(ranges[i] for i in events.annotations),
            *(own[i] for i in events.overheads),
        ]
        gaps = sorted(events.gaps)
        starts = [max(start - self._start_ns, 0) // unit for start, _, _ in gaps]
        return Mark(
            slices=len(slices),
            columns=self._added({"slice": _zigzag_deltas(slices)}),
            gaps=len(gaps),
            gap_columns=self._added(
                {
                    "start": map(sub, starts, [0, *starts[:-1]]),
                    "length": [(end - start) // unit for start, end, _ in gaps],
                    "beside": _zigzag_deltas([on_gpu[gpu_op] for _, _, gpu_op in gaps]),
                }
            ),
            chains=events.chains,
        )

    @cached_property
    def _number_of_gpu_op(self) -> array[int]:
        return self._numbers_of(ON_GPU, len(self._trace.gpu))

    def _of_gpu(self, members: Sequence[int]) -> dict[str, Iterable[int]]:
        call_of, op_of = self._trace.links.call_of, self._analysis.launching.op_of
        # The last element of each is 0, which stands for no event.
        calls = [self._number_of_call[call_of[i]] for i in members]
        ops = [self._number_of_op[op_of[i]] for i in members]
        return {"call": _zigzag_deltas(calls), "op": _zigzag_deltas(ops), **self._facts.of_gpu_ops(members)}

    def _added(self, columns: dict[str, Iterable[int]]) -> Widths:
        """Append the planes of columns."""
        widths = []
        for name, values in columns.items():
            numbers = _unsigned(list(values))
            width = (max(numbers, default=0).bit_length() + 7) // 8
            raw = numbers.tobytes()
            self.planes += [raw[plane::8] for plane in range(width)]
            widths.append((name, width))
        return widths

    def _steps(self) -> list[StepOnPage]:
        rows = []
        for step, part in zip(self._trace.steps, self._analysis.launching.parts, strict=True):
            gpu = self._trace.gpu
            starts, ends = [gpu.start[i] for i in part.gpu_ops], [gpu.end[i] for i in part.gpu_ops]
            rows.append(
                StepOnPage(
                    name=None if step.name is None else _shown(step.name),
                    start_ns=step.start_ns - self._start_ns,
                    end_ns=step.end_ns - self._start_ns,
                    until_ns=max([step.end_ns, *ends]) - self._start_ns,
                    gpu_ops=len(starts),
                    gpu_ns=sum(map(sub, ends, starts)),
                )
            )
        return rows

    def _memory(self) -> list[MemoryChart]:
        """Return how much memory was in use, by kind of device, since the recording began."""
        allocations, charts = self._trace.allocations, []
        for device in sorted(set(allocations.device_type)):
            points = sorted(
                (max(allocations.moment[i] - self._start_ns, 0), allocations.size[i])
                for i, kind in enumerate(allocations.device_type)
                if kind == device
            )
            times = [time for time, _ in points]
            columns: dict[str, Iterable[int]] = {
                "time": map(sub, times, [0, *times[:-1]]),
                "size": map(_zigzag, (size for _, size in points)),
            }
            title = f"{_DEVICE_TYPES.get(device, 'GPU')} memory"
            charts.append(MemoryChart(title=title, points=len(points), columns=self._added(columns)))
        return charts

    def _flames(self) -> list[FlameTree]:
        trees = []
        for kind in stack_kinds(self._trace):
            tree = stacks_of(self._analysis, kind)
            if not tree.names:
                continue
            columns: dict[str, Iterable[int]] = {
                "name": [self._texts.setdefault(name, len(self._texts)) for name in tree.names],
                "parent": [parent + 1 for parent in tree.parent],
                # What overlaps its holder's end makes the holder's own time less than nothing.
                "cpu": map(_zigzag, tree.cpu_ns),
                "gpu": tree.gpu_ns,
                "calls": tree.calls,
            }
            trees.append(FlameTree(kind=kind.value, nodes=len(tree.names), columns=self._added(columns)))
        return trees

    def _left_out(self) -> str:
        untimed = f"{counted(self._untimed, 'GPU operation')} without a usable time: drawn where the recording begins"
        return untimed if self._untimed else ""


def _all_parts(trace: Trace) -> tuple[Any, ...]:
    return *_cpu_parts(trace), trace.gpu_annotations, trace.gpu


def _cpu_parts(trace: Trace) -> tuple[Any, ...]:
    return trace.annotations, trace.frames, trace.ops, trace.calls, trace.overheads


def _by_frequency(names: Iterable[int]) -> dict[int, int]:
    """Return a new number for each, the smallest for the most frequent."""
    return {name: number for number, (name, _) in enumerate(Counter(names).most_common())}


def _unsigned(values: Sequence[int]) -> array[int]:
    if values and max(values) > _LARGEST:
        values = [min(value, _LARGEST) for value in values]
    return array("Q", values)


def _zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -2 * value - 1


def _zigzag_deltas(values: Sequence[int]) -> Iterable[int]:
    return map(_zigzag, map(sub, values, [0, *values[:-1]]))


def _shown(text: str) -> str:
    """Return a name in which characters that are invisible or change the direction of text are made visible."""
    cut = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}... ({len(text):,} characters)"
    return printable(cut)

"""Which collectives a recording holds: operators that ask for them, and the kernels or ranges that carry them out."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.analysis.collectives import (
    Collective,
    Overlap,
    StepCommunication,
    communication_of,
)
from pytest_torchprof.analysis.messages import ProcessGroup, Sent, elements, group_of, groups_of, is_dtype, sent_by
from pytest_torchprof.analysis.ranges import HeldOperators
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.names.communication import collective_of
from pytest_torchprof.reasons.collectives import Gap
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import ABSENT, COLLECTIVES, PARAMETERS, RECEIVE, SEND, where
from pytest_torchprof.trace.links import captures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.analysis.operator_inputs import Inputs
    from pytest_torchprof.analysis.ranges import Occurrence
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.columns import Message

BACKENDS_ON_CPU: Final = ("gloo", "mpi", "ucc")
"""Backends that mark with a range of their own, on whichever thread, when they worked."""
_ON_CPU_AS: Final = {"reduce_scatter": "all_reduce"}
"""The collectives that gloo replaces by others."""
_FUNCTIONAL: Final = ("_c10d_functional::", "_c10d_functional_autograd::", "c10d_functional::")
_OF_OPERANDS: Final = ("aten::clone", "aten::chunk")
"""The operators that functional collectives of several tensors call for each tensor."""
_NO_OPERANDS: Final = (None, None, None)


class Communication:
    """The collectives of a recording's steps, each looked up once, when asked for."""

    def __init__(self, trace: Trace, launching: Launching, kernels: frozenset[int]) -> None:
        """Take the trace and its communication kernels."""
        self._trace, self._launching, self._kernels = trace, launching, kernels
        self.overlap: Final = Overlap(trace, launching, kernels)
        """When each device computed, which hides communication."""

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives of all steps in the order in which they were asked for, or launched."""
        return tuple(request.collective for request in self._requests)

    @cached_property
    def _requests(self) -> tuple[_Request, ...]:
        calls = _Calls(self._trace, self._launching, self._kernels)
        if not (self._kernels or calls.asking):
            return ()
        requests = [*calls.by_operator(self.overlap), *calls.by_kernel(self.overlap)]
        return tuple(sorted(requests, key=lambda request: request.asked_ns))

    @cached_property
    def steps(self) -> tuple[StepCommunication, ...]:
        """The collectives of each step together."""
        of_step: list[list[Collective]] = [[] for _ in self._launching.parts]
        for collective in self.collectives:
            of_step[collective.step].append(collective)
        return tuple(
            communication_of(self._trace, part, self.overlap, collectives)
            for part, collectives in zip(self._launching.parts, of_step, strict=True)
        )

    def within(self, occurrences: Sequence[Occurrence]) -> tuple[StepCommunication, ...]:
        """Return the communication inside each of these ranges."""
        of_op = {request.op: request for request in self._requests if request.op >= 0}
        of_kernel = {request.kernel: request for request in self._requests if request.op < 0}
        held = HeldOperators(self._trace, of_op)
        each = []
        for occurrence in occurrences:
            launched = [of_kernel[i] for i in occurrence.gpu_ops if i in of_kernel]
            inside = sorted(
                [*(of_op[op] for op in held.within(occurrence)), *launched], key=lambda request: request.asked_ns
            )
            collectives = [request.collective for request in inside]
            each.append(communication_of(self._trace, occurrence, self.overlap, collectives))
        return tuple(each)


class _Request(Struct, frozen=True):
    """A collective, and the operator that asked for it, or a kernel if there is none."""

    asked_ns: int
    op: int
    kernel: int
    collective: Collective


class _Calls:
    """The operators of torch.distributed, and what belongs to each."""

    def __init__(self, trace: Trace, launching: Launching, communication: frozenset[int]) -> None:
        self._trace, self._launching = trace, launching
        self._kernels = sorted(communication, key=self._launched_ns)
        self._groups: dict[str, list[ProcessGroup]] = {}

    def _launched_ns(self, kernel: int) -> int:
        """Return when a kernel was launched, or ran where that is not known."""
        call = self._trace.links.call_of[kernel]
        return self._trace.calls.start[call] if call >= 0 else self._trace.gpu.start[kernel]

    @cached_property
    def asking(self) -> list[int]:
        """The operators that ask for a collective, in start order."""
        ops, names = self._trace.ops, self._trace.names
        meant = {i for i, name in enumerate(names) if name in COLLECTIVES}
        # Where nothing links kernels to operators, the kernels alone tell.
        if not meant or (self._kernels and self._trace.attribution == "time"):
            return []
        # What a capture records runs with its graph.
        recorded = captures(self._trace.calls, self._trace.call_kinds)
        operators = [i for i in where(ops.name, meant) if not recorded.cover(0, ops.start[i])]
        return sorted(operators, key=ops.start.__getitem__)

    def _asking_around(self, op: int) -> int:
        """Return the operator around this one, or itself, that asks for a collective; ABSENT if there is none."""
        named = self._trace.ops.name
        return next(
            (outer for outer in self._trace.nesting.chain(op) if self._trace.names[named[outer]] in COLLECTIVES), ABSENT
        )

    @cached_property
    def _parameters(self) -> dict[int, int]:
        """The first operator with a backend's parameters inside each that asks."""
        ops, names = self._trace.ops, self._trace.names
        meant = {i for i, name in enumerate(names) if name == PARAMETERS}
        parameters: dict[int, int] = {}
        for i in sorted(where(ops.name, meant), key=ops.start.__getitem__) if meant else []:
            parameters.setdefault(self._asking_around(i), i)
        return parameters

    @cached_property
    def _inside(self) -> dict[int, int]:
        """The range of NCCL's, an annotation, inside each operator that asks."""
        notes, names = self._trace.annotations, self._trace.names
        meant = {i for i in set(notes.name) if names[i].startswith("nccl:")}
        inside = self._trace.nesting.around_each(notes, where(notes.name, meant)) if meant else {}
        note_of: dict[int, int] = {}
        for note, op in inside.items():
            note_of.setdefault(self._asking_around(op), note)
        return note_of

    @cached_property
    def _ranges(self) -> dict[int, int]:
        """For operators whose backend works on the CPU, its range: a queue serves those of one kind in their order."""
        notes, names, ops = self._trace.annotations, self._trace.names, self._trace.ops
        meant = {i for i in set(notes.name) if names[i].partition(":")[0] in BACKENDS_ON_CPU}
        if not meant:
            return {}
        own = sorted(where(notes.name, meant), key=notes.start.__getitem__)
        done = [collective_of(names[notes.name[note]].partition(":")[2]) for note in own]
        asked = [_ON_CPU_AS.get(self._name(op), self._name(op)) for op in self.asking]
        sizes = [elements(self._operands(notes.inputs[note])) for note in own]
        wanted = [elements(self._operands(ops.inputs[op])) for op in self.asking]
        # Two threads serve the queue, so that ranges may begin in another order; sizes tell them apart.
        by_size = None not in (*sizes, *wanted)
        waiting: dict[tuple[str | None, int | None], deque[int]] = defaultdict(deque)
        for op, sought, size in zip(self.asking, asked, wanted, strict=True):
            waiting[sought, size if by_size else None].append(op)
        range_of: dict[int, int] = {}
        for note, kind, size in zip(own, done, sizes, strict=True):
            queue = waiting[kind, size if by_size else None]
            if queue and ops.start[queue[0]] <= notes.start[note]:
                range_of[queue.popleft()] = note
        return range_of

    @cached_property
    def _kernels_by_operator(self) -> dict[int, list[int]]:
        """The kernels that each operator launched; under ABSENT those that none did."""
        kernels_of: dict[int, list[int]] = defaultdict(list)
        for i in self._kernels:
            kernels_of[self._asking_around(self._launching.op_of[i])].append(i)
        return kernels_of

    @cached_property
    def _batches(self) -> dict[int, list[int]]:
        """By kernel that no operator launched, what it carries out: what its thread asked for and did not run."""
        trace = self._trace
        pending = [
            op
            for op in self.asking
            if op not in self._kernels_by_operator
            and op not in self._ranges
            and self._why_nothing_runs(op, self._sent(op)) is None
        ]
        of_thread: dict[int, deque[int]] = defaultdict(deque)
        for op in pending:
            of_thread[trace.ops.thread[op]].append(op)
        batches: dict[int, list[int]] = {}
        for kernel in self._kernels_by_operator.get(ABSENT, ()):
            call, decoded = trace.links.call_of[kernel], self._launching.decoded(kernel)
            replayed = call >= 0 and trace.call_kinds[trace.calls.name[call]] is CallKind.GRAPH_LAUNCH
            if call < 0 or replayed or decoded.library != "nccl" or kernel in trace.collectives:
                continue
            waiting, own = of_thread[trace.calls.thread[call]], []
            while waiting and trace.ops.start[waiting[0]] < trace.calls.start[call]:
                own.append(waiting.popleft())
            if own and decoded.collective in (None, "send_recv", *map(self._name, own)):
                batches[kernel] = own
        return batches

    def by_operator(self, overlap: Overlap) -> Iterator[_Request]:
        """Yield the collectives that the operators of the steps asked for."""
        trace, kernels_of = self._trace, self._kernels_by_operator
        batch_of = {op: (kernel, len(ops)) for kernel, ops in self._batches.items() for op in ops}
        for op in self.asking:
            step = trace.step_at(trace.ops.start[op]) if trace.has_step_ranges else 0
            if step < 0 or trace.compiling.cover(trace.ops.thread[op], trace.ops.start[op]):
                continue
            kernel, together = batch_of.get(op, (ABSENT, 1))
            kernels = kernels_of.get(op, ()) if kernel < 0 else [kernel]
            message, group, sent = self._message(op), self._group(op), self._sent(op)
            yield _Request(
                trace.ops.start[op],
                op,
                ABSENT,
                Collective(
                    name=self._name(op),
                    operator=self._operator(op),
                    step=step,
                    group=group,
                    sent=sent,
                    asynchronous=self._asynchronous(op),
                    together=together,
                    sequence=self._sequence(op, message),
                    comms_id=None if message is None else message.comms_id,
                    **self._peer_and_tag(op, message, group),
                    why_no_bytes=None if None not in (sent.bytes_in, sent.bytes_out) else Gap.NO_DIMENSIONS,
                    **self._times_of(op, kernels, sent, overlap),
                ),
            )

    def by_kernel(self, overlap: Overlap) -> Iterator[_Request]:
        """Yield the collectives that kernels of the steps carried out without an operator that asked for them."""
        trace = self._trace
        for i in self._kernels_by_operator.get(ABSENT, ()):
            step = trace.step_of_gpu_op[i]
            if step < 0 or i in self._batches:
                continue
            message, decoded = trace.collectives.get(i), self._launching.decoded(i)
            # NCCL does many collectives by sends and receives, and its older kernels are all named so.
            ambiguous = decoded.collective == "send_recv" and message is None
            sent = sent_by(None, _NO_OPERANDS, _NO_OPERANDS, message, None)
            yield _Request(
                self._launched_ns(i),
                ABSENT,
                i,
                Collective(
                    name=None if ambiguous else decoded.collective,
                    operator=None,
                    step=step,
                    group=group_of(message, None, self._groups_of("nccl")),
                    sent=sent,
                    sequence=message.sequence if message is not None and message.sequence >= 0 else None,
                    comms_id=None if message is None else message.comms_id,
                    why_no_bytes=Gap.NO_OPERATOR if sent.bytes_in is None else None,
                    **self._times_of_kernels((i,), overlap),
                ),
            )

    def _times_of(self, op: int, kernels: Sequence[int], sent: Sent, overlap: Overlap) -> dict[str, Any]:
        """Return the times at which the device or the backend carried it out, as fields."""
        if kernels:
            return self._times_of_kernels(kernels, overlap)
        on_gpu = self._trace.device_kind.has_launches
        note = self._ranges.get(op)
        if note is None:
            return {"why_no_time": self._why_nothing_runs(op, sent) or (Gap.NO_KERNEL if on_gpu else Gap.NO_RANGE)}
        notes = self._trace.annotations
        start, end = notes.start[note], notes.end[note]
        hidden = None if on_gpu else overlap.hidden_ns(None, intervals.span(start, end))
        return {"start_ns": start, "dur_ns": end - start, "hidden_ns": hidden}

    def _why_nothing_runs(self, op: int, sent: Sent) -> Gap | None:
        """Return why a backend runs nothing for a request; None if it has to."""
        if self._group(op).size == 1:
            return Gap.ONE_RANK
        return Gap.NOTHING_TO_SEND if self._name(op) != "barrier" and sent.bytes_in == sent.bytes_out == 0 else None

    def _times_of_kernels(self, kernels: Sequence[int], overlap: Overlap) -> dict[str, Any]:
        gpu = self._trace.gpu
        first = min(kernels, key=gpu.start.__getitem__)
        start, end = gpu.start[first], max(gpu.end[i] for i in kernels)
        device = self._trace.device_of[gpu.process[first]]
        return {
            "start_ns": start,
            "dur_ns": end - start,
            "hidden_ns": overlap.hidden_ns(device, intervals.span(start, end)),
            "device": device,
            "stream": self._trace.streams[gpu.stream[first]],
        }

    def _operator(self, op: int) -> str:
        return self._trace.names[self._trace.ops.name[op]]

    def _name(self, op: int) -> str:
        return COLLECTIVES[self._operator(op)]

    def _operands(self, index: int) -> Inputs:
        return self._launching.operands(index)

    def _operands_of(self, op: int) -> tuple[Inputs, Inputs]:
        """Return the operands of the operator, and those of its backend."""
        trace, note = self._trace, self._inside.get(op, self._ranges.get(op))
        backend = _NO_OPERANDS if note is None else self._operands(trace.annotations.inputs[note])
        if note is None and (functional := self._functional_around(op)) >= 0:
            # What nobody has awaited left no range, and the operator's own list of tensors tells no type.
            backend = self._operands(trace.ops.inputs[functional])
            backend = (
                backend if any(map(is_dtype, backend[0] or ())) else self._types_of_copied.get(functional, backend)
            )
        return self._operands(trace.ops.inputs[op]), backend

    def _functional_around(self, op: int) -> int:
        """Return the functional collective around an operator that asks for one; ABSENT if there is none."""
        named, names = self._trace.ops.name, self._trace.names
        around = self._trace.nesting.chain(op)
        return next((outer for outer in around if names[named[outer]].startswith(_FUNCTIONAL)), ABSENT)

    @cached_property
    def _types_of_copied(self) -> dict[int, Inputs]:
        """The types of the tensors that a functional collective of several copies or takes apart first, where alike."""
        ops, names = self._trace.ops, self._trace.names
        meant = {i for i, name in enumerate(names) if name in _OF_OPERANDS}
        types: dict[int, set[str]] = defaultdict(set)
        for i in where(ops.name, meant) if meant else ():
            operand_types = self._operands(ops.inputs[i])[0]
            if operand_types and is_dtype(operand_types[0]) and (functional := self._functional_around(i)) >= 0:
                types[functional].add(operand_types[0])
        return {op: ((dtypes.pop(),), None, None) for op, dtypes in types.items() if len(dtypes) == 1}

    def _sent(self, op: int) -> Sent:
        return sent_by(self._operator(op), *self._operands_of(op), self._message(op), self._group(op).size)

    def _message(self, op: int) -> Message | None:
        parameters = self._parameters.get(op)
        return None if parameters is None else self._trace.parameters.get(parameters)

    def _settings_of_parameters(self, op: int) -> Sequence[Any] | None:
        parameters = self._parameters.get(op)
        return None if parameters is None else self._launching.settings(self._trace.ops.inputs[parameters])

    def _group(self, op: int) -> ProcessGroup:
        note = self._ranges.get(op)
        backend = "" if note is None else self._trace.names[self._trace.annotations.name[note]].partition(":")[0]
        return group_of(self._message(op), self._settings_of_parameters(op), self._groups_of(backend))

    def _groups_of(self, backend: str) -> list[ProcessGroup]:
        if backend not in self._groups:
            self._groups[backend] = groups_of(self._trace, backend)
        return self._groups[backend]

    def _sequence(self, op: int, message: Message | None) -> int | None:
        """Return the collective's number in its group: torch before 2.4 had it among the parameters."""
        if message is not None and message.sequence >= 0:
            return message.sequence
        settings = self._settings_of_parameters(op)
        old = settings is not None and len(settings) >= 8 and str(settings[1]).isdecimal()
        return int(settings[1]) if settings is not None and old else None

    def _peer_and_tag(self, op: int, message: Message | None, group: ProcessGroup) -> dict[str, Any]:
        """Return whom a message is sent to or received from, and its tag."""
        if self._operator(op) not in (SEND, RECEIVE):
            return {}
        given = self._launching.settings(self._trace.ops.inputs[op]) or ()
        index, tag = (int(setting) if str(setting).isdecimal() else None for setting in (*given[2:4], None, None)[:2])
        peer = message.peer if message is not None and message.peer >= 0 else None
        if peer is None and index is not None and group.ranks is not None and index < len(group.ranks):
            # The operator has its index in the group.
            peer = group.ranks[index]
        return {"peer": peer, "tag": tag}

    def _asynchronous(self, op: int) -> bool | None:
        """Return whether the program went on: torch since 2.8 says so, before the timeout."""
        settings = self._launching.settings(self._trace.ops.inputs[op]) or ()
        return {"True": True, "False": False}.get(str(settings[-2])) if len(settings) > 1 else None

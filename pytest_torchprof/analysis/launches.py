"""What launched each kernel, and what name and launch say together; nothing is looked up twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.analysis.parts import forward_operator, step_parts
from pytest_torchprof.analysis.ranges import Occurrence, operators_within
from pytest_torchprof.analysis.source_lines import Origin, Origins, Places, Work
from pytest_torchprof.analysis.validity import unprofiled
from pytest_torchprof.analysis.waits import blocking_calls
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.errors import not_measured
from pytest_torchprof.kernels.kernel import Kernel
from pytest_torchprof.kernels.kernels import Kernels
from pytest_torchprof.kernels.operands import Launch, complete
from pytest_torchprof.trace.columns import ABSENT, KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.selectors import Operator
    from pytest_torchprof.trace import Trace

# Ranges of torch.compile's machinery: a kernel directly inside one was launched by compiled code, by no operator.
_REGIONS = ("Torch-Compiled Region", "CompiledFunction", "TorchDynamo ", "Pregraph bytecode", "AOTDispatcher ")

Inputs = tuple[tuple[str, ...] | None, tuple[Any, ...] | None, tuple[Any, ...] | None]


class Launching:
    """Answers for one recording who launched a GPU operation."""

    def __init__(self, trace: Trace) -> None:
        """Prepare to answer; the work is done when asked."""
        self._trace = trace
        self._chains: dict[int, tuple[str, ...]] = {ABSENT: ()}
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._inputs: dict[int, Inputs] = {}
        self._decoded: dict[object, KernelName] = {}
        self._absent: dict[Operator, str | None] = {}
        self.origins = Origins(trace)
        """Where in the user's code something was done."""

    @cached_property
    def hidden(self) -> str | None:
        """Why kernels of the recording are not to be seen in it, None where all are."""
        return unprofiled(self._trace)

    def refuse_hidden(self) -> None:
        """Raise NotMeasured where kernels ran that are not to be seen: never a smaller number."""
        if self.hidden is not None:
            raise not_measured(self.hidden)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The recording's steps."""
        return step_parts(self._trace)

    @cached_property
    def op_of(self) -> Sequence[int]:
        """For each GPU operation the innermost operator around its launch, ABSENT without one."""
        trace = self._trace
        call_of = trace.links.call_of
        calls = dict.fromkeys(call_of)
        calls.pop(ABSENT, None)
        found = trace.nesting.around_each(trace.calls, calls)
        found[ABSENT] = ABSENT
        return [found[call] for call in call_of]

    def chain(self, op: int) -> tuple[str, ...]:
        """Return the names of the ranges around and including the operator, outermost first."""
        above = []
        while op not in self._chains:
            above.append(op)
            op = self._trace.nesting.parent[op]
        found = self._chains[op]
        for member in reversed(above):
            found = (*found, self._trace.names[self._trace.ops.name[member]])
            found = self._chains[member] = self._same.setdefault(found, found)
        return found

    def op_name(self, op: int) -> str | None:
        """Return the operator's name, None for none and for a region of compiled code."""
        if op < 0:
            return None
        name = self._trace.names[self._trace.ops.name[op]]
        return None if name.startswith(_REGIONS) else name

    def forward_op(self, op: int) -> str | None:
        """Return the operator whose backward the operator belongs to, None for others and where no arrow tells."""
        of = forward_operator(self._trace, op)
        return self._trace.names[self._trace.ops.name[of]] if of >= 0 else None

    def inputs(self, op: int) -> Inputs:
        """Return types, shapes and strides of what the operator was given, each None where it is not recorded."""
        return (None, None, None) if op < 0 else self.operands(self._trace.ops.inputs[op])

    def operands(self, index: int) -> Inputs:
        """Return types, shapes and strides of a set of operands, by its index in ``Trace.inputs``."""
        found = self._inputs.get(index)
        if found is None:
            shapes, types, strides = map(_decode_operands, self._trace.inputs[index].split(b"\0")[:3])
            found = (None if types is None else tuple(map(str, types)), shapes, strides)
            self._inputs[index] = found
        return found

    def settings(self, index: int) -> tuple[Any, ...] | None:
        """Return what was given beside tensors, each in its place as text; None where it is not recorded or kept."""
        told = self._trace.inputs[index].split(b"\0")[3:]
        return _decode_operands(told[0]) if told else None

    def decoded(self, gpu_op: int) -> KernelName:
        """Return what the kernel's name says, completed by its launch."""
        trace, op = self._trace, self.op_of[gpu_op]
        call = trace.links.call_of[gpu_op]
        called = trace.calls.name[call] if call >= 0 else ABSENT
        inputs = trace.ops.inputs[op] if op >= 0 else ABSENT
        told = trace.collectives.get(gpu_op)
        collective = (None, None) if told is None else (told.collective, told.dtype)
        key = (trace.gpu.name[gpu_op], self.chain(op), inputs, called, collective)
        found = self._decoded.get(key)
        if found is None:
            name, call_name = trace.names[trace.gpu.name[gpu_op]], trace.names[called] if called >= 0 else None
            launch = self._launch(op, call_name, collective, self._is_triton(name))
            found = self._decoded[key] = complete(name, launch)
        return found

    def decoded_operator(self, op: int) -> KernelName:
        """Return what an operator's name says where operators are the kernels, completed by what it was given."""
        name = self._trace.names[self._trace.ops.name[op]]
        key = (name, self.chain(op), self._trace.ops.inputs[op])
        found = self._decoded.get(key)
        if found is None:
            found = self._decoded[key] = complete(name, self._launch(op, None, (None, None)))
        return found

    def _is_triton(self, kernel: str) -> bool | None:
        """Return whether the recording says that Triton has made a kernel, None where it tells of none."""
        metadata = self._trace.metadata
        known = None if metadata is None else metadata.triton_kernels
        return None if known is None else kernel in known

    def _launch(
        self, op: int, call: str | None, collective: tuple[str | None, str | None], triton: bool | None = None
    ) -> Launch:
        dtypes, shapes, strides = self.inputs(op)
        return Launch(
            op=self.op_name(op),
            op_chain=self.chain(op),
            dtypes=dtypes,
            shapes=shapes,
            strides=strides,
            call=call,
            collective=collective[0],
            collective_dtype=collective[1],
            triton=triton,
        )

    def kernels(self, part: Part) -> Kernels:
        """Return the part's kernels in launch order."""
        if not self._trace.device_kind.has_launches:
            return Kernels(lambda: map(self._operator, part.operators), len(part.operators))
        kind = self._trace.gpu.kind
        count = sum(kind[i] == KERNEL for i in part.gpu_ops)
        return Kernels(lambda: map(self._kernel, self._kernels_in_order(part)), count)

    def _kernels_in_order(self, part: Part) -> list[int]:
        gpu, call_of, launched = self._trace.gpu, self._trace.links.call_of, self._trace.calls.start

        def moment(i: int) -> tuple[int, int, int]:
            return (launched[call_of[i]] if call_of[i] >= 0 else gpu.start[i], gpu.start[i], i)

        return sorted((i for i in part.gpu_ops if gpu.kind[i] == KERNEL), key=moment)

    def _of_operator(self, op: int) -> dict[str, Any]:
        """Return what a kernel has from the operator that it comes from, its name aside."""
        dtypes, shapes, strides = self.inputs(op)
        return {
            "op_chain": self.chain(op),
            "forward_op": self.forward_op(op),
            "op_dtypes": dtypes,
            "op_shapes": shapes,
            "op_strides": strides,
        }

    def _kernel(self, gpu_op: int) -> Kernel:
        trace, gpu, op = self._trace, self._trace.gpu, self.op_of[gpu_op]
        call, decoded = trace.links.call_of[gpu_op], self.decoded(gpu_op)
        return Kernel(
            name=trace.names[gpu.name[gpu_op]],
            decoded=decoded,
            op=self.op_name(op),
            **self._of_operator(op),
            start_ns=gpu.start[gpu_op],
            dur_ns=gpu.end[gpu_op] - gpu.start[gpu_op],
            device=trace.device_of[gpu.process[gpu_op]],
            stream=trace.streams[gpu.stream[gpu_op]],
            launch=trace.names[trace.calls.name[call]] if call >= 0 else None,
            launch_start_ns=trace.calls.start[call] if call >= 0 else None,
            in_graph=call >= 0 and trace.call_kinds[trace.calls.name[call]] is CallKind.GRAPH_LAUNCH,
            collective=decoded.collective,
        )

    def _operator(self, op: int) -> Kernel:
        """Return an operator that is a kernel where the CPU is the device."""
        trace, name = self._trace, self._trace.names[self._trace.ops.name[op]]
        return Kernel(
            name=name,
            decoded=self.decoded_operator(op),
            op=name,
            **self._of_operator(op),
            start_ns=trace.ops.start[op],
            dur_ns=trace.ops.end[op] - trace.ops.start[op],
            launch_start_ns=trace.ops.start[op],
        )

    def ops(self, part: Part, *, copies: bool = False) -> dict[str, int]:
        """Return how often each operator launched a kernel of the part or enclosed one that did; or a copy or fill.

        One that calls itself again at once, as autocast makes operators do, is one call.
        """
        named = self._trace.ops.name
        return dict(Counter(self._trace.names[named[op]] for op in self.holders(part, copies=copies)))

    def ops_that_ran(self, part: Part) -> dict[str, int]:
        """Return how often each operator ran in the part, whether it launched anything or not, likewise."""
        return dict(Counter(self._trace.names[self._trace.ops.name[op]] for op in self._ran(part)))

    def _ran(self, part: Part) -> list[int]:
        return self._calls({*self._started(part), *self._around(part, copies=True)})

    def no_such_operator(self, asked: Operator) -> str | None:
        """Return that neither the recording nor torch has such an operator; None where one of them has."""
        from pytest_torchprof.kernels.operator_checks import nothing_is  # noqa: PLC0415 - who reads a file needs none

        if asked not in self._absent:
            self._absent[asked] = nothing_is(asked, {self._trace.names[name] for name in set(self._trace.ops.name)})
        return self._absent[asked]

    def _started(self, part: Part) -> list[int]:
        """Return the operators that began in the part; what a compilation ran is left out."""
        trace = self._trace
        start, thread, compiling = trace.ops.start, trace.ops.thread, trace.compiling
        found = list(range(len(trace.ops)))
        if trace.has_step_ranges or isinstance(part, Occurrence):
            spans = [(one.start_ns, one.end_ns) for one in part.ranges]
            found = [op for op in found if any(begin <= start[op] < end for begin, end in spans)]
        if isinstance(part, Occurrence):
            (found,) = operators_within(trace, [part], found)
        return [op for op in found if not compiling.cover(thread[op], start[op])] if compiling else found

    def holders(self, part: Part, *, copies: bool = False) -> list[int]:
        """Return the operators that launched a kernel of the part or enclose one that did, likewise, in start order.

        Where operators are the kernels, those too that only wait for a value.
        """
        return self._calls(self._around(part, copies=copies))

    def _calls(self, ops: Iterable[int]) -> list[int]:
        """Return operators in start order, without those that others of their name call at once."""
        named, parent, start = self._trace.ops.name, self._trace.nesting.parent, self._trace.ops.start
        calls = (op for op in ops if parent[op] < 0 or named[parent[op]] != named[op])
        return sorted(sorted(calls), key=start.__getitem__)

    def _around(self, part: Part, *, copies: bool) -> set[int]:
        trace = self._trace
        if trace.device_kind.has_launches:
            members = {self.op_of[i] for i in part.gpu_ops if copies or trace.gpu.kind[i] == KERNEL}
        else:
            waits = {name for name in set(trace.ops.name) if trace.names[name] in trace.device_kind.waiting_operators}
            waiting = (op for op in self._started(part) if trace.ops.name[op] in waits) if waits else ()
            members = {*part.operators, *waiting}
        seen: set[int] = set()
        for member in members:
            for op in trace.nesting.chain(member):
                if op in seen:
                    break
                seen.add(op)
        return seen

    def places(self, part: Part) -> Places:
        """Return the origins of a part's work; nothing is found, and nothing computed, without recorded stacks."""
        if not self.origins.recorded:
            return Places()
        work: dict[Work, list[Origin | None]] = defaultdict(list)
        for one, origin in self._origins_of(part):
            work[one].append(origin)
        operators: dict[str, Counter[Origin]] = defaultdict(Counter)
        for op in self._ran(part):
            if (origin := self.origins.of_operator(op)) is not None:
                operators[self._trace.names[self._trace.ops.name[op]]][origin] += 1
        return Places(work=work, kernels=self._work(part), operators=operators)

    def order(self, part: Part) -> Counter[tuple[tuple[str, ...], ...]]:
        """Return what each thread launched and waited for, in order, with the operators around it, and its ranges."""
        trace, names, calls, annotations = self._trace, self._trace.names, self._trace.calls, self._trace.annotations
        named, chain = trace.ops.name, trace.nesting.chain
        done = [(call, names[trace.gpu.name[i]]) for i in part.gpu_ops if (call := trace.links.call_of[i]) >= 0]
        done += [(call, names[calls.name[call]]) for call in blocking_calls(trace, part.calls)]
        around = trace.nesting.around_each(trace.calls, {call for call, _ in done})
        found = [
            (calls.thread[call], calls.start[call], (name, *(names[named[op]] for op in chain(around[call]))))
            for call, name in done
        ]
        for i, start in enumerate(annotations.start):
            name = names[annotations.name[i]]
            if any(step.start_ns <= start < step.end_ns and name != step.name for step in part.ranges):
                found.append((annotations.thread[i], start, (name,)))
        threads: dict[int, list[tuple[str, ...]]] = defaultdict(list)
        for thread, _, one in sorted(found):
            threads[thread].append(one)
        return Counter(map(tuple, threads.values()))

    def _work(self, part: Part) -> list[Work]:
        """Return the name and the operator of each of the part's kernels, in launch order."""
        names, gpu = self._trace.names, self._trace.gpu
        if not self._trace.device_kind.has_launches:
            return [(name, name) for name in [names[self._trace.ops.name[op]] for op in part.operators]]
        return [(names[gpu.name[i]], self.op_name(self.op_of[i])) for i in self._kernels_in_order(part)]

    def _origins_of(self, part: Part) -> Iterator[tuple[Work, Origin | None]]:
        trace, names, origins = self._trace, self._trace.names, self.origins
        for op in part.operators:
            name = names[trace.ops.name[op]]
            yield (name, name), origins.of_operator(op)
        for i in part.gpu_ops:
            op = self.op_of[i]
            yield (names[trace.gpu.name[i]], self.op_name(op)), origins.of_call(trace.links.call_of[i], op)
        for call, op in trace.nesting.around_each(trace.calls, blocking_calls(trace, part.calls)).items():
            yield (names[trace.calls.name[call]], self.op_name(op)), origins.of_call(call, op)


def _decode_operands(text: bytes) -> tuple[Any, ...] | None:
    if not text:
        return None
    try:
        value: Sequence[Any] = msgspec.json.decode(text, type=list)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return tuple(value)

"""What launched each kernel, and what name and launch say together; nothing is looked up twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pytest_torchprof.analysis.compilation import is_compiled_code
from pytest_torchprof.analysis.generated import Beside, GeneratedCode, operator_name
from pytest_torchprof.analysis.joined_types import JoinedTypes
from pytest_torchprof.analysis.launch_operators import around_launches, launching_operators
from pytest_torchprof.analysis.operator_calls import OperatorCalls
from pytest_torchprof.analysis.operator_inputs import OperatorInputs, with_lists
from pytest_torchprof.analysis.parts import forward_operator, step_parts
from pytest_torchprof.analysis.source_lines import Origin, Origins, Places, Work, in_code
from pytest_torchprof.analysis.validity import unprofiled
from pytest_torchprof.analysis.waits import blocking_calls
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.kernel import BriefKernel, Kernel, launcher_text
from pytest_torchprof.kernels.kernels import Kernels
from pytest_torchprof.kernels.operand_types import with_code, with_operands
from pytest_torchprof.kernels.operands import CONTRACTING, Launch, complete
from pytest_torchprof.reasons.errors import TorchprofError, not_measured, reason_of
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.trace.columns import ABSENT, KERNEL, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.analysis.operator_inputs import Inputs
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.graph_annotations import Annotation
    from pytest_torchprof.trace.metadata import GeneratedKernel, SourceLine

# Ranges of torch.compile's machinery: a kernel directly inside one was launched by compiled code, by no operator.
REGIONS = ("Torch-Compiled Region", "CompiledFunction", "TorchDynamo ", "Pregraph bytecode", "AOTDispatcher ")

Refusal = TypeVar("Refusal", bound=TorchprofError)


def _annotated(origin: Origin | None, annotation: Annotation | None) -> Origin | None:
    """Return a place with what a graph's node is annotated with, which the launch of the graph does not tell."""
    if annotation is None:
        return origin
    return replace(origin or Origin(), module=annotation.place, backward=annotation.backward)


class Launching:
    """Answers for one recording who launched a GPU operation."""

    def __init__(self, trace: Trace, own_kernels: OwnKernels) -> None:
        """Prepare to answer; the work is done when asked. ``own_kernels``: what users say of theirs."""
        self._trace = trace
        self._own_kernels = own_kernels
        self._chains: list[tuple[str, ...]] = [()]
        self._chain_of: dict[int, int] = {ABSENT: 0}
        self._longer: dict[tuple[int, int], int] = {}
        self._called: dict[int, str | None] = {}
        self._inputs = OperatorInputs(trace)
        self._decoded: dict[object, KernelName] = {}
        self._of_any_size: dict[int, bool] = {}
        self.generated = GeneratedCode(trace)
        """What Inductor's code says of its kernels."""
        self.refused: list[Reason] = []
        """Why questions had no answer, of all that were asked: a test that keeps that to itself does not pass."""
        self._kernels: dict[int, Kernel] = {}
        # Not by a method of this object, which would then hold itself, and the recording with it.
        given = self._inputs.operands
        self._joined = JoinedTypes(lambda: (given(index)[:2] for index in range(len(trace.inputs))))
        self.origins = Origins(trace)
        """Where in the user's code something was done."""

    @cached_property
    def hidden(self) -> Reason | None:
        """Why kernels of the recording are not to be seen in it, None where all are."""
        return unprofiled(self._trace)

    def refuse_hidden(self) -> None:
        """Raise NotMeasured where kernels ran that are not to be seen: never a smaller number."""
        if self.hidden is not None:
            raise self.refusal(not_measured(self.hidden))

    def refusal(self, problem: Refusal) -> Refusal:
        """Return what is to be raised, and note it: whoever asked may catch it."""
        self.refused.append(reason_of(problem))
        return problem

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The recording's steps."""
        return step_parts(self._trace)

    @cached_property
    def op_of(self) -> Sequence[int]:
        """For each GPU operation the innermost operator around its launch, ABSENT without one."""
        return launching_operators(self._trace, self._around)

    @cached_property
    def _around(self) -> Sequence[int]:
        return around_launches(self._trace)

    @cached_property
    def operators(self) -> OperatorCalls:
        """Which operators were called in a part of the recording."""
        return OperatorCalls(self._trace, self.op_of, self._around)

    def chain(self, op: int) -> tuple[str, ...]:
        """Return the names of the ranges around and including the operator, outermost first."""
        return self._chains[self._chain_number(op)]

    def _chain_number(self, op: int) -> int:
        """Return the index of the operator's chain in ``_chains``, which holds each chain once."""
        chain_of = self._chain_of
        if op in chain_of:
            return chain_of[op]
        named, parent, above = self._trace.ops.name, self._trace.nesting.parent, [op]
        while (op := parent[op]) not in chain_of:
            above.append(op)
        number, known = chain_of[op], self._longer
        for member in reversed(above):
            longer = number, named[member]
            if longer not in known:
                known[longer] = len(self._chains)
                self._chains.append((*self._chains[number], self._trace.names[named[member]]))
            number = chain_of[member] = known[longer]
        return number

    def one_of_each_chain(self, gpu_ops: Iterable[int]) -> Iterable[int]:
        """Return one operation for each chain of ranges around their launches, where it is sure and where it is not."""
        op_of, unsure = self.op_of, self._trace.captured.unsure
        return {(self._chain_number(op_of[i]), i in unsure): i for i in gpu_ops}.values()

    def op_name(self, op: int) -> str | None:
        """Return the operator's name, None for none and for a region of compiled code."""
        return None if op < 0 else self._op_names[self._trace.ops.name[op]]

    def op_names(self, gpu_ops: Iterable[int]) -> list[str | None]:
        """Return for each GPU operation the name of the operator that launched it, as `op_name` does."""
        names, named, op_of = self._op_names, self._trace.ops.name, self.op_of
        return [names[named[op]] if (op := op_of[i]) >= 0 else None for i in gpu_ops]

    @cached_property
    def _op_names(self) -> list[str | None]:
        """The names of the recording, without those of regions of compiled code."""
        return [None if name.startswith(REGIONS) else name for name in self._trace.names]

    def called_operator(self, op: int) -> str | None:
        """Return what the program called: the outermost aten operator around an operator, else the operator itself."""
        number = self._chain_number(op)
        if number not in self._called:
            outermost = next((name for name in self._chains[number] if name.startswith("aten::")), None)
            self._called[number] = outermost or self.op_name(op)
        return self._called[number]

    def is_in_graph(self, gpu_op: int) -> bool:
        """Return whether the launch of a CUDA graph launched a GPU operation."""
        trace, call = self._trace, self._trace.links.call_of[gpu_op]
        return call >= 0 and trace.call_kinds[trace.calls.name[call]] is CallKind.GRAPH_LAUNCH

    def launcher(self, gpu_op: int) -> str | None:
        """Return who launched a GPU operation: an operator, or the replay of a graph; None where neither is known."""
        return launcher_text(self.op_name(self.op_of[gpu_op]), in_graph=self.is_in_graph(gpu_op))

    def forward_op(self, op: int) -> str | None:
        """Return the operator whose backward the operator belongs to, None for others and where no arrow tells."""
        of = forward_operator(self._trace, op)
        return self._trace.names[self._trace.ops.name[of]] if of >= 0 else None

    def inputs(self, op: int) -> Inputs:
        """Return types, shapes and strides of what the operator was given, each None where it is not recorded."""
        return (None, None, None) if op < 0 else self.operands(self._trace.ops.inputs[op])

    def operands(self, index: int) -> Inputs:
        """Return types, shapes and strides of a set of operands, by its index in ``Trace.inputs``."""
        return self._inputs.operands(index)

    def settings(self, index: int) -> tuple[Any, ...] | None:
        """Return what was given beside tensors, each in its place as text; None where it is not recorded or kept."""
        return self._inputs.settings(index)

    def named(self, name: int) -> KernelName:
        """Return what a kernel's name, by its index in ``Trace.names``, says by itself, or users say of it."""
        return self._own_kernels.decode(self._trace.names[name])

    def decoded(self, gpu_op: int) -> KernelName:
        """Return what the kernel's name says, completed by its launch."""
        trace, op = self._trace, self.op_of[gpu_op]
        call = trace.links.call_of[gpu_op]
        called = trace.calls.name[call] if call >= 0 else ABSENT
        sure = gpu_op not in trace.captured.unsure
        inputs = trace.ops.inputs[op] if op >= 0 and sure else ABSENT
        message = trace.collectives.get(gpu_op)
        collective = (None, None) if message is None else (message.collective, message.dtype)
        code = self.code(gpu_op)
        given = self._inputs.without_sizes(inputs) if inputs >= 0 and self._is_of_any_size(gpu_op) else inputs
        key = (trace.gpu.name[gpu_op], self._chain_number(op), given, called, collective, code)
        kernel_name = self._decoded.get(key)
        if kernel_name is None:
            name, call_name = trace.names[trace.gpu.name[gpu_op]], trace.names[called] if called >= 0 else None
            launch = self._launch(op if sure else ABSENT, call_name, collective, self._is_triton(name))
            decoded = with_code(complete(name, launch, self._own_kernels.decode), code)
            kernel_name = self._decoded[key] = with_operands(name, decoded, launch)
        return kernel_name

    def _is_of_any_size(self, gpu_op: int) -> bool:
        """Whether sizes of operands add nothing to what the kernel's name says: its family is known, and no product."""
        name = self._trace.gpu.name[gpu_op]
        if name not in self._of_any_size:
            decoded = self.named(name)
            self._of_any_size[name] = decoded.triton is None and decoded.family not in (None, *CONTRACTING)
        return self._of_any_size[name]

    def decoded_operator(self, op: int) -> KernelName:
        """Return what an operator's name says where operators are the kernels, completed by what it was given."""
        name = self._trace.names[self._trace.ops.name[op]]
        code = self.code_of_operator(op)
        lists = self._inputs.lists_of(op)
        key = (name, self._chain_number(op), self._trace.ops.inputs[op], lists, code, op in self._operators_with_masks)
        kernel_name = self._decoded.get(key)
        if kernel_name is None:
            dtypes, shapes, strides = with_lists(self.inputs(op), lists)
            given = {
                "dtypes": dtypes,
                "shapes": shapes,
                "strides": strides,
                "by_mask": op in self._operators_with_masks,
            }
            launch = replace(self._launch(op, None, (None, None)), **given)
            decoded = with_code(complete(name, launch, self._own_kernels.decode), code)
            if decoded.family is None and not decoded.by_word:
                # What it asks torch.distributed for is recorded as operators of their own.
                decoded = replace(decoded, never=decoded.never | {"communication"})
            kernel_name = self._decoded[key] = with_operands(name, decoded, launch)
        return kernel_name

    @cached_property
    def _operators_with_masks(self) -> AbstractSet[int]:
        """The operators that make indices of a mask: its type stands in a list of tensors, which tells none."""
        trace = self._trace
        makes = {i for i, name in enumerate(trace.names) if name == "aten::nonzero"}
        return {trace.nesting.parent[op] for op in where(trace.ops.name, makes)} if makes else set()

    def code(self, gpu_op: int) -> GeneratedKernel | None:
        """Return what Inductor's code says of a kernel, None where the recording does not hold the code."""
        trace, call = self._trace, self._trace.links.call_of[gpu_op]
        if not self.generated or call < 0:
            return None
        names = (trace.names[trace.gpu.name[gpu_op]], self.op_name(self.op_of[gpu_op]))
        return self.generated.of(names, trace.threads[trace.calls.thread[call]], trace.calls.start[call])

    def code_of_operator(self, op: int) -> GeneratedKernel | None:
        """Return what Inductor's code says of an operator that is a kernel where the CPU is the device."""
        trace, ops = self._trace, self._trace.ops
        if not self.generated:
            return None
        return self.generated.of((trace.names[ops.name[op]],), trace.threads[ops.thread[op]], ops.start[op])

    def _lines(self, op: int, code: GeneratedKernel | None) -> Sequence[SourceLine]:
        """Return the lines that generated code tells of a kernel, its own or one of an operator that it calls."""
        if code is not None:
            return code.lines
        if not self.generated or op < 0:
            return ()
        trace, ops, called = self._trace, self._trace.ops, self._called_by_programs
        outer = next((candidate for candidate in trace.nesting.chain(op) if candidate in called), ABSENT)
        if outer < 0:
            return ()
        name, number, count = called[outer]
        line = self.generated.line_of_call(name, number, count, trace.threads[ops.thread[outer]], ops.start[outer])
        return () if line is None else (line,)

    @cached_property
    def _called_by_programs(self) -> dict[int, tuple[str, int, int]]:
        """The operators directly inside compiled code: name, and which of how many of this name there in order."""
        trace, ops = self._trace, self._trace.ops
        compiled = {i for i, name in enumerate(trace.names) if is_compiled_code(name)}
        same: dict[tuple[int, str], list[int]] = defaultdict(list)
        for op, parent in enumerate(trace.nesting.parent):
            if parent >= 0 and ops.name[parent] in compiled and ops.name[op] not in compiled:
                same[parent, operator_name(trace.names[ops.name[op]])].append(op)
        return {
            op: (name, number, len(calls))
            for (_, name), calls in same.items()
            for number, op in enumerate(sorted(calls, key=ops.start.__getitem__))
        }

    @cached_property
    def _beside(self) -> Beside:
        trace = self._trace
        if not trace.device_kind.has_launches:
            ops = (op for part in self.parts for op in part.operators)
            return Beside((trace.names[trace.ops.name[op]], self.chain(op)) for op in ops)
        done = [i for part in self.parts for i in part.gpu_ops if trace.gpu.kind[i] == KERNEL]
        unsure = trace.captured.unsure
        # What may have been launched by another operator than the recorded one hides in its region.
        kernels = {(trace.gpu.name[i], self._around[i], ABSENT if i in unsure else self.op_of[i]) for i in done}
        return Beside((trace.names[name], self._joined_chain(around, op)) for name, around, op in kernels)

    def _doubted(self, decoded: KernelName, code: GeneratedKernel | None, op: int) -> tuple[str, ...]:
        if not decoded.triton_ops or (code is not None and code.ops is not None):
            return ()
        return self._beside.doubted(decoded, self.chain(op))

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
            settings=None if op < 0 else self.settings(self._trace.ops.inputs[op]),
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
            return Kernels(lambda: map(self._operator, part.operators), len(part.operators), refusal=self.refusal)
        kind = self._trace.gpu.kind
        count = sum(kind[i] == KERNEL for i in part.gpu_ops)
        return Kernels(lambda: map(self._kernel, self._kernels_in_order(part)), count, refusal=self.refusal)

    def brief_kernels(self, part: Part) -> Iterator[BriefKernel]:
        """Yield the part's kernels in launch order; NotMeasured where some of them left no event.

        Their decoded names are there as long as this object, mostly one for all that are equal.
        """
        self.refuse_hidden()
        trace, names = self._trace, self._trace.names
        if not trace.device_kind.has_launches:
            ops = trace.ops
            for op in part.operators:
                name = names[ops.name[op]]
                yield BriefKernel(name, self.decoded_operator(op), name, ops.end[op] - ops.start[op])
            return
        gpu, op_of = trace.gpu, self.op_of
        for i in self._kernels_in_order(part):
            yield BriefKernel(names[gpu.name[i]], self.decoded(i), self.op_name(op_of[i]), gpu.end[i] - gpu.start[i])

    def _kernels_in_order(self, part: Part) -> list[int]:
        gpu, call_of, launched = self._trace.gpu, self._trace.links.call_of, self._trace.calls.start

        def moment(i: int) -> tuple[int, int, int]:
            return (launched[call_of[i]] if call_of[i] >= 0 else gpu.start[i], gpu.start[i], i)

        return sorted((i for i in part.gpu_ops if gpu.kind[i] == KERNEL), key=moment)

    def _operator_fields(self, op: int) -> dict[str, Any]:
        """Return what a kernel has from the operator that it comes from, its name aside."""
        dtypes, shapes, strides = self.inputs(op)
        return {
            "op_chain": self.chain(op),
            "forward_op": self.forward_op(op),
            "op_dtypes": dtypes,
            "op_shapes": shapes,
            "op_strides": strides,
            "joined": self._joined.of(self.op_name(op), dtypes, shapes),
        }

    def _kernel(self, gpu_op: int) -> Kernel:
        """Return a kernel: one, however many ranges hold it."""
        if gpu_op not in self._kernels:
            self._kernels[gpu_op] = self._new_kernel(gpu_op)
        return self._kernels[gpu_op]

    def _new_kernel(self, gpu_op: int) -> Kernel:
        trace, gpu, op = self._trace, self._trace.gpu, self.op_of[gpu_op]
        call, decoded = trace.links.call_of[gpu_op], self.decoded(gpu_op)
        annotation = trace.captured.annotated.get(gpu_op)
        annotated = () if annotation is None or annotation.operator is None else (annotation.operator,)
        return Kernel(
            name=trace.names[gpu.name[gpu_op]],
            decoded=decoded,
            op=self.op_name(op),
            **self._operator_fields(op) | {"op_chain": (*self._joined_chain(self._around[gpu_op], op), *annotated)},
            start_ns=gpu.start[gpu_op],
            dur_ns=gpu.end[gpu_op] - gpu.start[gpu_op],
            device=trace.device_of[gpu.process[gpu_op]],
            stream=trace.streams[gpu.stream[gpu_op]],
            launch=trace.names[trace.calls.name[call]] if call >= 0 else None,
            launch_start_ns=trace.calls.start[call] if call >= 0 else None,
            in_graph=self.is_in_graph(gpu_op),
            capture_known=gpu_op in trace.captured.of,
            unsure_ops=trace.captured.unsure.get(gpu_op, ()),
            annotation=annotation,
            collective=decoded.collective,
            code=(code := self.code(gpu_op)),
            doubted=self._doubted(decoded, code, op),
        )

    def _joined_chain(self, around: int, op: int) -> tuple[str, ...]:
        """Return the ranges around a launch; of a graph, inside them those around the operator of the capture."""
        return self.chain(op) if around == op else (*self.chain(around), *self.chain(op))

    def _operator(self, op: int) -> Kernel:
        """Return an operator that is a kernel where the CPU is the device."""
        trace, name = self._trace, self._trace.names[self._trace.ops.name[op]]
        code = self.code_of_operator(op)
        return Kernel(
            name=name,
            decoded=(decoded := self.decoded_operator(op)),
            op=name,
            **self._operator_fields(op),
            start_ns=trace.ops.start[op],
            dur_ns=trace.ops.end[op] - trace.ops.start[op],
            launch_start_ns=trace.ops.start[op],
            code=code,
            doubted=self._doubted(decoded, code, op),
        )

    def places(self, part: Part) -> Places:
        """Return the origins of a part's work; of that of compiled kernels also without recorded stacks."""
        captured = self._trace.captured
        if not (self.origins.recorded or self.generated or captured.of or captured.annotated):
            return Places()
        work: dict[Work, list[Origin | None]] = defaultdict(list)
        for launched, origin in self._origins_of(part):
            work[launched].append(origin)
        operators: dict[str, Counter[Origin]] = defaultdict(Counter)
        for op in self.operators.that_ran(part):
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
        actions = [
            (calls.thread[call], calls.start[call], (name, *(names[named[op]] for op in chain(around[call]))))
            for call, name in done
        ]
        for i, start in enumerate(annotations.start):
            name = names[annotations.name[i]]
            if any(step.start_ns <= start < step.end_ns and name != step.name for step in part.ranges):
                actions.append((annotations.thread[i], start, (name,)))
        threads: dict[int, list[tuple[str, ...]]] = defaultdict(list)
        for thread, _, action in sorted(actions):
            threads[thread].append(action)
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
            yield (name, name), in_code(origins.of_operator(op), self._lines(op, self.code_of_operator(op)))
        for i in part.gpu_ops:
            op = self.op_of[i]
            lines = self._lines(op, self.code(i))
            captured = trace.captured.of.get(i)
            recorded = origins.of_call(trace.links.call_of[i], op) if captured is None else origins.of_capture(captured)
            origin = in_code(_annotated(recorded, trace.captured.annotated.get(i)), lines)
            yield (names[trace.gpu.name[i]], self.op_name(op)), origin
        for call, op in trace.nesting.around_each(trace.calls, blocking_calls(trace, part.calls)).items():
            yield (names[trace.calls.name[call]], self.op_name(op)), origins.of_call(call, op)

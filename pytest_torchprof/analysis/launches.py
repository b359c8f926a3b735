"""The launch of each kernel, and the facts that name and launch give together; nothing is looked up twice."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pytest_torchprof.analysis.generated import Beside, GeneratedCode
from pytest_torchprof.analysis.joined_types import JoinedTypes
from pytest_torchprof.analysis.launch_operators import around_launches, launching_operators
from pytest_torchprof.analysis.operator_calls import OperatorCalls
from pytest_torchprof.analysis.operator_inputs import OperatorInputs, with_lists
from pytest_torchprof.analysis.part_order import kernels_in_order
from pytest_torchprof.analysis.parts import forward_operator, step_parts
from pytest_torchprof.analysis.range_chains import RangeChains
from pytest_torchprof.analysis.source_lines import Origins
from pytest_torchprof.analysis.validity import unprofiled
from pytest_torchprof.devices.kinds import CallKind
from pytest_torchprof.kernels.kernel import BriefKernel, Kernel, launcher_text
from pytest_torchprof.kernels.kernels import Kernels
from pytest_torchprof.kernels.operand_types import with_code, with_operands
from pytest_torchprof.kernels.operands import CONTRACTING, Launch, complete
from pytest_torchprof.reasons.errors import TorchprofError, not_measured
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.trace.columns import ABSENT, KERNEL, picked, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_torchprof.analysis.operator_inputs import Inputs
    from pytest_torchprof.analysis.parts import Part
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace
    from pytest_torchprof.trace.compile_evidence import GeneratedKernel

# Ranges of torch.compile's machinery: a kernel directly inside one was launched by compiled code, by no operator.
REGIONS = ("Torch-Compiled Region", "CompiledFunction", "TorchDynamo ", "Pregraph bytecode", "AOTDispatcher ")

Refusal = TypeVar("Refusal", bound=TorchprofError)


class Launching:
    """Answers for one recording who launched a GPU operation."""

    def __init__(self, trace: Trace, own_kernels: OwnKernels) -> None:
        """Prepare to answer; the work is done when asked. ``own_kernels``: the kernels that users declare."""
        self._trace = trace
        self._own_kernels = own_kernels
        self._chains = RangeChains(trace)
        self._called: dict[int, str | None] = {}
        self._inputs = OperatorInputs(trace)
        self._decoded: dict[object, KernelName] = {}
        self._decoded_of: dict[int, KernelName] = {}
        self._of_any_size: dict[int, bool] = {}
        self.generated = GeneratedCode(trace)
        """The facts that Inductor's code holds about its kernels."""
        self._holds_code = bool(self.generated)
        self.refused: list[Reason] = []
        """Why questions had no answer, of all that were asked: a test that keeps that to itself does not pass."""
        self._kernels: dict[int, Kernel] = {}
        self._brief_kernels: dict[Part, Sequence[BriefKernel]] = {}
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

    def forget_refusals(self) -> None:
        """Forget the refusals so far."""
        self.refused.clear()

    def refusal(self, problem: Refusal) -> Refusal:
        """Return the error to raise, and keep its reason, since the caller may catch the error."""
        self.refused.append(problem.reason)
        return problem

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The recording's steps."""
        return step_parts(self._trace)

    @cached_property
    def op_of(self) -> Sequence[int]:
        """For each GPU operation the innermost operator around its launch, ABSENT if there is none."""
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
        return self._chains.of(op)

    def chain_numbers(self, ops: Iterable[int]) -> list[int]:
        """Return for each operator the number of its chain, which is that of all that are equal."""
        return self._chains.numbers(ops)

    def one_of_each_chain(self, gpu_ops: Sequence[int]) -> Iterable[int]:
        """Return one operation for each chain of ranges around their launches, where it is sure and where it is not."""
        unsure = self._trace.captured.unsure
        chains = self._chains.numbers(picked(self.op_of, gpu_ops))
        if not unsure:
            return dict(zip(chains, gpu_ops, strict=True)).values()
        return dict(zip(zip(chains, map(unsure.__contains__, gpu_ops), strict=True), gpu_ops, strict=True)).values()

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
        """Return the operator that the program called: the outermost aten operator around this one, else this one."""
        return self.called_operators((op,))[0]

    def called_operators(self, ops: Sequence[int]) -> list[str | None]:
        """Return for each operator the one that the program called, as `called_operator` does."""
        chains, called = self._chains.numbers(ops), self._called
        for number, op in dict(zip(chains, ops, strict=True)).items():
            if number not in called:
                outermost = next((name for name in self._chains.of(op) if name.startswith("aten::")), None)
                called[number] = outermost or self.op_name(op)
        return list(map(called.__getitem__, chains))

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
        """Return types, shapes and strides of the operator's operands, each None where it is not recorded."""
        return (None, None, None) if op < 0 else self.operands(self._trace.ops.inputs[op])

    def operands(self, index: int) -> Inputs:
        """Return types, shapes and strides of a set of operands, by its index in ``Trace.inputs``."""
        return self._inputs.operands(index)

    def settings(self, index: int) -> tuple[Any, ...] | None:
        """Return the arguments beside the tensors as texts, in their positions; None if not recorded or kept."""
        return self._inputs.settings(index)

    def named(self, name: int) -> KernelName:
        """Return the decoded name of a kernel, by its index in ``Trace.names``, alone or as users declare it."""
        return self._own_kernels.decode(self._trace.names[name])

    def decoded(self, gpu_op: int) -> KernelName:
        """Return the kernel's decoded name, completed by its launch."""
        known = self._decoded_of.get(gpu_op)
        if known is None:
            known = self._decoded_of[gpu_op] = self._decode(gpu_op)
        return known

    def decoded_each(self, gpu_ops: Sequence[int]) -> list[KernelName]:
        """Return the decoded name of each kernel, completed by its launch, as `decoded` does."""
        known, trace = self._decoded_of, self._trace
        # These may mean something of their own although their launch looks like that of others.
        apart = trace.captured.unsure.keys() | trace.collectives.keys()
        alike = [] if self._holds_code else [i for i in gpu_ops if i not in known and i not in apart]
        if alike:
            ops, inputs = picked(self.op_of, alike), trace.ops.inputs
            calls, called = picked(trace.links.call_of, alike), trace.calls.name
            launched = list(
                zip(
                    picked(trace.gpu.name, alike),
                    self._chains.numbers(ops),
                    [inputs[op] if op >= 0 else ABSENT for op in ops],
                    [called[call] if call >= 0 else ABSENT for call in calls],
                    strict=True,
                )
            )
            decoded = {launch: self.decoded(i) for launch, i in dict(zip(launched, alike, strict=True)).items()}
            known.update(zip(alike, map(decoded.__getitem__, launched), strict=True))
        return list(map(self.decoded, gpu_ops)) if apart or self._holds_code else [*map(known.__getitem__, gpu_ops)]

    def _decode(self, gpu_op: int) -> KernelName:
        trace, op, named = self._trace, self.op_of[gpu_op], self._trace.gpu.name[gpu_op]
        call = trace.links.call_of[gpu_op]
        called = trace.calls.name[call] if call >= 0 else ABSENT
        sure = gpu_op not in trace.captured.unsure
        inputs = trace.ops.inputs[op] if op >= 0 and sure else ABSENT
        message = trace.collectives.get(gpu_op)
        collective = (None, None) if message is None else (message.collective, message.dtype)
        code = self.code(gpu_op) if self._holds_code else None
        given = self._inputs.without_sizes(inputs) if inputs >= 0 and self._is_of_any_size(named) else inputs
        key = (named, self._chains.number(op), given, called, collective, code)
        kernel_name = self._decoded.get(key)
        if kernel_name is None:
            name, call_name = trace.names[named], trace.names[called] if called >= 0 else None
            launch = self._launch(op if sure else ABSENT, call_name, collective, self._is_triton(name))
            decoded = with_code(complete(name, launch, self._own_kernels.decode), code)
            kernel_name = self._decoded[key] = with_operands(name, decoded, launch)
        return kernel_name

    def _is_of_any_size(self, name: int) -> bool:
        """Whether sizes of operands add nothing to what the kernel's name says: its family is known, and no product."""
        if name not in self._of_any_size:
            decoded = self.named(name)
            self._of_any_size[name] = decoded.triton is None and decoded.family not in (None, *CONTRACTING)
        return self._of_any_size[name]

    def decoded_operator(self, op: int) -> KernelName:
        """Return an operator's decoded name where operators are the kernels, completed by its operands."""
        name = self._trace.names[self._trace.ops.name[op]]
        code = self.code_of_operator(op)
        lists = self._inputs.lists_of(op)
        key = (name, self._chains.number(op), self._trace.ops.inputs[op], lists, code, op in self._operators_with_masks)
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
        """The operators that turn a mask into indices: the recording has no types of tensors in lists."""
        trace = self._trace
        makes = {i for i, name in enumerate(trace.names) if name == "aten::nonzero"}
        return {trace.nesting.parent[op] for op in where(trace.ops.name, makes)} if makes else set()

    def code(self, gpu_op: int) -> GeneratedKernel | None:
        """Return the facts of Inductor's code on a kernel, None where the recording does not hold the code."""
        trace, call = self._trace, self._trace.links.call_of[gpu_op]
        if not self.generated or call < 0:
            return None
        names = (trace.names[trace.gpu.name[gpu_op]], self.op_name(self.op_of[gpu_op]))
        return self.generated.of(names, trace.threads[trace.calls.thread[call]], trace.calls.start[call])

    def code_of_operator(self, op: int) -> GeneratedKernel | None:
        """Return the facts of Inductor's code on an operator that is a kernel where the CPU is the device."""
        trace, ops = self._trace, self._trace.ops
        if not self.generated:
            return None
        return self.generated.of((trace.names[ops.name[op]],), trace.threads[ops.thread[op]], ops.start[op])

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
        """Return whether the recording says that Triton made a kernel; None if it lists no kernels of Triton's."""
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
        return Kernels(lambda: map(self._kernel, kernels_in_order(self._trace, part)), count, refusal=self.refusal)

    def brief_kernels(self, part: Part) -> Sequence[BriefKernel]:
        """Return the part's kernels in launch order; NotMeasured where some of them left no event.

        Their decoded names are there as long as this object, mostly one for all that are equal.
        """
        self.refuse_hidden()
        if part not in self._brief_kernels:
            # A nightly's recordings hold some hundred kernels each, and are gone through three times.
            self._brief_kernels[part] = self._in_brief(part)
        return self._brief_kernels[part]

    def _in_brief(self, part: Part) -> Sequence[BriefKernel]:
        trace, names = self._trace, self._trace.names
        if not trace.device_kind.has_launches:
            ops, operators = trace.ops, part.operators
            named = [names[ops.name[op]] for op in operators]
            took_ns = [ops.end[op] - ops.start[op] for op in operators]
            return list(map(BriefKernel, named, map(self.decoded_operator, operators), named, took_ns))
        in_order, gpu_named, start, end = kernels_in_order(trace, part), trace.gpu.name, trace.gpu.start, trace.gpu.end
        named, took_ns = [names[gpu_named[i]] for i in in_order], [end[i] - start[i] for i in in_order]
        return list(map(BriefKernel, named, self.decoded_each(in_order), self.op_names(in_order), took_ns))

    def _operator_fields(self, op: int) -> dict[str, Any]:
        """Return the fields that a kernel takes from its operator, apart from the operator's name."""
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

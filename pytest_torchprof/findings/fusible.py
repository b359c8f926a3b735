"""Findings about kernels that others could be fused into: pointwise chains, attention, layouts, optimizers."""

from __future__ import annotations

from itertools import groupby
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from pytest_torchprof.findings.catalogue.fusible import (
    LayoutConversion,
    OptimizerOfSingleTensors,
    UnfusedAttention,
    UnfusedPointwise,
)
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.evidence import evidence, members
from pytest_torchprof.findings.finding import (
    GPU_WORK,
    HOST_PACE,
    HOW_MANY_KERNELS,
    LAUNCHES,
    OPERATORS,
    SHAPES,
    SLOW_KERNELS,
    WHICH_KERNELS,
    WHICH_OPERATORS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.findings.places import source_of_ops
from pytest_torchprof.kernels.names.kernelname import LAYOUT_CONVERSION
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN
from pytest_torchprof.reasons.findings import ElementsOfSomeUnknown, OptimizerOfSomeUnknown, ProductsOfSomeUnknown
from pytest_torchprof.trace.columns import picked
from pytest_torchprof.trace.links import Intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.trace import Span

CHAIN = Threshold(
    "chain",
    3,
    "two pointwise kernels in a row are common and cheap; from three on a compiler saves most of the memory traffic",
)
SAVED = Threshold("share", 0.02, "a fiftieth of the kernel time that fusing could save is what compiling costs to try")

CONVERSION = Threshold("share", 0.02, "a fiftieth of the kernel time on changing layouts is more than one at each end")

KERNELS = Threshold(
    "kernels", 20, "an optimizer that launches this many pointwise kernels in a step takes its parameters one by one"
)
OF_OPTIMIZER = Threshold("share", 0.5, "where most of what the optimizer launches is something else, it is not that")

_SDPA_MATH = "aten::_scaled_dot_product_attention_math"
_BATCHED = {"aten::bmm": 0, "aten::baddbmm": 1}
"""The position of the first matrix among the operands."""
_BEFORE = 12
"""Scale, mask, casts, and positions with two products of their own lie between the first product and the softmax."""
_AFTER = 8
"""A cast and dropout lie between the softmax and the second product."""
_LAYOUTS = ("nchwToNhwc", "nhwcToNchw", "nchwAddPadding", "nhwcAddPadding", "nchwToFold", "tensorTransform")
_STEP = "Optimizer.step#"
_ZERO_GRAD = "Optimizer.zero_grad#"


def _unfused_pointwise(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find runs of pointwise kernels of ATen, launched one after the other on as many elements each."""
    work = analysis.gpu_work
    chains = list(_pointwise_chains(analysis, at[CHAIN]))
    saved = saved_us(analysis, chains)
    if not chains or saved < at[SAVED] * work.kernel_time_us:
        return
    longest, members_of = max(chains, key=work.time_us), [i for chain in chains for i in chain]
    facts = evidence(work, members_of)
    facts["events"] = Events(gpu_ops=tuple(members_of), chains=tuple(map(len, chains)))
    yield UnfusedPointwise(
        **facts,
        saved_us=saved,
        chains=len(chains),
        chain=tuple(_stem(work, i) for i in longest),
        saves_us=saved,
    )


def chains_to_fuse(analysis: Analysis) -> list[list[int]]:
    """Return the chains of pointwise kernels that one kernel each could compute."""
    return list(_pointwise_chains(analysis, CHAIN.value))


def outside_optimizer(analysis: Analysis, chains: Iterable[Sequence[int]]) -> list[Sequence[int]]:
    """Return the chains that no optimizer's step has launched."""
    inside = set(_launched_inside(analysis, analysis.trace.spans_in_steps(_STEP)))
    return [chain for chain in chains if inside.isdisjoint(chain)]


def launched_by_optimizer(analysis: Analysis, kernels: Iterable[int]) -> list[int]:
    """Return the kernels among these that an optimizer launched: in its step, or to set gradients to zero."""
    ranges = [span for prefix in (_STEP, _ZERO_GRAD) for span in analysis.trace.spans_in_steps(prefix)]
    inside = set(_launched_inside(analysis, ranges)) if ranges else set()
    return [i for i in kernels if i in inside]


def saved_us(analysis: Analysis, chains: Sequence[Sequence[int]]) -> float:
    """Return the time that fusing these chains could save, in microseconds."""
    # The time of one kernel remains of a fused chain: it reads the inputs and writes the result once.
    start, end = analysis.trace.gpu.start, analysis.trace.gpu.end
    took_ns = ([end[i] - start[i] for i in chain] for chain in chains)
    return sum(sum(chain_ns) / 1000 - max(chain_ns) / 1000 for chain_ns in took_ns)


def _stem(work: GpuWork, gpu_op: int) -> str:
    decoded = work.named[work.trace.gpu.name[gpu_op]]
    return decoded.stem or decoded.short


def _pointwise_chains(analysis: Analysis, least: float, *, undecided: bool = False) -> Iterator[list[int]]:
    """Yield the chains; with ``undecided``, a kernel without a recorded size counts as of its neighbours' size."""
    work, trace = analysis.gpu_work, analysis.trace
    fusible = {name for name, decoded in work.named.items() if _fusible(decoded)}
    name, stream, process = trace.gpu.name, trace.gpu.stream, trace.gpu.process
    counted: dict[int, int | None] = {}

    def size(gpu_op: int) -> int | None:
        """Return the number of elements of the launching operator's largest operand, 0 without; None joins any run."""
        op = analysis.launching.op_of[gpu_op]
        inputs = trace.ops.inputs[op] if op >= 0 else -1
        if inputs not in counted:
            counted[inputs] = elements(analysis.launching.operands(inputs)[1] if inputs >= 0 else None)
        return counted[inputs] if undecided and op >= 0 else counted[inputs] or 0

    for ops in work.launched_together:
        # A byte for each kernel, 1 for those in question: of tens of thousands a few stand in long runs.
        in_question = bytes(map(fusible.__contains__, picked(name, ops)))
        for run in _runs(in_question, least):
            members = ops[run]
            sized = zip(map(size, members), members, strict=True)
            for (none, *_), alike in groupby(sized, key=lambda pair: (pair[0] == 0, stream[pair[1]], process[pair[1]])):
                if not none:
                    yield from (chain for chain in _one_size_runs(alike) if len(chain) >= least)


def _runs(in_question: bytes, least: float) -> Iterator[slice]:
    """Yield where at least so many, and at least one, are in question one after the other."""
    row, marks = b"\x01" * max(ceil(min(least, len(in_question) + 1)), 1), in_question + b"\x00"
    first = marks.find(row)
    while first >= 0:
        end = marks.index(b"\x00", first)
        yield slice(first, end)
        first = marks.find(row, end)


def _one_size_runs(kernels: Iterable[tuple[int | None, int]]) -> Iterator[list[int]]:
    """Yield runs of kernels that may have one size; kernels of unknown size between two sizes belong to both runs."""
    chain: list[int] = []
    known: int | None = None
    unknown_since = 0
    for size, kernel in kernels:
        if size is not None and known not in (None, size):
            yield chain
            chain, known = chain[unknown_since:], None
        chain.append(kernel)
        if size is not None:
            known, unknown_since = size, len(chain)
    yield chain


def _fusible(decoded: KernelName) -> bool:
    return decoded.family == "pointwise" and decoded.library == "aten" and not decoded.stem.startswith("multi_tensor")


def elements(shapes: Sequence[Any] | None) -> int | None:
    """Return the number of elements of the largest operand, 0 without operands; None if no shapes are recorded."""
    if shapes is None:
        return None
    sizes = [prod(shape) for shape in shapes if isinstance(shape, list) and all(isinstance(n, int) for n in shape)]
    return max(sizes, default=0)


def _sizes_known(analysis: Analysis, least: float, share: float) -> bool:
    """Whether kernels with an unknown number of elements could not save enough together with the others."""
    work = analysis.gpu_work
    fusible = {name for name, decoded in work.named.items() if _fusible(decoded)}
    untold = [i for i in work.without_known_operator.intersection(work.kernels) if work.trace.gpu.name[i] in fusible]
    by_operators = [group for group in work.groups if group.name in fusible and group.op >= 0]
    if not untold and all(elements(work.shapes(group)) is not None for group in by_operators):
        return True
    surely, undecided = (list(_pointwise_chains(analysis, least, undecided=either)) for either in (False, True))
    most_us = saved_us(analysis, undecided) + work.time_us(untold)
    return (surely == undecided and not untold) or most_us < share * work.kernel_time_us


def _products_known(analysis: Analysis) -> bool:
    """Whether it is known between which products each softmax lies."""
    work = analysis.gpu_work
    if not any(_is_softmax(decoded) or decoded.is_of("softmax") is NOT_KNOWN for decoded in work.named.values()):
        return True
    return all(work.operator_known(group) or work.decoded(group).is_of("gemm") is NO for group in work.groups)


def _unfused_attention(analysis: Analysis) -> Iterator[Finding]:
    """Find attention computed as product, softmax and product; a fused kernel would not write the matrix between."""
    work = analysis.gpu_work
    attentions: list[list[int]] = []
    softmax = {name for name, decoded in work.named.items() if _is_softmax(decoded)}
    for kernels in work.kernels_together if softmax else ():
        attentions += _attentions(analysis, kernels, softmax)
    if not attentions:
        return
    # The two products remain in a fused kernel, and so do those of positions; what else lies between them does not.
    between = work.time_us(i for kernels in attentions for i in kernels[1:-1] if not _batched(analysis, i))
    yield UnfusedAttention(
        time_us=work.time_us(i for kernels in attentions for i in kernels),
        share=work.share_of(i for kernels in attentions for i in kernels),
        count=len(attentions),
        kernels=tuple(analysis.launching.decoded(i).short for i in attentions[0]),
        ops=tuple(dict.fromkeys(_called(analysis, kernels[0]) for kernels in attentions))[:3],
        between_us=between,
        by_math=any(
            _SDPA_MATH in analysis.launching.chain(analysis.launching.op_of[first]) for first, *_ in attentions
        ),
        source=source_of_ops(work, (i for kernels in attentions for i in kernels)),
        events=Events(gpu_ops=tuple(i for kernels in attentions for i in kernels), chains=tuple(map(len, attentions))),
        saves_us=between,
    )


def _called(analysis: Analysis, gpu_op: int) -> str:
    chain = analysis.launching.chain(analysis.launching.op_of[gpu_op])
    return next((name for name in chain if name.startswith("aten::")), chain[-1] if chain else "?")


def _attentions(analysis: Analysis, kernels: Sequence[int], softmax: set[int]) -> Iterator[list[int]]:
    """Yield the kernels from a batched product over a softmax to the next batched product."""
    name = analysis.trace.gpu.name
    at = 0
    for middle in [middle for middle, i in enumerate(kernels) if name[i] in softmax]:
        after = range(middle + 1, min(len(kernels), middle + _AFTER))
        last = next((j for j in after if _batched(analysis, kernels[j])), None)
        if last is None:
            continue
        before = range(middle - 1, max(at, middle - _BEFORE) - 1, -1)
        products = (j for j in before if _batched(analysis, kernels[j]))
        first = next((j for j in products if _fits(analysis, kernels[j], kernels[last])), None)
        if first is not None:
            yield list(kernels[first : last + 1])
            at = last + 1


def _is_softmax(decoded: KernelName) -> bool:
    return (decoded.family == "softmax" or any("softmax" in op for op in decoded.triton_ops)) and "log" not in (
        decoded.stem + " ".join(decoded.triton_ops)
    )


def _batched(analysis: Analysis, gpu_op: int) -> bool:
    op = analysis.launching.op_name(analysis.launching.op_of[gpu_op])
    return op in _BATCHED and analysis.gpu_work.named[analysis.trace.gpu.name[gpu_op]].family == "gemm"


def _fits(analysis: Analysis, first: int, last: int) -> bool:
    """Whether the second product takes a matrix of the size that the first one makes; True if sizes are unknown."""
    made, taken = _result(analysis, first), _operands(analysis, last)
    return made is None or taken is None or made in taken


def _operands(analysis: Analysis, gpu_op: int) -> list[tuple[int, ...]] | None:
    op = analysis.launching.op_of[gpu_op]
    shapes, first = analysis.launching.inputs(op)[1], _BATCHED[analysis.launching.op_name(op) or ""]
    matrices = [
        tuple(shape) for shape in (shapes or ())[first : first + 2] if isinstance(shape, list) and len(shape) == 3
    ]
    return matrices if len(matrices) == 2 else None


def _result(analysis: Analysis, gpu_op: int) -> tuple[int, ...] | None:
    operands = _operands(analysis, gpu_op)
    if operands is None:
        return None
    (batch, rows, _), (_, _, columns) = operands
    return batch, rows, columns


def _layout_conversion(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that only change the layout of images for convolutions."""
    work, names = analysis.gpu_work, analysis.trace.names
    converting = {
        name
        for name, decoded in work.named.items()
        if decoded.helper == LAYOUT_CONVERSION or any(word in names[name] for word in _LAYOUTS)
    }
    conversions = [group for group in work.groups if group.name in converting]
    spent = sum(group.time_ns for group in conversions) / 1000
    if not spent or spent < at[CONVERSION] * work.kernel_time_us:
        return
    yield LayoutConversion(
        **evidence(work, members(conversions)), kernel_share=spent / work.kernel_time_us, saves_us=spent
    )


def _single_tensor_optimizer(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find an optimizer's step that launches pointwise kernels for one parameter after another."""
    trace, work = analysis.trace, analysis.gpu_work
    ranges = trace.spans_in_steps(_STEP)
    if not ranges:
        return
    inside = _launched_inside(analysis, ranges)
    single = _single(analysis, inside)
    steps = _steps_of(ranges)
    if not single or len(single) < at[KERNELS] * steps or len(single) < at[OF_OPTIMIZER] * len(inside):
        return
    spent = work.time_us(single)
    zeroing = trace.spans_in_steps(_ZERO_GRAD)
    host = sum(span.end_ns - span.start_ns for span in ranges) / 1000
    zeroing_us = sum(span.end_ns - span.start_ns for span in zeroing) / 1000
    yield OptimizerOfSingleTensors(
        **evidence(work, single),
        optimizer=ranges[0].name.removeprefix(_STEP).removesuffix(".step"),
        kernels_per_step=len(single) // steps,
        cpu_us=host,
        steps_taken=steps,
        zeroing=len(_launched_inside(analysis, zeroing)) // steps,
        # One kernel remains for all of them, and none remains that sets gradients to zero.
        saves_us=max(host, spent) * (1 - steps / len(single)) + zeroing_us,
    )


def _single(analysis: Analysis, kernels: Iterable[int]) -> list[int]:
    work = analysis.gpu_work
    return [i for i in kernels if _fusible(work.named[work.trace.gpu.name[i]])]


def _steps_of(ranges: Sequence[Span]) -> int:
    return len({(span.tid, span.start_ns) for span in ranges})


def _optimizer_known(analysis: Analysis, kernels: float, share: float) -> bool:
    """Whether no single-tensor optimizer could be a finding even if it launched all kernels whose launch is missing."""
    ranges = analysis.trace.spans_in_steps(_STEP)
    call_of = analysis.trace.links.call_of
    unlaunched = _single(analysis, (i for i in analysis.gpu_work.kernels if call_of[i] < 0)) if ranges else []
    if not unlaunched:
        return True
    inside = _launched_inside(analysis, ranges)
    most = len(_single(analysis, inside)) + len(unlaunched)
    return most < kernels * _steps_of(ranges) or most < share * (len(inside) + len(unlaunched))


def _launched_inside(analysis: Analysis, ranges: Sequence[Span]) -> list[int]:
    trace = analysis.trace
    thread_of = {label: index for index, label in enumerate(trace.threads)}
    inside = Intervals((thread_of[span.tid], span.start_ns, span.end_ns) for span in ranges)
    calls, call_of = trace.calls, trace.links.call_of
    return [
        i
        for i in analysis.gpu_work.kernels
        if call_of[i] >= 0 and inside.cover(calls.thread[call_of[i]], calls.start[call_of[i]])
    ]


RULES = (
    Rule(
        code="unfused-pointwise",
        find=_unfused_pointwise,
        needs=(
            OPERATORS,
            SHAPES,
            Need(
                missing=ElementsOfSomeUnknown(),
                there=_sizes_known,
                by=(CHAIN, SAVED),
            ),
        ),
        thresholds=(CHAIN, SAVED),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *WHICH_OPERATORS, *SLOW_KERNELS, "max_peak_memory"),
    ),
    Rule(
        code="unfused-attention",
        find=_unfused_attention,
        needs=(
            LAUNCHES,
            Need(missing=ProductsOfSomeUnknown(), there=_products_known),
        ),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *WHICH_OPERATORS, *SLOW_KERNELS, "max_peak_memory"),
    ),
    Rule(
        code="layout-conversion",
        find=_layout_conversion,
        needs=(GPU_WORK,),
        thresholds=(CONVERSION,),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *SLOW_KERNELS),
    ),
    Rule(
        code="single-tensor-optimizer",
        find=_single_tensor_optimizer,
        needs=(
            OPERATORS,
            Need(
                missing=OptimizerOfSomeUnknown(),
                there=_optimizer_known,
                by=(KERNELS, OF_OPTIMIZER),
            ),
        ),
        thresholds=(KERNELS, OF_OPTIMIZER),
        explains=(*HOW_MANY_KERNELS, *HOST_PACE),
    ),
)

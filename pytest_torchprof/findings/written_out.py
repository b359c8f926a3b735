"""Findings about parts of models that are written operator by operator: RMSNorm and rotary embeddings."""

from __future__ import annotations

from operator import contains
from typing import TYPE_CHECKING, Final

from pytest_torchprof.analysis.steps import once
from pytest_torchprof.findings.catalogue.fusible import UnfusedNorm, UnfusedRotary
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.evidence import evidence
from pytest_torchprof.findings.finding import (
    HOST_PACE,
    HOW_MANY_KERNELS,
    LAUNCHES,
    SLOW_KERNELS,
    WHICH_KERNELS,
    WHICH_OPERATORS,
    Finding,
    Need,
    Rule,
    Threshold,
)
from pytest_torchprof.findings.fusible import elements, saved_us
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.reasons.findings import OperatorsOfSomeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.findings.evidence import KernelFacts

    class _WrittenOut(KernelFacts):
        """The facts of a part that is written operator by operator; see `catalogue.fusible.WrittenOut`."""

        chain: tuple[str, ...]
        kernel_share: float


SAVED = Threshold("share", 0.02, "a fiftieth of the kernel time that fusing could save is what changing a module costs")

_SQUARES: Final = ("aten::pow", "aten::square", "aten::mul")
_MEAN: Final = "aten::mean"
_CORE: Final = (("aten::add", "aten::add_"), ("aten::rsqrt", "aten::rsqrt_"), ("aten::mul", "aten::mul_"))
"""The operators that follow the mean of the squares: an epsilon is added, and the input divided by the root."""
_CENTRES: Final = ("aten::sub", "aten::sub_")
_CAST: Final = "aten::copy_"
_WEIGHT: Final = ("aten::mul", "aten::mul_")


_NEGATED: Final = "aten::neg"
_TURNED: Final = (
    ("aten::mul", "aten::mul_"),
    (_NEGATED,),
    ("aten::cat",),
    ("aten::mul", "aten::mul_"),
    ("aten::add", "aten::add_"),
)
"""Times the cosine; the second half negated and put before the first; times the sine; both added."""


def _unfused_norm(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find RMSNorm written as single operators, as in many models of transformers: each is a kernel of its own."""
    work, norms = analysis.gpu_work, rms_norms(analysis)
    saved = saved_us(analysis, norms)
    if norms and saved >= at[SAVED] * work.kernel_time_us:
        yield UnfusedNorm(**_facts(analysis, norms), norms=len(norms), saves_us=saved)


def _unfused_rotary(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find rotary embeddings written as single operators, as in models of transformers: each is a kernel of its own."""
    work, embeddings = analysis.gpu_work, rotary_embeddings(analysis)
    saved = saved_us(analysis, embeddings)
    if embeddings and saved >= at[SAVED] * work.kernel_time_us:
        yield UnfusedRotary(**_facts(analysis, embeddings), embeddings=len(embeddings), saves_us=saved)


def _facts(analysis: Analysis, parts: Sequence[Sequence[int]]) -> _WrittenOut:
    """Return the evidence for kernels that one kernel for each of these parts could compute."""
    work, launching = analysis.gpu_work, analysis.launching
    kernels = [i for part in parts for i in part]
    return {
        **evidence(work, kernels),
        "events": Events(gpu_ops=tuple(kernels), chains=tuple(map(len, parts))),
        "chain": tuple(launching.op_name(launching.op_of[i]) or "" for i in parts[0]),
        "kernel_share": work.time_us(kernels) / work.kernel_time_us,
    }


@once
def rms_norms(analysis: Analysis) -> Sequence[Sequence[int]]:
    """Return the kernels of each RMSNorm that is written as operators."""
    if _MEAN not in analysis.trace.names:
        return []
    return [norm for kernels, ops in _kernels_and_operators(analysis) for norm in _rms_norms(analysis, kernels, ops)]


@once
def _kernels_and_operators(analysis: Analysis) -> Sequence[tuple[list[int], list[str | None]]]:
    """Return the kernels of each step and thread in the order of their launch, and beside them their operators."""
    return [(kernels, analysis.launching.op_names(kernels)) for kernels in analysis.gpu_work.kernels_together]


def _rms_norms(analysis: Analysis, kernels: Sequence[int], ops: Sequence[str | None]) -> Iterator[list[int]]:
    """Yield the kernels of each RMSNorm among kernels in the order of their launch, with its casts and its weight."""
    reached = 0
    # Few models have such a mean, so the means are looked at, not each kernel.
    for mean in [i for i, op in enumerate(ops) if op == _MEAN]:
        first, last = mean - 1, mean + len(_CORE)
        if first < reached or last >= len(ops) or ops[first] not in _SQUARES:
            continue
        # The squared tensor has had its mean subtracted: that is another norm.
        if first > reached and ops[first - 1] in _CENTRES:
            continue
        if any(follows not in meant for follows, meant in zip(ops[mean + 1 : last + 1], _CORE, strict=True)):
            continue
        size = _elements(analysis, kernels[first])
        around = range(max(first - 1, 0), min(last + 3, len(ops)))
        alike = [i for i in around if _may_have(analysis, kernels[i], size)]
        if last not in alike:
            continue
        casts, weighs = ({i for i in alike if ops[i] in meant} for meant in ((_CAST,), _WEIGHT))
        last += last + 1 in casts and last + 2 in weighs
        last += last + 1 in weighs
        first -= first > reached and first - 1 in casts
        yield list(kernels[first : last + 1])
        reached = last + 1


def _may_have(analysis: Analysis, gpu_op: int, size: int | None) -> bool:
    """Whether a kernel computes on this many elements; True if sizes are not recorded."""
    return size is None or _elements(analysis, gpu_op) in (size, None)


def _elements(analysis: Analysis, gpu_op: int) -> int | None:
    """Return the number of elements of the launching operator's largest operand; None if it is not recorded."""
    return elements(analysis.launching.inputs(analysis.launching.op_of[gpu_op])[1]) or None


@once
def rotary_embeddings(analysis: Analysis) -> Sequence[Sequence[int]]:
    """Return the kernels of each rotary embedding of a query or a key, in the order of their launch."""
    embeddings: list[list[int]] = []
    for kernels, names in _kernels_and_operators(analysis) if _NEGATED in analysis.trace.names else ():
        # Few models negate anything, so the negations are looked at, not each kernel; no two parts share one.
        for first in (i - 1 for i, name in enumerate(names) if name == _NEGATED and i):
            part = slice(first, first + len(_TURNED))
            if len(names[part]) == len(_TURNED) and all(map(contains, _TURNED, names[part])):
                embeddings.append(kernels[part])
    return embeddings


def _means_known(analysis: Analysis) -> bool:
    """Whether the launching operator is known for each kernel that may compute a mean."""
    work = analysis.gpu_work
    return all(work.operator_known(group) or work.decoded(group).is_of("reduction") is NO for group in work.groups)


def _joins_known(analysis: Analysis) -> bool:
    """Whether the launching operator is known for each kernel that may concatenate tensors."""
    work = analysis.gpu_work
    return all(work.operator_known(group) or work.decoded(group).is_of("index") is NO for group in work.groups)


_EXPLAINS: Final = (
    *HOW_MANY_KERNELS,
    *WHICH_KERNELS,
    *WHICH_OPERATORS,
    *SLOW_KERNELS,
    *HOST_PACE,
    "max_peak_memory",
)


RULES = (
    Rule(
        code="unfused-norm",
        find=_unfused_norm,
        needs=(LAUNCHES, Need(missing=OperatorsOfSomeUnknown(), there=_means_known)),
        thresholds=(SAVED,),
        explains=_EXPLAINS,
    ),
    Rule(
        code="unfused-rotary",
        find=_unfused_rotary,
        needs=(LAUNCHES, Need(missing=OperatorsOfSomeUnknown(), there=_joins_known)),
        thresholds=(SAVED,),
        explains=_EXPLAINS,
    ),
)

"""Findings about rotary position embeddings that are computed operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.catalogue.kernels import UnfusedRotary
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
from pytest_torchprof.findings.fusible import saved_us
from pytest_torchprof.findings.once import once
from pytest_torchprof.kernels.reply import NO
from pytest_torchprof.reasons.findings import OperatorsOfSomeUnknown
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis

SAVED = Threshold("share", 0.02, "a fiftieth of the kernel time that fusing could save is what changing a module costs")

_TURNED: Final = (
    ("aten::mul", "aten::mul_"),
    ("aten::neg",),
    ("aten::cat",),
    ("aten::mul", "aten::mul_"),
    ("aten::add", "aten::add_"),
)
"""Times the cosine; the second half negated and put before the first; times the sine; both added."""


def _unfused_rotary(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find rotary embeddings written as operators, as models of transformers have them: each is a kernel of its own."""
    work, embeddings = analysis.gpu_work, rotary_embeddings(analysis)
    saved = saved_us(analysis, embeddings)
    if not embeddings or saved < at[SAVED] * work.kernel_time_us:
        return
    kernels = [i for embedding in embeddings for i in embedding]
    facts = evidence(work, kernels)
    facts["events"] = Events(gpu_ops=tuple(kernels), chains=tuple(map(len, embeddings)))
    yield UnfusedRotary(
        **facts,
        embeddings=len(embeddings),
        chain=tuple(analysis.launching.op_name(analysis.launching.op_of[i]) or "" for i in embeddings[0]),
        kernel_share=work.time_us(kernels) / work.kernel_time_us,
        saves_us=saved,
    )


@once
def rotary_embeddings(analysis: Analysis) -> Sequence[Sequence[int]]:
    """Return the kernels of each rotary embedding of a query or a key, in the order of their launch."""
    kind, launching = analysis.trace.gpu.kind, analysis.launching
    embeddings: list[list[int]] = []
    for ops in analysis.gpu_work.launched_together:
        kernels = [i for i in ops if kind[i] == KERNEL]
        names = [launching.op_name(launching.op_of[i]) for i in kernels]
        first = 0
        while first + len(_TURNED) <= len(names):
            if all(name in meant for name, meant in zip(names[first:], _TURNED, strict=False)):
                embeddings.append(kernels[first : first + len(_TURNED)])
                first += len(_TURNED)
            else:
                first += 1
    return embeddings


def _joins_known(analysis: Analysis) -> bool:
    """Whether it is known of each kernel that may join tensors which operator launched it."""
    work = analysis.gpu_work
    return all(work.operator_known(group) or work.decoded(group).is_of("index") is NO for group in work.groups)


RULES = (
    Rule(
        code="unfused-rotary",
        find=_unfused_rotary,
        needs=(LAUNCHES, Need(missing=OperatorsOfSomeUnknown(), there=_joins_known)),
        thresholds=(SAVED,),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *WHICH_OPERATORS, *SLOW_KERNELS, *HOST_PACE, "max_peak_memory"),
    ),
)

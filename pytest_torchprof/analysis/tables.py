"""A recording in rows: by kernel, family, operator, annotation, module and collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.analysis.collective_rows import by_collective
from pytest_torchprof.analysis.kernel_rows import by_family, by_kernel, families

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.kernel_rows import KernelRow
    from pytest_torchprof.analysis.steps import StepProfile

WAYS: Final = ("kernel", "family", "op", "range", "module", "collective")
"""What a table may have rows of."""


def rows_by(
    way: str, analysis: Analysis, steps: Sequence[StepProfile], kernels: Sequence[KernelRow] | None = None
) -> Sequence[Any]:
    """Return the rows of one of the `WAYS`; ``kernels`` are those by kernel, where they are known already."""
    trace, launching, chosen = analysis.trace, analysis.launching, [step.part for step in steps]
    if way == "collective":
        index = {id(part): number for number, part in enumerate(launching.parts)}
        communication = analysis.communication
        return by_collective(communication.collectives, [index[id(part)] for part in chosen], communication.overlap)
    if way == "op":
        from pytest_torchprof.analysis.operator_rows import by_op  # noqa: PLC0415 - only who asks for them pays

        return by_op(trace, launching, chosen)
    if way in ("range", "module"):
        from pytest_torchprof.analysis.range_rows import by_annotation, by_module  # noqa: PLC0415 - as above

        return by_annotation(trace, chosen) if way == "range" else by_module(trace, chosen)
    if way == "family":
        return families(analysis.gpu_work, chosen) if kernels is None else by_family(kernels)
    return by_kernel(analysis.gpu_work, chosen) if kernels is None else kernels

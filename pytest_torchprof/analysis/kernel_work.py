"""Which kernels did the work that their operators' operands tell of, by the formulas of kernels/operand_work.py."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from pytest_torchprof.kernels.names.kernelname import PRODUCTS
from pytest_torchprof.kernels.operand_work import (
    FAMILIES,
    OperandWork,
    counts_flops,
    has_formula,
    has_formula_for,
    work_of,
)
from pytest_torchprof.kernels.operands import may_help
from pytest_torchprof.trace.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.trace import Trace

Variant = tuple[int, int, int]
"""A kernel's name and its operator's (both by their places in ``Trace.names``), and the operator's set of operands.

Without an operator the latter two are ABSENT.
"""


class KernelVariants:
    """Kernels of a recording by variant."""

    def __init__(self, trace: Trace, launching: Launching, kernels: Iterable[int]) -> None:
        """Group the kernels, each group in their order."""
        self._trace, self._launching = trace, launching
        named, op_of, op_named, inputs = trace.gpu.name, launching.op_of, trace.ops.name, trace.ops.inputs
        kernels_of: dict[Variant, list[int]] = defaultdict(list)
        for i in kernels:
            op = op_of[i]
            kernels_of[(named[i], op_named[op], inputs[op]) if op >= 0 else (named[i], ABSENT, ABSENT)].append(i)
        self.kernels: Mapping[Variant, list[int]] = dict(kernels_of)
        """The kernels of each variant."""
        self._works: dict[Variant, OperandWork | None] = {}

    def work_of(self, variant: Variant) -> OperandWork | None:
        """Return the work of one kernel of a variant, as far as the operands are recorded; None without a formula.

        A kernel does its operator's work where it is the only one of its kind in the call: of products and convolutions
        beside helpers, of pointwise operators and copies at all.
        """
        if variant not in self._works:
            self._works[variant] = self._work_of(variant) if variant in self._in_question else None
        return self._works[variant]

    def _work_of(self, variant: Variant) -> OperandWork | None:
        (name, op, inputs), kernels, launching = variant, self.kernels[variant], self._launching
        operator, decoded = self._trace.names[op], launching.named(name)
        if max(map(self._launched.__getitem__, map(launching.op_of.__getitem__, kernels))) > 1 or (
            may_help(decoded) and self._any_helps(kernels)
        ):
            return None
        types, shapes, strides = launching.operands(inputs)
        if (decoded.family in PRODUCTS) != counts_flops(operator) or not has_formula_for(operator, types, shapes):
            return None
        return work_of(operator, types, shapes, strides, launching.settings(inputs))

    @cached_property
    def _in_question(self) -> frozenset[Variant]:
        """The variants whose kernels may do the work of an operator for which there is a formula."""
        names, launching = self._trace.names, self._launching
        with_formula = {op for op in {op for _, op, _ in self.kernels} if op != ABSENT and has_formula(names[op])}
        decoded = {name: launching.named(name) for name in {name for name, op, _ in self.kernels if op in with_formula}}
        working = {
            name for name, kernel_name in decoded.items() if kernel_name.family in FAMILIES and not kernel_name.helper
        }
        return frozenset(variant for variant in self.kernels if variant[0] in working and variant[1] in with_formula)

    @cached_property
    def _launched(self) -> Counter[int]:
        """How many of these kernels each operator has launched."""
        in_question = map(self.kernels.__getitem__, self._in_question)
        return Counter(map(self._launching.op_of.__getitem__, chain.from_iterable(in_question)))

    def _any_helps(self, kernels: Sequence[int]) -> bool:
        """Return whether one of a variant's kernels only helps a product, which the ranges around its launch tell."""
        launching = self._launching
        return any(launching.decoded(i).helper is not None for i in launching.one_of_each_chain(kernels))

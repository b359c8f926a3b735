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

    @cached_property
    def work(self) -> Mapping[Variant, OperandWork]:
        """The work of one kernel of each variant for which there is a formula, as far as the operands are recorded.

        A kernel does its operator's work where it is the only one of its kind in the call: of products and convolutions
        beside helpers, of pointwise operators and copies at all.
        """
        names, launching, op_of = self._trace.names, self._launching, self._launching.op_of
        with_formula = {op for op in {op for _, op, _ in self.kernels} if op != ABSENT and has_formula(names[op])}
        decoded = {name: launching.named(name) for name in {name for name, op, _ in self.kernels if op in with_formula}}
        working = {
            name for name, kernel_name in decoded.items() if kernel_name.family in FAMILIES and not kernel_name.helper
        }
        in_question = {
            variant: kernels
            for variant, kernels in self.kernels.items()
            if variant[0] in working and variant[1] in with_formula
        }
        launched = Counter(map(op_of.__getitem__, chain.from_iterable(in_question.values())))
        works = {}
        for (name, op, inputs), kernels in in_question.items():
            if max(map(launched.__getitem__, map(op_of.__getitem__, kernels))) > 1 or (
                may_help(decoded[name]) and self._any_helps(kernels)
            ):
                continue
            types, shapes, strides = launching.operands(inputs)
            is_product = decoded[name].family in PRODUCTS
            if is_product == counts_flops(names[op]) and has_formula_for(names[op], types, shapes):
                works[name, op, inputs] = work_of(names[op], types, shapes, strides, launching.settings(inputs))
        return works

    def _any_helps(self, kernels: Sequence[int]) -> bool:
        """Return whether one of a variant's kernels only helps a product, which the ranges around its launch tell."""
        launching = self._launching
        return any(launching.decoded(i).helper is not None for i in launching.one_of_each_chain(kernels))

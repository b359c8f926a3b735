"""Which kernels did the work that their operators' operands tell of, by the formulas of kernels/operand_work.py."""

from __future__ import annotations

from collections import Counter
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.analysis.launches import Launching
    from pytest_torchprof.trace import Trace

Variant = tuple[int, int, int]
"""A kernel's name, its operator's name (both by their places in ``Trace.names``) and the operator's set of operands."""


def work_by_variant(trace: Trace, launching: Launching, kernels: Iterable[int]) -> Mapping[Variant, OperandWork]:
    """Return the work of one kernel of each variant of which a formula tells it, as far as the operands are recorded.

    A kernel does its operator's work where it is the only one of its kind in the call: of products and convolutions
    beside helpers, of pointwise operators and copies at all.
    """
    names, op_of, ops, named = trace.names, launching.op_of, trace.ops, trace.gpu.name
    known = {name for name in set(ops.name) if has_formula(names[name])}
    of_ops = [i for i in kernels if op_of[i] >= 0 and ops.name[op_of[i]] in known]
    decoded = {name: launching.named(name) for name in {named[i] for i in of_ops}}
    working = {name for name, one in decoded.items() if one.family in FAMILIES and not one.helper}
    launched = Counter(op_of[i] for i in of_ops if named[i] in working)
    variants: dict[Variant, bool] = {}
    for i in of_ops:
        op = op_of[i]
        variant = named[i], ops.name[op], ops.inputs[op]
        # The cheaper questions first: a variant has thousands of kernels.
        variants[variant] = (
            variants.get(variant, True)
            and named[i] in working
            and launched[op] == 1
            and launching.decoded(i).helper is None
        )
    found = {}
    for variant in (variant for variant, alone in variants.items() if alone):
        name, op_name, inputs = variant
        types, shapes, strides = launching.operands(inputs)
        is_product = decoded[name].family in PRODUCTS
        if is_product == counts_flops(names[op_name]) and has_formula_for(names[op_name], types, shapes):
            found[variant] = work_of(names[op_name], types, shapes, strides, launching.settings(inputs))
    return found

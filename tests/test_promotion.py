"""Types that an operator computes in and none of its operands has: torch's promotion, conversions, wider sums."""

from __future__ import annotations

import pytest
import torch
from test_forbidden_operators import outcome
from test_names_not_known import double, on_cpu, picked, single
from torch.nn import functional

pytestmark = pytest.mark.any_torch

halves, brain = single.half(), single.bfloat16()
whole, small = torch.arange(16), torch.arange(16, dtype=torch.int8)
complex_single, complex_double = single.cfloat(), double.cdouble()

MAKE_FLOATS = (
    torch.sin,
    torch.angle,
    torch.polygamma,
    torch.special.i0,
    torch.special.entr,
    torch.special.zeta,
    torch.special.xlog1py,
    torch.special.log_ndtr,
    torch.special.erfcx,
    torch.copysign,
)
TWO = {torch.copysign, torch.special.zeta, torch.special.xlog1py}


def floats_of(operator, integers):
    """Call an operator that makes floats of integers."""
    if operator is torch.polygamma:
        return operator(1, integers)
    return operator(integers, integers) if operator in TWO else operator(integers)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (lambda: brain + halves, "fp32"),
        (lambda: torch.where(single > 0, brain, halves), "*fp32*"),
        (lambda: small + small.to(torch.uint8), "int16"),
        (lambda: complex_single + double, "complex128"),
        (lambda: double.cfloat(), "fp64"),
        (lambda: double.long(), "int64"),
        (lambda: whole.float(), "int64"),
        (lambda: torch.polar(double, double), "fp64"),
        (lambda: complex_double.abs(), "fp64"),
        (lambda: torch.fft.irfft(complex_double), "fp64"),
        (lambda: torch.add(whole, whole, out=torch.empty(16)), "int64"),
        (lambda: torch.add(double, double, out=torch.empty_like(complex_double)), "fp64"),
        (lambda: whole.int().sum(), "int64"),
        (lambda: torch.bincount(whole, brain[0]), "fp64"),
        *((lambda op=op, of=of: floats_of(op, of), "fp32") for op in MAKE_FLOATS for of in (whole, small)),
    ],
)
def test_a_type_that_no_operand_has_and_the_operator_may_compute_in_is_not_measured(code, text):
    for limits in ({"forbid_kernels": text}, {"kernels": {text: 0}}):
        assert outcome(on_cpu(code), **limits) in ("not measured", "missed"), limits


def test_types_that_no_operand_has_are_supposed_only_where_torch_makes_them():
    """What surely stays in the types of its operands keeps every other type forbidden."""
    mask, number = single > 0, torch.tensor(2.0, dtype=torch.float64)
    for code in (
        lambda: mask * single,
        lambda: single * mask,
        lambda: single * number,
        lambda: single + whole,
        lambda: torch.where(mask, single, 0.0),
        lambda: single.masked_fill(mask, 0.0),
        lambda: functional.embedding(picked, single),
    ):
        on_cpu(code).expect(forbid_kernels=["fp64", "*fp64*", "bf16", "fp16", "complex64"], kernels=["fp32"])
    for code in (lambda: whole + 1, lambda: whole * whole, lambda: whole.clamp(0, 2), lambda: whole.sort()):
        on_cpu(code).expect(forbid_kernels=["fp64", "fp32", "bf16"])
    on_cpu(lambda: complex_single * complex_single).expect(forbid_kernels=["fp64", "fp32"], kernels=["complex64"])

"""What is not known never holds: no limit holds on less knowledge that would not hold whatever the truth is.

Of each recording one kernel's family, dtype or layout, its operator or that one's operands, is taken away. A limit that
holds then must hold for every truth that this may be.
"""

from __future__ import annotations

import pytest
import torch
from builder import TraceBuilder
from msgspec.structs import replace
from test_every_word import GEMM, TABLE, recorded

from pytest_torchprof import attention, communication, conv, family, gemm, library, load, profile
from pytest_torchprof.findings import RULES
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.kernels.names.kernelname import FAMILIES, KernelName
from pytest_torchprof.kernels.own_kernels import OwnKernels
from pytest_torchprof.limits import HOLDS, LIMITS, MISSED, NOT_MEASURED, check_limits, read_limits
from pytest_torchprof.limits.rank_limits import RANK_LIMITS

pytestmark = pytest.mark.any_torch

SELECTORS = [
    *(family(name) for name in FAMILIES),
    gemm(),
    gemm(dtype="bf16"),
    gemm(layout="tn"),
    gemm(tensor_core=True),
    gemm(library="cublas"),
    gemm(op="aten::mm"),
    conv(),
    attention(),
    attention(fused=False),
    communication(),
    communication("all_reduce"),
    family("pointwise", dtype="fp32"),
    library("cublas"),
    # Texts on what tables would show, if they knew.
    *("*gemm*", "re:^(gemm|conv)", "gemm bf16", "*reduc*", "*bf16*", "fp8", "fp32"),
]
PATTERNS = [
    *({"forbid_kernels": one} for one in SELECTORS),
    *({"only_kernels": [one, "triton_*", "nccl*"]} for one in SELECTORS),
    *({"kernels": {one: count}} for one in SELECTORS for count in (0, 1, 2, (0, 1))),
]
WORDS = [limits for pair in TABLE for limits in pair]
FINDINGS = [{"forbid": rule.code} for rule in RULES]
ASKED = [
    *WORDS,
    *PATTERNS,
    *FINDINGS,
    *({"ranges": {"block": limits}} for limits in PATTERNS[:: len(FAMILIES)]),
    {"forbid_ops": "aten::mm"},
    {"collectives": {"all_reduce": (0, 1)}},
]


class Knowledge(OwnKernels, frozen=True, kw_only=True):
    """What names say, but of one, of which it is something else."""

    name: str
    said: KernelName

    def decode(self, name):
        """Return what the name says."""
        return self.said if name == self.name and not self.supposed else super().decode(name)


def verdicts(analysis, asked=ASKED):
    """Return what each of the limits comes to."""
    return [check_limits(analysis, read_limits(limits))[0].status for limits in asked]


def unsound(known, truths, asked=ASKED):
    """Return the limits that hold on what is known, and do not on one of the truths; with that one."""
    held = [limits for limits, status in zip(asked, verdicts(known, asked), strict=True) if status == HOLDS]
    found = []
    for truth, analysis in truths.items():
        found += [
            (truth, limits) for limits, is_now in zip(held, verdicts(analysis, held), strict=True) if is_now != HOLDS
        ]
    return found


def told_of(analysis, name, said):
    return analysis.as_if(Knowledge(name=name, said=said))


KERNELS = [GEMM, "triton_poi_fused_add_mul_0"]


@pytest.mark.parametrize("name", KERNELS)
def test_a_family_that_is_not_known_never_holds(tmp_path, name):
    found, stem = recorded(tmp_path), "k"
    truths = {one: told_of(found, name, KernelName(family=one, dtype="fp8", stem=stem)) for one in FAMILIES}
    truths |= {"gemm tn": told_of(found, name, KernelName(family="gemm", dtype="bf16", layout="tn", stem=stem))}
    assert unsound(told_of(found, name, KernelName(stem=stem)), truths) == []


def test_of_what_is_known_not_to_be_a_product_limits_on_products_hold(tmp_path):
    found, never = recorded(tmp_path), frozenset({"gemm", "conv", "attention", "communication"})
    known = told_of(found, GEMM, KernelName(never=never, stem="k"))
    asked = [{"forbid_kernels": [gemm(), conv(), attention(), communication("broadcast")]}, {"kernels": {gemm(): 0}}]
    assert verdicts(known, [*asked, {"collectives": {"all_reduce": 1}}]) == [HOLDS] * 3
    assert verdicts(known, [{"forbid_kernels": family("reduction")}, {"min_mfu": 0.01}])[0] == NOT_MEASURED
    truths = {one: told_of(found, GEMM, KernelName(family=one, stem="k")) for one in set(FAMILIES) - never}
    assert unsound(known, truths) == []


@pytest.mark.parametrize("field", ["dtype", "layout", "tensor_core", "tile"])
def test_a_field_that_is_not_known_never_holds(tmp_path, field):
    # Tensor cores compute in no fp32, so that of a product on them less is open.
    found, said = recorded(tmp_path), replace(decode(GEMM), tensor_core=None if field == "dtype" else True)
    values = {"dtype": ["bf16", "fp16", "fp8", "fp32"], "layout": ["tn", "nn"], "tensor_core": [True, False]}
    truths = [replace(said, **{field: value}) for value in values.get(field, [(128, 128), (64, 64)])]
    truths = {getattr(one, field): told_of(found, GEMM, one) for one in truths}
    asked = [*ASKED, {"forbid_kernels": gemm(tile="64x64")}, {"forbid_kernels": gemm(dtype="fp8")}]
    assert unsound(told_of(found, GEMM, replace(said, **{field: None})), truths, asked) == []


def launched(folder, name, *, op, inputs=None, graph=False):
    """Return one step of a kernel that an operator launches, or a graph."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 1000)
    builder.launched("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)", 10, op="aten::sum")
    if graph:
        builder.kernel(name, 300, 10, builder.graph_launch(100))
    else:
        builder.launched(name, 100, op=op, inputs=inputs)
    builder.sync(900, 20)
    return load(builder.write(folder / f"{op}-{graph}-{inputs is not None}.json".replace(":", "")))


SGEMM = "volta_sgemm_128x64_nn"
OPERATORS = [
    *({"forbid_kernels": one} for one in (gemm(op="aten::mm"), gemm(op="bmm"), attention(fused=False))),
    *({word: "aten::mm"} for word in ("ops", "forbid_ops")),
    *({"ops": {"aten::mm": count}} for count in (0, 1, (0, 1))),
    *({"kernels": {gemm(op="aten::mm"): count}} for count in (0, 1)),
]


def test_an_operator_that_is_not_known_never_holds(tmp_path):
    known = launched(tmp_path, SGEMM, op="graph", graph=True)
    attended = "aten::_scaled_dot_product_attention_math"
    truths = {op: launched(tmp_path, SGEMM, op=op) for op in ("aten::mm", "aten::bmm", attended)}
    assert unsound(known, truths, OPERATORS) == []
    assert MISSED in {status for truth in truths.values() for status in verdicts(truth, OPERATORS)}


def test_operands_that_are_not_known_never_hold(tmp_path):
    name = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::MulFunctor<X>>>(x)"
    asked = [
        {word: family("pointwise", dtype=dtype)} for dtype in ("fp32", "bf16") for word in ("forbid_kernels", "kernels")
    ]
    truths = {
        told: launched(tmp_path, name, op="aten::mul", inputs=[((8, 8), (8, 1), told)] * 2)
        for told in ("float", "c10::BFloat16")
    }
    assert unsound(launched(tmp_path, name, op="aten::mul"), truths, asked) == []
    assert {HOLDS, MISSED} <= set(verdicts(truths["float"], asked))


def step(conv_of, x):
    y = torch.softmax(x @ x, dim=-1) + x
    return conv_of(y.reshape(1, 1, 64, 64)).sum() + y.index_select(0, torch.arange(4)).sum()


def test_live_neither():
    asked = [*PATTERNS, {"max_kernels": 50}, {"ops": "aten::mm"}, {"forbid_ops": "aten::bmm"}, *FINDINGS]
    with torch.no_grad():
        found = profile(step, torch.nn.Conv2d(1, 2, 3), torch.randn(64, 64), device="cpu", warmup=1, steps=1)
    for name in ("aten::mm", "aten::_softmax", "aten::add"):
        # Of torch.distributed's collectives each is an operator of its own.
        others = set(FAMILIES) - {"communication"}
        truths = {one: told_of(found, name, KernelName(family=one, stem="k")) for one in others}
        assert unsound(told_of(found, name, KernelName(stem="k")), truths, asked) == []


def test_the_property_asks_every_word():
    asked = {word for limits in ASKED for word in limits}
    assert asked >= {limit.name for limit in LIMITS if limit not in RANK_LIMITS}


def test_a_reply_has_no_truth_value(tmp_path):
    kernel = recorded(tmp_path).kernels[0]
    with pytest.raises(TypeError, match="compare it with one of them"):
        bool(gemm().verdict(kernel))

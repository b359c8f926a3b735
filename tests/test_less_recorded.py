"""What a recording does not hold keeps no limit: with less of it than there was, none holds that would not with all."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from builder import CUDA, TraceBuilder, write
from test_every_word import TABLE
from test_not_known import PATTERNS

from pytest_torchprof import NotMeasured, TorchprofError, family, gemm, load, triton
from pytest_torchprof.findings import RULES, with_thresholds
from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, check_limits, read_limits

pytestmark = pytest.mark.any_torch

FINDINGS = [{"forbid": rule.code} for rule in RULES]
PRODUCTS = [f"ampere_bf16_s16816gemm_bf16_{tile}_ldg8_f2f_stages_32x5_tn" for tile in ("128x128", "128x64", "64x64")]
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(x)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(x)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(x)"


def matrices(*shapes, dtype="c10::BFloat16"):
    return [(shape, (*shape[1:], 1)[-len(shape) :], dtype) for shape in shapes]


def telling():
    """Return steps of odd sizes, chains of pointwise kernels, attention in three, a copied bias, a constant of many."""
    builder = TraceBuilder()
    for number in range(2):
        at = 10_000 * number
        builder.step(number, at, 9000)
        builder.op("aten::linear", at + 5, 400)
        for place, name in enumerate(PRODUCTS):
            odd = matrices((64, 63), (63, 31))
            builder.launched(name, at + 10 + 100 * place, op="aten::mm", dur=80, inputs=odd)
        for place in range(6):
            same = matrices((64, 64), dtype="float")
            builder.launched(POINTWISE, at + 500 + 40 * place, op="aten::mul", dur=30, inputs=same)
        batch, scores = matrices((8, 64, 64), (8, 64, 64)), matrices((8, 64, 64))
        builder.launched(PRODUCTS[0], at + 1000, op="aten::bmm", dur=2, inputs=batch)
        builder.launched(SOFTMAX, at + 1050, op="aten::_softmax", dur=20, inputs=scores)
        builder.launched(PRODUCTS[0], at + 1100, op="aten::bmm", dur=2, inputs=batch)
        builder.op("aten::addmm", at + 1200, 60)
        builder.launched(COPY, at + 1210, op="aten::copy_", dur=20, inputs=matrices((64, 64)))
        for place in range(30):
            made = {"inputs": [((), (), "Scalar")], "Concrete Inputs": ["14"]}
            builder.op("aten::arange", at + 2000 + 20 * place, 15, **made)
    builder.sync(21_000, 20)
    return builder.document()


SEEN = {"misaligned-gemm", "unfused-pointwise", "unfused-attention", "hidden-copy", "hotspot", "repeated-constant"}
"""What is found in this, and read from operators."""


def events_without(category):
    return lambda events: [event for event in events if event.get("cat") != category]


def arguments_without(*names):
    def less(events):
        kept = [{key: value for key, value in event.get("args", {}).items() if key not in names} for event in events]
        return [{**event, "args": args} for event, args in zip(events, kept, strict=True)]

    return less


def replayed(events):
    """A graph launches each kernel."""
    return [{**event, "name": CUDA["graph"]} if event.get("name") == CUDA["launch"] else event for event in events]


LESS = {
    "no operators": events_without("cpu_op"),
    "no operands": arguments_without("Input Dims", "Input type", "Input Strides", "Concrete Inputs"),
    "no shapes": arguments_without("Input Dims"),
    "no types": arguments_without("Input type"),
    "no strides": arguments_without("Input Strides"),
    "no launches": arguments_without("correlation", "External id"),
    "no arguments of launches": arguments_without("blocks per SM", "warps per SM", "est. achieved occupancy %"),
    "no sizes of copies": arguments_without("bytes"),
    "CUDA graphs": replayed,
}


def status(path, limits):
    try:
        return check_limits(load(path), read_limits(limits))[0].status
    except TorchprofError:
        return NOT_MEASURED


def less_of(document, what):
    return {**document, "traceEvents": LESS[what](document["traceEvents"])}


@pytest.mark.parametrize("threshold", ["misaligned-gemm.share = 0.01", "hotspot.share = 0.03"])
def test_what_is_too_short_for_a_finding_depends_on_its_thresholds(tmp_path, threshold):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    for place, name in enumerate(PRODUCTS):
        builder.launched(name, 10 + 100 * place, op=f"aten::mm{place}", dur=33, inputs=matrices((64, 64), (64, 64)))
    builder.kernel(PRODUCTS[1], 500, 4, builder.graph_launch(400))
    profile, code = load(builder.write(tmp_path / "t.json")), threshold.partition(".")[0]
    (rule,) = (rule for rule in RULES if rule.code == code)
    assert rule.blind(profile) is None
    (rule,) = (rule for rule in with_thresholds(RULES, [threshold]) if rule.code == code)
    assert rule.blind(profile) is not None


def test_what_is_known_and_what_is_not_may_be_a_finding_together(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.launched(PRODUCTS[0], 10, op="aten::mm", dur=93, inputs=matrices((64, 64), (64, 64)))
    builder.launched(PRODUCTS[1], 200, op="aten::mm", dur=4, inputs=matrices((64, 63), (63, 31)))
    load(builder.write(tmp_path / "few.json")).expect(forbid="misaligned-gemm")
    builder.kernel(PRODUCTS[2], 500, 3, builder.graph_launch(400))
    assert status(builder.write(tmp_path / "t.json"), {"forbid": "misaligned-gemm"}) == NOT_MEASURED


@pytest.mark.parametrize("what", LESS)
def test_no_finding_is_absent_that_cannot_be_seen(tmp_path, what):
    whole = telling()
    path = write(tmp_path / "whole.json", json.dumps(whole))
    found = {rule.code for rule in RULES if status(path, {"forbid": rule.code}) == MISSED}
    assert found >= SEEN
    path = write(tmp_path / "less.json", json.dumps(less_of(whole, what)))
    assert {code for code in found if status(path, {"forbid": code}) == HOLDS} == set()


def test_what_torch_records_of_settings_is_no_shape(tmp_path):
    """Without shapes torch still writes an operator's group, as it does of collectives."""
    document = less_of(telling(), "no operands")
    for event in document["traceEvents"]:
        if event["name"] == "aten::arange":
            event["args"]["Concrete Inputs"] = ["14"]
    profile = load(write(tmp_path / "t.json", json.dumps(document)))
    with pytest.raises(NotMeasured, match="shapes are not recorded"):
        profile.expect(forbid="misaligned-gemm")


def test_products_of_a_graph_beside_others_may_be_the_odd_ones(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.launched(PRODUCTS[0], 10, op="aten::mm", dur=100, inputs=matrices((64, 64), (64, 64)))
    builder.kernel(PRODUCTS[1], 300, 4, builder.graph_launch(200))
    load(builder.write(tmp_path / "few.json")).expect(forbid="misaligned-gemm")
    builder.kernel(PRODUCTS[1], 320, 40, builder.graph_launch(250))
    profile = load(builder.write(tmp_path / "many.json"))
    for code in ("misaligned-gemm",):
        with pytest.raises(
            NotMeasured, match=r"of some products it is not known which sizes they have \[not-recorded\]"
        ):
            profile.expect(forbid=code)


def test_a_kernel_of_a_plain_name_whose_launch_is_not_recorded_may_be_tritons(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.kernel("my_rope", 100, 5, builder.call("cuLaunchKernel", 90, driver=True))
    whole, limits = builder.document(), {"forbid_kernels": triton("user")}
    assert status(write(tmp_path / "t.json", json.dumps(whole)), limits) == MISSED
    assert status(write(tmp_path / "t.json", json.dumps(less_of(whole, "no launches"))), limits) == NOT_MEASURED


DTYPES = [
    {word: made(dtype=dtype)}
    for word in ("forbid_kernels", "only_kernels")
    for made in (gemm, partial(family, "pointwise"), partial(family, "normalization"))
    for dtype in ("fp32", "bf16", "fp64")
]
ASKED = [*FINDINGS, *(limits for pair in TABLE for limits in pair), *PATTERNS[::3], *DTYPES]


OWN = sorted((Path(__file__).parent / "recordings").glob("test_transformer_step*before*"))


@pytest.fixture(
    params=["h100_bert_small", "h100_transformer_three_steps", "mi300x_compile_tiny", *OWN],
    ids=lambda one: getattr(one, "name", one),
)
def real(request, shared_trace):
    path = request.param if isinstance(request.param, Path) else shared_trace(request.param)
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("what", LESS)
def test_of_real_recordings_no_limit_holds_on_less(tmp_path, real, what):
    whole, less = (
        load(write(tmp_path / f"{place}.json", json.dumps(one)))
        for place, one in enumerate((real, less_of(real, what)))
    )
    # That there is a graph is what changes, and nothing that is less known.
    asked = [one for one in ASKED if "cuda_graph" not in one]
    held = [one for one in asked if check_limits(less, read_limits(one))[0].status == HOLDS]
    assert [one for one in held if check_limits(whole, read_limits(one))[0].status == MISSED] == []

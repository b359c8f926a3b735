"""What a recording does not hold keeps no limit: with less of it than there was, none holds that would not with all."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from builder import CUDA, TraceBuilder, write
from conftest import recording_of
from facts import why_not
from test_every_word import TABLE
from test_not_known import PATTERNS

from pytest_torchprof import TorchprofError, family, gemm, load, triton
from pytest_torchprof.findings import RULES, with_thresholds
from pytest_torchprof.limits import HOLDS, LIMITS, MISSED, NOT_MEASURED, check_limits, read_limits
from pytest_torchprof.reasons.findings import (
    BlocksOfSomeUnknown,
    BoundsOfSomeUnknown,
    CopiesOfSomeUnknown,
    ElementsOfSomeUnknown,
    OperatorsOfSomeUnknown,
    OptimizerOfSomeUnknown,
    SizesOfSomeUnknown,
    WarpsOfSomeUnknown,
)

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


class Partly:
    """A step of which something is recorded of a part of the kernels; ``take`` adds them one after the other."""

    def __init__(self, *, rocm=False):
        self.builder, self.at, self.spent = TraceBuilder(rocm=rocm), 10, 0
        self.builder.metadata["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
        self.builder.own(steps=1)
        self.builder.step(0, 0, 200_000)

    def take(self, name, dur, *, op, inputs=(((16, 16), (16, 1), "float"),), **args):
        self.builder.launched(name, self.at, op=op, dur=dur, inputs=inputs, **args)
        self._on(dur)

    def take_of_graph(self, name, dur):
        self.builder.kernel(name, self.at + 5, dur, self.builder.graph_launch(self.at))
        self._on(dur)

    def take_unlaunched(self, name, dur):
        self.builder.kernel(name, self.at + 5, dur, self.builder.unrecorded())
        self._on(dur)

    def take_inside(self, outer, name, dur, **args):
        self.builder.op(outer, self.at - 1, 50)
        self.take(name, dur, **args)

    def _on(self, dur):
        self.at, self.spent = self.at + 60 + dur, self.spent + dur

    def fill_up(self, dur):
        """Make it so much kernel time, by a kernel about which no rule of these says anything."""
        self.take(SOFTMAX, dur - self.spent, op="aten::_softmax", blocks_per_sm=8.0)
        self.builder.sync(201_000, 20)


def few_blocks(step, *, known):
    step.take(POINTWISE, 120, op="aten::mul", blocks_per_sm=0.5 if known else None)


def few_warps(step, *, known):
    step.take(POINTWISE, 60, op="aten::mul", blocks_per_sm=64.0, occupancy=12 if known else None)


def few_warps_on_any_grid(step, *, known):
    step.take(POINTWISE, 60, op="aten::mul", blocks_per_sm=64.0 if known else None, occupancy=12)


def many_calls(step, *, known):
    for _ in range(60):
        if known:
            step.take(POINTWISE, 2, op="aten::mul")
        else:
            step.take_unlaunched(POINTWISE, 2)


def each_tensor(step, *, known):
    if not step.spent:
        step.builder.annotation("Optimizer.step#SGD.step", 5, 40_000)
    for _ in range(12):
        if known:
            step.take(POINTWISE, 2, op="aten::mul_")
        else:
            step.take_unlaunched(POINTWISE, 2)


def far_from_its_peak(step, *, known):
    step.take(POINTWISE, 50, op="aten::mul") if known else step.take_of_graph(POINTWISE, 50)
    step.take(POINTWISE, 2, op="aten::add")


def far_from_a_peak(step, *, known):
    step.take(POINTWISE, 50, op="aten::mul", **({} if known else {"inputs": None}))
    step.take(POINTWISE, 2, op="aten::add")


def far_on_some_strides(step, *, known):
    step.take(POINTWISE, 50, op="aten::mul", inputs=[((16, 16), (16, 1) if known else (), "float")])
    step.take(POINTWISE, 2, op="aten::add")


def copied_bias(step, *, known):
    if known:
        step.take_inside("aten::addmm", COPY, 6, op="aten::copy_")
    else:
        step.take_of_graph(COPY, 6)


def moved_bias(step, *, known):
    if known:
        return copied_bias(step, known=True)
    step.builder.memcpy("DtoD", step.at + 5, 6, step.builder.graph_launch(step.at))
    step.at += 60
    return step.take(POINTWISE, 2, op="aten::mul")


def moved_anywhere(step, *, known):
    if known:
        return copied_bias(step, known=True)
    step.builder.op("aten::addmm", step.at - 1, 50)
    step.builder.kernel("__amd_rocclr_copyBuffer", step.at + 5, 6, step.builder.call("copy", step.at))
    step.at += 60
    return step.take(POINTWISE, 2, op="aten::mul")


def in_a_row(step, *, known):
    for _ in range(3):
        step.take(POINTWISE, 6, op="aten::mul", **({} if known else {"inputs": None}))
    step.take(SOFTMAX, 1, op="aten::_softmax")


def beside_a_graph(step, *, known):
    if known:
        in_a_row(step, known=True)
    else:
        step.take_of_graph(POINTWISE, 12)


PARTLY = [
    (few_blocks, "small-grid", 1000, BlocksOfSomeUnknown),
    (few_warps, "low-occupancy", 1000, WarpsOfSomeUnknown),
    (few_warps_on_any_grid, "low-occupancy", 1000, WarpsOfSomeUnknown),
    (many_calls, "many-small-calls", 1000, OperatorsOfSomeUnknown),
    (each_tensor, "single-tensor-optimizer", 1000, OptimizerOfSomeUnknown),
    (far_from_its_peak, "below-roofline", 1200, BoundsOfSomeUnknown),
    (far_from_a_peak, "below-roofline", 1200, BoundsOfSomeUnknown),
    (far_on_some_strides, "below-roofline", 1200, BoundsOfSomeUnknown),
    (copied_bias, "hidden-copy", 1000, CopiesOfSomeUnknown),
    (moved_bias, "hidden-copy", 1000, CopiesOfSomeUnknown),
    (moved_anywhere, "hidden-copy", 1000, CopiesOfSomeUnknown),
    (in_a_row, "unfused-pointwise", 1000, ElementsOfSomeUnknown),
    (beside_a_graph, "unfused-pointwise", 1000, ElementsOfSomeUnknown),
]
"""What is three fifths of a finding, and whether it is known to be; in how much kernel time; why it is not known."""


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [(1, 0, HOLDS), (0, 1, HOLDS), (2, 0, MISSED), (1, 1, NOT_MEASURED), (0, 2, NOT_MEASURED)],
)
@pytest.mark.parametrize(("part", "code", "whole_us", "why"), PARTLY, ids=lambda one: getattr(one, "__name__", ""))
def test_what_is_recorded_of_a_part_of_the_kernels_is_not_enough(
    tmp_path, part, code, whole_us, why, known, unknown, expected
):
    step = Partly(rocm=part is moved_anywhere)
    for place in range(known + unknown):
        part(step, known=place < known)
    step.fill_up(whole_us)
    (verdict,) = check_limits(load(step.builder.write(tmp_path / "t.json")), read_limits({"forbid": code}))
    assert verdict.status == expected, verdict.text
    because = getattr(verdict.reason, "because", None)
    assert isinstance(because, why) == (expected == NOT_MEASURED)


@pytest.fixture
def forbidding(tmp_path):
    """Return a function that fills a step up to so much kernel time and gives the status of a forbidden finding."""

    def judge(step, code, whole_us):
        step.fill_up(whole_us)
        return status(step.builder.write(tmp_path / "t.json"), {"forbid": code})

    return judge


def test_many_calls_of_an_operator_that_is_not_known_are_small_only_if_they_are_short(forbidding):
    for length, expected in ((2, NOT_MEASURED), (15, HOLDS)):
        step = Partly()
        for _ in range(120):
            step.take_unlaunched(POINTWISE, length)
        assert forbidding(step, "many-small-calls", 4000) == expected


def test_the_short_ones_of_them_make_the_mean_of_an_operator_small(forbidding):
    for short, expected in ((130, HOLDS), (180, NOT_MEASURED)):
        step = Partly()
        for _ in range(100):
            step.take(POINTWISE, 16, op="aten::mul")
        for _ in range(short):
            step.take_unlaunched(POINTWISE, 6)
        # Alone they are too few of all that ran.
        for _ in range(2000):
            step.take(PRODUCTS[0], 1, op="aten::mm")
        assert forbidding(step, "many-small-calls", 10_000) == expected


def test_where_nothing_waits_for_launches_it_need_not_be_known_which_operator_made_them(forbidding):
    step = Partly()
    step.take_of_graph(PRODUCTS[0], 5)
    for _ in range(120):
        step.take_unlaunched(POINTWISE, 2)
    assert forbidding(step, "many-small-calls", 1000) == HOLDS


def test_what_a_graph_launches_beside_the_optimizer_is_not_the_optimizers(forbidding):
    step = Partly()
    for _ in range(40):
        step.take_of_graph(POINTWISE, 2)
    step.builder.annotation("Optimizer.step#SGD.step", step.at, 500)
    step.take(POINTWISE, 2, op="aten::mul_")
    assert forbidding(step, "single-tensor-optimizer", 1000) == HOLDS


def test_what_is_known_of_a_product_may_be_enough_to_tell_that_it_is_not_far_below_its_peak(forbidding):
    # Their 137 GFLOP are 220 us even in int8; how much they move is not known.
    product = [((4096, 4096), (), "c10::BFloat16")] * 2
    for length, expected in ((1000, HOLDS), (1200, NOT_MEASURED)):
        step = Partly()
        step.take(POINTWISE, 2, op="aten::mul")
        step.take(PRODUCTS[0], length, op="aten::mm", inputs=product)
        assert forbidding(step, "below-roofline", 2000) == expected


@pytest.mark.parametrize("op", ["aten::_softmax", "aten::where", "mine::rope"])
def test_of_an_operator_without_a_formula_nothing_is_missing(forbidding, op):
    step = Partly()
    step.take(POINTWISE, 2, op="aten::mul")
    step.take(POINTWISE, 900, op=op, inputs=None)
    assert forbidding(step, "below-roofline", 1000) == HOLDS


def test_an_operator_of_two_types_is_none_of_one_type(forbidding):
    for other, expected in (("long int", HOLDS), ("float", NOT_MEASURED)):
        step = Partly()
        step.take(POINTWISE, 2, op="aten::mul")
        step.take(POINTWISE, 900, op="aten::mul", inputs=[((512, 512), (), "float"), ((512, 512), (), other)])
        assert forbidding(step, "below-roofline", 1000) == expected


def test_kernels_of_unknown_sizes_are_a_chain_only_where_enough_stand_in_a_row(forbidding):
    for number, expected in ((2, HOLDS), (3, NOT_MEASURED)):
        step = Partly()
        for _ in range(number):
            step.take(POINTWISE, 100, op="aten::mul", inputs=None)
        assert forbidding(step, "unfused-pointwise", 1000) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((16, None, 16), NOT_MEASURED),
        ((16, None, 8), HOLDS),
        ((16, 16, None, 8), NOT_MEASURED),
        ((16, None, 8, 8), NOT_MEASURED),
        ((16, "none", 16), HOLDS),
        ((None, "none", None, None), HOLDS),
        (("none", None, None, None, "none"), NOT_MEASURED),
    ],
)
def test_one_of_an_unknown_size_may_make_a_chain_of_those_beside_it(forbidding, sizes, expected):
    step = Partly()
    for size in sizes:
        operands = [] if size == "none" else [((size,), (1,), "float")]
        step.take(POINTWISE, 100, op="aten::mul", inputs=None if size is None else operands)
    assert forbidding(step, "unfused-pointwise", 1000) == expected


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
    assert why_not(lambda: profile.expect(forbid="misaligned-gemm")).code == "not-recorded"


def test_products_of_a_graph_beside_others_may_be_the_odd_ones(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.launched(PRODUCTS[0], 10, op="aten::mm", dur=100, inputs=matrices((64, 64), (64, 64)))
    builder.kernel(PRODUCTS[1], 300, 4, builder.graph_launch(200))
    load(builder.write(tmp_path / "few.json")).expect(forbid="misaligned-gemm")
    builder.kernel(PRODUCTS[1], 320, 40, builder.graph_launch(250))
    profile = load(builder.write(tmp_path / "many.json"))
    assert isinstance(why_not(lambda: profile.expect(forbid="misaligned-gemm")).because, SizesOfSomeUnknown)


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
    scope="module",
    params=["h100_bert_small", "h100_transformer_three_steps", "mi300x_compile_tiny", *OWN],
    ids=lambda one: getattr(one, "name", one),
)
def real(request):
    """Return a recording as it is written, and those limits that it misses."""
    path = request.param if isinstance(request.param, Path) else recording_of(request.param)
    whole = load(path)
    # That there is a graph is what changes, and nothing that is less known.
    asked = [one for one in ASKED if "cuda_graph" not in one]
    missed = [one for one in asked if check_limits(whole, read_limits(one))[0].status == MISSED]
    assert missed
    return json.loads(gzip.decompress(path.read_bytes())), missed


@pytest.mark.parametrize("what", LESS)
def test_of_real_recordings_no_limit_holds_on_less(tmp_path, real, what):
    document, missed = real
    less = load(write(tmp_path / "less.json", json.dumps(less_of(document, what))))
    assert [one for one in missed if check_limits(less, read_limits(one))[0].status == HOLDS] == []


OF_EVENTS_ALONE = {
    "max_kernels": 3,
    "min_kernels": 100,
    "max_launches": 3,
    "max_memcpys": 0,
    "max_memsets": 0,
    "max_syncs": 0,
    "max_cpu_gpu_ratio": 1,
    "min_gpu_utilization": 0.5,
    "min_sm_efficiency": 0.5,
    "max_gpu_time": "1 us",
    "max_peak_memory": "1 MB",
    "ops": {"aten::mm": 1},
    "forbid_ops": ["aten::mm", "aten::softmax"],
}


@pytest.mark.parametrize("name", [limit.name for limit in LIMITS if limit.of_events_alone])
def test_limits_of_events_alone_are_judged_as_well_without_operands(tmp_path, name):
    asked = read_limits({name: OF_EVENTS_ALONE[name]})
    whole = load(write(tmp_path / "whole.json", json.dumps(telling())))
    less = load(write(tmp_path / "less.json", json.dumps(less_of(telling(), "no operands"))))
    of_whole, of_less = (
        [(verdict.status, verdict.seen, verdict.number, verdict.reason) for verdict in check_limits(profile, asked)]
        for profile in (whole, less)
    )
    assert of_less == of_whole

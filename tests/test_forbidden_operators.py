"""A forbidden operator must not run; one that nothing can be called is refused, or not measured, and never forbidden in vain."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from builder import TraceBuilder
from conftest import SHARED_TRACES
from facts import LEFT_OUT, misses, says, why_not

from pytest_torchprof import LimitsMissed, NotMeasured, UnknownLimit, gemm, load, mark, profile, triton
from pytest_torchprof.kernels import operator_names
from pytest_torchprof.kernels.selectors import compile_op_pattern
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.limits.evidence import IdleOperators
from pytest_torchprof.limits.seen import ForbiddenMatches, MatchesSeen
from pytest_torchprof.reasons.names_asked import NoSuchOperator, OnlyNamespace
from pytest_torchprof.reasons.operators_untold import NameOfOperator

pytestmark = pytest.mark.any_torch

OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
SHARED = sorted(SHARED_TRACES.glob("*.json.gz"))


def on_cpu(code):
    return profile(code, device="cpu", warmup=0, steps=1)


def outcome(found, **limits):
    try:
        found.expect(**limits)
    except LimitsMissed:
        return "missed"
    except NotMeasured:
        return "not measured"
    return "holds"


number, vector = torch.tensor(1.5), torch.ones(8)


@pytest.mark.parametrize(
    ("code", "op"),
    [
        (lambda: vector.add(1)[0].item(), "aten::item"),
        (lambda: float(vector.sum()), "item"),
        (lambda: int(vector.sum()), "aten::_local_scalar_dense"),
        (lambda: bool(vector.sum()), "aten::is_nonzero"),
        (lambda: vector.sum().tolist(), "aten::resolve_conj"),
        (lambda: [1, 2][number.to(torch.int64)], "aten::item"),
        (lambda: vector[vector > 0], "aten::nonzero"),
        (lambda: torch.equal(vector, vector), "aten::equal"),
        (lambda: vector.add(1).view(2, 4), "aten::view"),
        (lambda: vector.add(1).to("cpu"), "aten::to"),
        (lambda: torch.empty(8).add_(1), "aten::empty"),
        (lambda: torch.empty(8).add_(1), "aten::empt*"),
        (lambda: vector.add(1).detach(), "re:detach$"),
        # A conversion inside of an operator that computes is part of this kernel, and runs nevertheless.
        (lambda: vector.to(torch.float64) + vector, "aten::_to_copy"),
    ],
)
def test_an_operator_that_ran_is_missed_though_it_is_no_kernel(code, op):
    (one,) = misses(on_cpu(code), forbid_ops=op).seen
    assert isinstance(one, ForbiddenMatches)
    assert (one.count > 0, one.noun, one.pattern) == (True, "operator", op)


def test_waiting_operators_are_counted_where_the_cpu_is_the_device():
    found = on_cpu(lambda: (vector.sum().item(), bool(vector.sum())))
    assert found.ops["aten::item"] == 2
    found.expect(ops={"aten::item": 2, "aten::is_nonzero": 1}, forbid_ops=["aten::equal", "aten::nonzero"])
    assert found.kernels.count == 2
    for limits in ({"ops": {"aten::item": 0}}, {"ops": {"aten::item": 1}}, {"ops": {"aten::_local_scalar_dense": 0}}):
        assert outcome(found, **limits) == "missed", limits


def test_within_a_range_what_ran_there_counts():
    def code():
        with mark("decode"):
            vector.add(1)[0].item()
        vector.sum().view(1)

    found = on_cpu(code)
    assert outcome(found, ranges={"decode": {"forbid_ops": "aten::item"}}) == "missed"
    assert outcome(found, ranges={"decode": {"forbid_ops": "aten::view"}}) == "holds"
    assert outcome(found, ranges={"decode": {"forbid_ops": "aten::itme"}}) == "not measured"
    assert outcome(found, ranges={"decode": {"forbid_kernels": "pointwise"}}) == "missed"


@pytest.fixture
def on_gpu(tmp_path):
    """Return a step of a GPU: a product, and an operator that launches nothing; a sentinel's fill before it."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 1000)
    builder.op("aten::linear", 90, 60)
    builder.launched("nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNT", 100, op="aten::addmm", dur=20)
    builder.op("aten::is_nonzero", 200, 30)
    builder.op("aten::item", 205, 20)
    builder.op("vllm::unified_attention", 300, 10)
    builder.sync(1100, 20)
    return load(builder.write(tmp_path / "recording.json"))


def test_on_a_gpu_an_operator_that_launched_nothing_is_missed_and_says_so(on_gpu):
    verdict = misses(on_gpu, forbid_ops="aten::item")
    assert verdict.seen == (ForbiddenMatches(1, "operator", "aten::item"),)
    assert [(row.name, row.launched_nothing) for row in verdict.rows] == [("aten::item", True)]
    on_gpu.expect(ops={"aten::addmm": 1, "aten::linear": 1}, forbid_ops=["aten::nonzero", "aten::mm"])
    verdict = misses(on_gpu, ops="aten::item")
    assert verdict.seen == (MatchesSeen(0, "operator", "aten::item", least=1, most=None),)
    assert IdleOperators(1, ("aten::item",)) in verdict.evidence


@pytest.mark.parametrize(
    ("limits", "written", "near"),
    [
        ({"forbid_ops": "aten::clampmin"}, "aten::clampmin", "aten::clamp_min"),
        ({"forbid_ops": "clampmin"}, "clampmin", "clamp_min"),
        ({"forbid_ops": "ReLU"}, "ReLU", "relu"),
        ({"forbid_ops": "aten::*layernorm*"}, "aten::*layernorm*", "aten::layer_norm"),
        ({"forbid_ops": "re:^aten::geluu$"}, "re:^aten::geluu$", None),
        ({"forbid_ops": "mylib::op"}, "mylib::op", None),
        ({"ops": {"aten::clampmin": 0}}, "aten::clampmin", "aten::clamp_min"),
        ({"ops": {"aten::clampmin": (0, 3)}}, "aten::clampmin", "aten::clamp_min"),
        ({"forbid_kernels": "aten::clampmin"}, "aten::clampmin", "aten::clamp_min"),
        ({"forbid_kernels": gemm(op="lienar")}, "lienar", "linear"),
        ({"kernels": {gemm(op="aten::lienar"): 0}}, "aten::lienar", "aten::linear"),
    ],
)
def test_what_no_operator_is_called_is_not_measured_with_the_nearest(on_gpu, limits, written, near):
    reason = why_not(lambda: on_gpu.expect(**limits))
    assert says(reason, NoSuchOperator, written=written, near=near, torch_loaded=True)


@pytest.mark.parametrize(
    "op",
    [
        *(
            "aten::gelu",
            "layer_norm",
            "vllm::unified_attention_2",
            "MulBackward0",
            "*Backward0",
            "Optimizer.step#*",
            "nccl:all_reduce",
        ),
        *(
            "autograd::engine::evaluate_function: MulBackward0",
            "Torch-Compiled Region: 0/0",
            "triton_poi_fused_add_0",
            "aten::_cat",
        ),
        "OurOwnFunction",
    ],
)
def test_what_may_run_and_did_not_is_forbidden_and_holds(on_gpu, op):
    class OurOwnFunction(torch.autograd.Function):
        """It has a range of its name."""

    if op.startswith("vllm"):
        with torch.library._scoped_library("vllm", "DEF") as library:
            library.define("unified_attention_2(Tensor x) -> Tensor")
            on_gpu.expect(forbid_ops=op)
        return
    on_gpu.expect(forbid_ops=op)


def test_an_operators_name_is_no_kernels_and_what_it_launched_is_not_known(on_gpu):
    for limits in (
        {"forbid_kernels": "aten::addmm"},
        {"forbid_kernels": "aten::lin*"},
        {"kernels": {"aten::addmm": 0}},
    ):
        assert says(why_not(partial(on_gpu.expect, **limits)), NameOfOperator)
    on_gpu.expect(forbid_kernels="aten::mm")
    relu = on_cpu(lambda: torch.relu(vector))
    relu.expect(kernels="aten::clamp_min", forbid_kernels="aten::gelu")
    assert outcome(relu, forbid_kernels="aten::relu") == "not measured"


@pytest.mark.parametrize("pattern", ["aten::clampmin", gemm(op="lienar"), gemm(op="aten::mmm")])
def test_kernels_that_nothing_can_match_have_no_number(on_gpu, pattern):
    assert says(why_not(lambda: on_gpu.kernels.matching(pattern).count), NoSuchOperator)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("aten::mm, aten::bmm", "['aten::mm', 'aten::bmm']"),
        ("aten::mm aten::bmm", "['aten::mm', 'aten::bmm']"),
        ("aten::mm|aten::bmm", "['aten::mm', 'aten::bmm']"),
        ("aten::mm,", "write 'aten::mm'"),
        ("aten::mm ", "write 'aten::mm'"),
        ("\taten::mm", "write 'aten::mm'"),
        ("'aten::mm'", "write 'aten::mm'"),
        ("['aten::mm']", "outer quotes"),
        ("aten::", "'aten::*'"),
        ("mylib::", "'mylib::*'"),
        ("aten.clamp_min", "'aten::clamp_min'"),
        ("torch.clamp_min", "'aten::clamp_min'"),
        (str(torch.ops.aten.mm.default), "'aten::mm'"),
        (str(torch.ops.aten.add.Tensor), "'aten::add'"),
        (str(torch.ops.aten.mm), "'aten::mm'"),
        (str(torch.ops.aten.mm.default._schema), "'aten::mm'"),
        ("torch.ops.aten.mm", "'aten::mm'"),
        ("torch.ops.aten.mm.default", "'aten::mm'"),
        ("torch.ops.mylib.op", "'mylib::op'"),
        ("mylib.op.default", "'mylib::op'"),
        ("aten::mm.default", "'aten::mm'"),
        (torch.ops.aten.mm.default.__name__, "'mm'"),
        ("aten::mm::default", "'aten::mm'"),
        ("aten::add.Tensor", "'aten::add'"),
        ("aten:mm", "two colons"),
        ("at::mm", "'aten::mm'"),
        ("F.relu", "'aten::relu'"),
        ("torch.nn.functional.gelu", "'aten::gelu'"),
        ("nn.Linear", "'aten::linear'"),
        ("torch.nn.LayerNorm", "'aten::layer_norm'"),
        ("nn.BatchNorm2d", "'aten::batch_norm'"),
        ("torch.Tensor.item", "'aten::item'"),
        ("x.item()", "'aten::item'"),
        ("float(x)", "'aten::item'"),
        ("float()", "'aten::item'"),
        ("x.cpu()", "'aten::_to_copy'"),
        ("torch.cuda.synchronize()", "max_syncs"),
        (".item()", "'aten::item'"),
        ("mm()", "'aten::mm'"),
        ("dist.all_reduce", "collectives={'all_reduce': 1}"),
    ],
)
@pytest.mark.parametrize("word", ["ops", "forbid_ops", "allow_syncs", "fused", "op=", "ops="])
def test_another_spelling_is_refused_with_the_one_that_is_meant(word, text, meant):
    if (word in ("fused", "ops=") and re.fullmatch(r"aten::\w+\.\w+", text)) or (
        word == "allow_syncs" and text == "aten:mm"
    ):
        return  # An overload does no harm there, and what stands before one colon is another word.
    asks = {
        "op=": lambda: gemm(op=text),
        "ops=": lambda: triton(ops=[text]),
        "fused": lambda: read_limits({"fused": [text, "add"]}),
    }
    with pytest.raises(UnknownLimit, match=re.escape(meant)):
        asks.get(word, lambda: read_limits({"max_syncs": 0, word: text}))()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *((f"aten::{name}", "'aten::item'") for name in ("Float", "Int", "Bool", "FloatImplicit", "ScalarImplicit")),
        *((name, "'aten::item'") for name in ("float", "int", "bool")),
        *((name, "'aten::_to_copy'") for name in ("cpu", "cuda", "double", "half", "long", "aten::cpu", "aten::cuda")),
        *((name, "max_syncs") for name in ("numpy", "tolist", "sync", "synchronize", "print")),
    ],
)
def test_what_python_calls_and_no_operator_is_called_is_refused_with_what_a_recording_has(text, meant):
    for asks in (lambda: read_limits({"forbid_ops": text}), lambda: gemm(op=text)):
        with pytest.raises(UnknownLimit, match=re.escape(meant)):
            asks()


@pytest.mark.parametrize("text", ["float", "cpu", "int"])
def test_the_same_words_are_in_the_names_of_kernels(text):
    read_limits({"forbid_kernels": text})


@pytest.mark.parametrize(
    "text", ["aten::sorted", "aten::tensor", "prim::tolist", "prim::NumToTensor", "tensor_to_list"]
)
def test_what_torchscripts_interpreter_alone_calls_is_no_operator(on_gpu, text):
    assert outcome(on_gpu, forbid_ops=text) == "not measured"


def test_a_word_that_is_a_namespace_is_not_measured_with_the_spelling_that_is_meant():
    @torch.library.custom_op("olib::thing", mutates_args=())
    def thing(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    for code in (lambda: thing(vector), lambda: vector.sin()):
        assert says(why_not(partial(on_cpu(code).expect, forbid_ops="olib")), OnlyNamespace, written="olib")
    assert outcome(on_cpu(lambda: thing(vector)), forbid_ops="olib::*") == "missed"
    assert outcome(on_cpu(lambda: vector.sin()), forbid_ops=["olib::*", "thing", "quantized"]) == "holds"


def recorded_by_torch(code):
    """Return the operators that torch's own profiler records of a call, as it does for whoever uses it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        code()
    return {event.name for event in own.events()}


def test_an_operator_made_in_python_is_recorded_each_time_and_torch_calls_it_as_before_in_between():
    @torch.library.custom_op("olib::again", mutates_args=())
    def again(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    before = recorded_by_torch(lambda: again(vector))
    for _ in range(2):
        assert outcome(on_cpu(lambda: again(vector)), ops={"olib::again": 1}) == "holds"
        assert recorded_by_torch(lambda: again(vector)) == before


def test_the_way_past_the_dispatcher_that_is_made_while_an_operator_is_measured_stays():
    @torch.library.custom_op("olib::renewed", mutates_args=())
    def renewed(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    op = renewed._opoverload
    if not hasattr(op, "_enable_pyobj_dispatch"):
        pytest.skip("this torch calls no operator past its dispatcher")
    made = []

    def code():
        op._enable_pyobj_dispatch(True)
        made.append((op._pyobj_dispatcher, op._op))
        return renewed(vector)

    on_cpu(code)
    assert (op._pyobj_dispatcher, op._op) == made[-1]


LIVE = """
@pytest.mark.torchprof(device='cpu', {limits})
def test_it(): torch.relu(x)
"""


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            "forbid_ops='aten::clampmin'",
            "in aten: did you mean 'aten::clamp_min'? [bad-pattern]",
        ),
        ("ops={'aten::reluu': 1}", "did you mean 'aten::relu'"),
        ("forbid_ops=['prims::convert_elementtype']", "did you mean 'prims::convert_element_type'"),
        ("max_syncs=0, allow_syncs='aten::nonzeroo'", "did you mean 'aten::nonzero'"),
        ("forbid_kernels=pytest_torchprof.gemm(op='aten::lienar')", "did you mean 'aten::linear'"),
        ("forbid_kernels='aten::clampmin'", "did you mean 'aten::clamp_min'"),
        ("fused=['aten::geluu', 'mul']", "did you mean 'aten::gelu'"),
        ("ranges={'decode': {'forbid_ops': 'aten::clampmin'}}", "did you mean 'aten::clamp_min'"),
    ],
)
def test_what_torch_does_not_have_is_refused_before_the_test_runs(run_tests, limits, said):
    result = run_tests(LIVE.format(limits=limits))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_what_a_library_registers_while_the_test_runs_is_known_then(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device='cpu', forbid_ops=['late::one', 'late::two'])
def test_registered_and_not_called():
    for name in ("late::one", "late::two"):
        if not hasattr(torch.ops.late, name[6:]):
            torch.library.define(name, "(Tensor x) -> Tensor")
    torch.relu(x)

@cpu
@pytest.mark.torchprof(forbid_ops='never::one')
def test_never_registered(): torch.relu(x)

@cpu
@pytest.mark.torchprof(forbid_ops='clampmin')
def test_a_bare_name(): torch.relu(x)
"""
    )
    assert result.parseoutcomes()["passed"] == 1
    text = result.stdout.str()
    for written, near in (("never::one", None), ("clampmin", "clamp_min")):
        assert NoSuchOperator(written, near, torch_loaded=True).sentence in text
    assert "late::one" not in text
    assert "in step" not in text


def test_the_names_of_torchs_operators_are_known_without_torch():
    code = """
import sys
from pytest_torchprof.kernels.operator_checks import unmatched_operator
from pytest_torchprof.kernels.selectors import compile_op_pattern
assert unmatched_operator(compile_op_pattern("aten::item")) is None
assert "did you mean 'aten::clamp_min'" in str(unmatched_operator(compile_op_pattern("aten::clampmin")))
assert unmatched_operator(compile_op_pattern("mylib::op")).torch_loaded is False
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {"aten::mm", "aten::item", "c10d::allreduce_", "prims::convert_element_type"} <= operator_names.of_torch()
    registered = operator_names.registered()
    assert len({name for name in registered if name.startswith("aten::")} - operator_names.of_torch()) < 200
    assert not any("." in name for name in registered)


@pytest.mark.parametrize("path", [*OWN, *SHARED], ids=lambda path: path.name[:40])
def test_no_operator_of_a_recording_is_forbidden_in_vain(path):
    profiles = load(path)
    found = profiles[0] if isinstance(profiles, list) else profiles
    names = {found.trace.names[i] for i in set(found.trace.ops.name)}
    for name in names:
        compile_op_pattern(name)
    # The largest have operators of libraries that no other one has; judged they are like those of others.
    if not found.measured or path.name.startswith(LEFT_OUT):
        return
    ran = {name for step in found.steps for name in step.ops_that_ran}
    for name in sorted(ran)[::5]:
        (verdict,) = check_limits(found, read_limits({"forbid_ops": name}))
        assert verdict.status != "holds", name

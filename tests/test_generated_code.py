"""What a kernel of Inductor's carries, where it comes from and in which types it computes: its code tells, not its name."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
import torch._dynamo
from builder import TraceBuilder
from facts import misses, says, why_not

from pytest_torchprof import LimitsMissed, NotMeasured, capture, family, load, triton
from pytest_torchprof.capture.inductor_code import read_program
from pytest_torchprof.capture.program_lines import CompiledLines, Sources
from pytest_torchprof.limits.seen import CarriedByNone
from pytest_torchprof.reasons.operators_untold import CarriedUntold

needs_cpp = pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler")

HEAVY, CUMSUM, SUM = (
    "triton_poi_fused_add_heavy_relu_0",
    "triton_per_fused_cumsum_mul_relu_1",
    "triton_red_fused__to_copy_addmm_sigmoid_sum_2",
)
SOURCES = Sources(
    is_users=lambda file: "/torch/" not in file,
    is_loaded=lambda _file: False,
    text=lambda _file: (),
    shown=lambda file: Path(file).name,
)
FORWARD = CompiledLines(
    file="/home/user/model.py", function="forward", lines=tuple(range(14, 30)), compilations=("0/0",)
)
REGION = "Torch-Compiled Region: 0/0"


# ------------------------------------------------------------------------------------------ Triton, from the program


@pytest.fixture(scope="module")
def program():
    """Return what Inductor of torch 2.15 has made of a module for a GPU."""
    return json.loads(Path(__file__).with_name("inductor_program.json").read_text(encoding="utf-8"))


@pytest.fixture
def recorded(tmp_path):
    """Return the profile of a step of these kernels, (name, operator) each, with these kernels' code if there is any."""

    def recorded(*kernels, code=None, region=REGION):
        builder = TraceBuilder()
        graph = {"hash": "fabc", "kernels": msgspec.to_builtins(code or {})}
        builder.own(steps=1, compile={"dynamo": True, "fx_graphs": [graph]} if code is not None else None)
        builder.step(0, 0, 900)
        if region:
            builder.op(region, 5, 800)
        if code is not None:
            builder.op("## Call CompiledFxGraph fabc ##", 6, 790)
        for place, (name, op) in enumerate(kernels):
            if op == "graph":
                builder.kernel(name, 20 + 30 * place, 10, builder.call("cudaGraphLaunch", 10 + 30 * place, 3))
            else:
                builder.launched(name, 10 + 30 * place, op=op)
        return load(builder.write(tmp_path / "t.json"))

    return recorded


def code_of(program, sources=SOURCES, compiled=(FORWARD,)):
    traces = tuple(map(tuple, program["traces"]))
    return read_program(program["program"], program["graph"], traces, sources, compiled).kernels


@pytest.fixture
def with_code(recorded, program):
    """Return the profile of a step of the program's kernels, whose code the recording holds."""
    own = ("elementwise_kernel", "mylib::heavy")
    return recorded((HEAVY, HEAVY), own, (CUMSUM, CUMSUM), (SUM, SUM), code=code_of(program))


def test_what_the_program_calls_itself_is_in_no_kernel_that_is_named_after_it(with_code):
    with_code.expect(fused=["relu", "add"])
    with_code.expect(kernels={triton(ops=["add"]): 1, triton(ops=["heavy"]): 0}, not_fused=["heavy", "sigmoid"])
    assert misses(with_code, fused=["heavy", "relu"]).seen == (CarriedByNone(("heavy", "relu"), compiled=True),)


def test_an_operator_that_the_program_calls_more_or_less_often_than_the_graph_holds_it_is_unclear(program):
    call = "torch.ops.mylib.heavy.default("
    for program_says, graph_says in [(1, 2), (2, 1)]:
        lines = program["program"].splitlines()
        at = next(at for at, text in enumerate(lines) if call in text and not text.startswith("#"))
        twice = {
            **program,
            "program": "\n".join([*lines[:at], *[lines[at]] * program_says, *lines[at + 1 :]]),
            "graph": program["graph"] + "        heavy_1 = torch.ops.mylib.heavy.default(relu_1)\n" * (graph_says - 1),
        }
        assert code_of(twice)[HEAVY].unclear == ("heavy",)


def test_the_product_of_a_layer_whose_bias_is_fused_is_not_proved(with_code):
    reason = why_not(lambda: with_code.expect(fused=["addmm", "sigmoid"]))
    assert says(reason, CarriedUntold, named_after=("addmm",))
    with_code.expect(fused=["sigmoid", "sum"])


def test_the_lines_are_those_of_the_code(with_code):
    with pytest.raises(LimitsMissed) as missed:
        with_code.expect(forbid_kernels=triton())
    text = str(missed.value)
    assert "model.py:16, 17, 18 in forward" in text
    assert "model.py:14, 15 in forward" in text


def test_a_line_that_has_moved_since_it_was_compiled_is_told_where_it_is_now(program):
    """What comes from Inductor's cache was compiled when the file was another; unclear lines are not told."""
    then = ["", *(f"# {number}" for number in range(1, 14)), "    a = torch.relu(a)", "    a = heavy(a + 1)"]
    now = [*["import os"] * 20, *then[14:], "    a = torch.relu(a)", "    a = a.cumsum(0)"]
    sources = SOURCES._replace(text=lambda _file: now)
    code = code_of(program, sources)
    assert [line.line for line in code[HEAVY].lines] == [22]
    assert [line.line for line in code[CUMSUM].lines] == [24]


def test_fp64_inside_a_fused_kernel_is_seen(with_code):
    assert [kernel.dtype for kernel in with_code.kernels] == ["fp32", None, "fp32", "fp64"]
    with_code.expect(kernels={family("reduction", dtype="fp64"): 1, triton(dtype="fp64"): 1})
    assert "unasked-fp64" in [finding.code for finding in with_code.findings]
    with pytest.raises(LimitsMissed):
        with_code.expect(forbid_kernels=family("reduction", dtype="fp64"))


def test_one_name_in_two_graphs_is_each_graphs_own(tmp_path):
    def graph(key, *ops):
        return {"hash": key, "kernels": {"triton_poi_fused_add_heavy_0": {"ops": ops}}}

    def profile(*marks):
        builder = TraceBuilder()
        graphs = [graph("fabc", "add"), graph("fdef", "add", "heavy")]
        builder.own(steps=1, compile={"dynamo": True, "fx_graphs": graphs})
        builder.step(0, 0, 900)
        for mark in marks:
            builder.op(f"## Call CompiledFxGraph {mark} ##", 5, 800)
        builder.launched("triton_poi_fused_add_heavy_0", 10, op="triton_poi_fused_add_heavy_0")
        return load(builder.write(tmp_path / "t.json"))

    profile("fdef").expect(fused=["add", "heavy"])
    with pytest.raises(LimitsMissed):
        profile("fabc").expect(fused=["add", "heavy"])


# -------------------------------------------------------------------------------------------------- the name alone


def test_a_name_proves_what_nothing_else_computes(recorded):
    profile = recorded((HEAVY, HEAVY), (SUM, SUM))
    profile.expect(fused=[["add", "relu"], ["heavy", "relu"], ["sigmoid", "sum"]])


def test_a_name_proves_no_operator_that_runs_by_itself_in_the_same_region(recorded):
    profile = recorded(
        (HEAVY, HEAVY), ("elementwise_kernel", "mylib::heavy"), ("gemm_kernel", "aten::addmm"), (SUM, SUM)
    )
    profile.expect(fused=[["add", "relu"], ["sigmoid", "sum"]])
    for group in (["heavy", "relu"], ["addmm", "sigmoid"]):
        for limit in ("fused", "not_fused"):
            reason = why_not(partial(profile.expect, **{limit: group}))
            assert says(reason, CarriedUntold, named_after=(group[0],))
    with pytest.raises(NotMeasured):
        profile.expect(forbid_kernels=triton(ops=["heavy"]))


def test_in_a_graph_a_name_proves_what_inductor_always_generates(recorded):
    profile = recorded((HEAVY, "graph"), ("elementwise_kernel", "graph"))
    profile.expect(fused=["add", "relu"])
    with pytest.raises(NotMeasured):
        profile.expect(fused=["heavy", "relu"])


def test_eager_code_beside_unmarked_kernels_casts_no_doubt(recorded):
    profile = recorded((HEAVY, HEAVY), ("elementwise_kernel", "aten::add"), region=None)
    profile.expect(fused=["add", "relu"])


# -------------------------------------------------------------------------------------------------- live, on the CPU


@torch.library.custom_op("torchprof_tests::heavy", mutates_args=())
def heavy(x: torch.Tensor) -> torch.Tensor:
    return x.clone()  # line: body


@heavy.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, a, b):
        a = torch.relu(a)  # line: relu
        a = heavy(a + 1)  # line: heavy
        a = torch.relu(a)  # line: after
        a = a @ b  # line: product
        a = torch.sigmoid(a)  # line: sigmoid
        return a.double().sum()  # line: sum


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """Let Inductor have no cache but one of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


def compiled_live(path):
    """Measure a module that is compiled for it, and return how often Inductor took it from its cache."""
    torch._dynamo.reset()
    hits = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]
    model = torch.compile(Model(), fullgraph=True)
    x = torch.ones(16, 16)
    record = frozenset({"lines"})
    plan = capture.Plan(device="cpu", warmup=2, steps=1, record=record, nodeid="test_it.py::test_it", label=None)
    with torch.no_grad():
        for _ in capture.iterations(plan, path, lambda _path: None):
            model(x, x)
    found = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"] - hits
    torch._dynamo.reset()
    return found


@pytest.fixture(scope="module")
def live_cache(tmp_path_factory):
    """Return the recording of a module that was compiled for it, and the cache in which Inductor has left it."""
    path, cache = (tmp_path_factory.mktemp(name) for name in ("live", "inductor"))
    with pytest.MonkeyPatch.context() as patch:
        # A cache of its own: the other tests may have run before, or in another process.
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
        assert compiled_live(path / "recording.json") == 0
    return path / "recording.json", cache


@pytest.fixture(scope="module", params=["compiled", "from the cache"])
def live(request, live_cache, tmp_path_factory):
    """Measure a compiled module that is compiled for it, or once more as it comes from Inductor's cache."""
    path, cache = live_cache
    if request.param == "from the cache":
        path = tmp_path_factory.mktemp("live") / "recording.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
            assert compiled_live(path) == 1
    return load(path)


def line(mark):
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, text in enumerate(source, 1) if text.endswith(f"# line: {mark}"))


@needs_cpp
def test_live_an_opaque_operator_is_in_no_kernel(live):
    live.expect(fused=[["relu", "add"], ["sigmoid", "sum"]])
    assert misses(live, fused=["heavy", "relu"]).seen == (CarriedByNone(("heavy", "relu"), compiled=True),)


@needs_cpp
def test_live_each_kernel_has_its_lines(live):
    with pytest.raises(LimitsMissed) as missed:
        live.expect(max_kernels=0)
    text = str(missed.value)
    for marks in (("relu", "heavy"), ("after",), ("product",), ("sigmoid", "sum")):
        assert f"code.py:{', '.join(str(line(mark)) for mark in marks)} in forward" in text
    # From torch 2.15 on compiled code calls the body of an operator that was made in Python.
    assert f"code.py:{line('heavy')} in forward" in text or f"code.py:{line('body')} in heavy" in text


@needs_cpp
def test_live_fp64_is_seen(live):
    own = {"torchprof_tests::heavy": "copy"}
    live.expect(kernels={family("reduction", dtype="fp64"): 1, family("pointwise", dtype="fp32"): 2}, own_kernels=own)


# ------------------------------------------------------------------ live, out of a cache that other programs fill too


CHECKOUT = """
import torch
from layers import scaled


def gated(x):
    x = x * 2
    torch._dynamo.graph_break()
    return scaled(torch.sin(x))


def damped(x):
    y = x * 2
    torch._dynamo.graph_break()
    return scaled(torch.sin(y))
"""
LAYERS = """
def scaled(x):
    return x.cos() - 3
"""


@pytest.fixture
def kernels_of(own_cache, tmp_path, monkeypatch):
    """Return the failure that shows the kernels of a folder's function, compiled as if in a process of its own.

    There another function of the folder's may have been compiled before it.
    """

    def kernels_of(folder, function="gated", *, model=CHECKOUT, beside=None):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "layers.py").write_text(LAYERS)
        (path / "model.py").write_text(model)
        torch._dynamo.reset()
        plan = capture.Plan(device="cpu", warmup=2, steps=1, record=frozenset(), nodeid="test_it.py::t", label=None)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(path)
            if beside:
                torch.compile(getattr(importlib.import_module("model"), beside))(torch.ones(16, 16))
            compiled = torch.compile(getattr(importlib.import_module("model"), function))
            for _ in capture.iterations(plan, path / "recording.json", lambda _path: None):
                compiled(torch.ones(16, 16))
        for name in ("model", "layers"):
            del sys.modules[name]
        torch._dynamo.reset()
        with pytest.raises(LimitsMissed) as missed:
            load(path / "recording.json").expect(max_kernels=0)
        return str(missed.value)

    return kernels_of


def cache_hits():
    return torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]


@needs_cpp
def test_live_what_another_checkout_has_compiled_has_the_lines_of_this_one(kernels_of):
    kernels_of("theirs")
    hits = cache_hits()
    text = kernels_of("ours", model=f"import os\n{CHECKOUT}")
    assert cache_hits() == hits + 2
    assert "  model.py:8 in gated\n" in text
    assert "  model.py:10 in gated and layers.py:3 in scaled\n" in text


@needs_cpp
@pytest.mark.parametrize(("folder", "beside"), [("theirs", None), ("ours", None), ("ours", "gated")])
def test_live_what_another_function_was_compiled_to_has_none_of_its_lines(kernels_of, folder, beside):
    """The cache knows graphs and not functions: the same graph may have been made of code that does not run here."""
    kernels_of("theirs")
    hits = cache_hits()
    text = kernels_of(folder, "damped", beside=beside)
    assert cache_hits() >= hits + 2
    assert "cpp_fused_mul" in text
    assert not re.search(r"\.py:\d+ in ", text)

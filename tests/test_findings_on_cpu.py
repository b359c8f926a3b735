"""Each finding where the CPU is the device: one that is read from a GPU's work is not measured there, never absent."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.findings import RULES
from pytest_torchprof.findings.finding import Rule

pytestmark = pytest.mark.any_torch

_BREAK = {"reason": "Call to graph_break", "file": "model.py", "line": 3, "function": "forward"}


def evidence(**more):
    return {"dynamo": True, "graphs_are_marked": True, **more}


def regions(builder, *names):
    for place, name in enumerate(names):
        builder.region("0/0", 100 + 200 * place, 150)
        builder.op(name, 110 + 200 * place, 130)


def arange(builder):
    for place in range(30):
        builder.op(
            "aten::arange",
            100 + 20 * place,
            15,
            inputs=[([], [], "Scalar")],
            **{"Concrete Inputs": ["14"]},
        )


def graphs(builder):
    builder.annotation("## Call CompiledFxGraph one ##", 100, 50)
    builder.annotation("## Call CompiledFxGraph two ##", 1100, 50)


def guards(builder):
    for step in (0, 1000):
        builder.op("TorchDynamo Cache Lookup", step + 100, 400)


def compiling(builder):
    builder.op("_compile.compile_inner (dynamo_timed)", 100, 300)


def nested(builder):
    builder.op("aten::linear", 100, 500)
    builder.op("aten::addmm", 105, 490)


def uncompiled_backward(builder):
    regions(builder, "aten::mm")
    builder.op("autograd::engine::evaluate_function: MmBackward0", 400, 100)


SEEN = {
    "costly-children": (nested, {}),
    "repeated-constant": (arange, {}),
    "graph-break": (regions, {"breaks": [_BREAK]}),
    "recompile": (lambda builder: regions(builder, "aten::mm"), {"compiled": True, "recompiles": [{"reason": "size"}]}),
    "compile-in-window": (compiling, {}),
    "not-compiled": (regions, {"seen_instead": ["the stance force_eager"]}),
    "cuda-graph-skipped": (regions, {"cudagraph_skips": {"count": 1, "reasons": ["cpu device"]}}),
    "backward-not-compiled": (uncompiled_backward, {}),
    "graph-hash-changes": (graphs, {}),
    "guard-overhead": (guards, {}),
    "compile-overhead": (lambda builder: regions(builder, "aten::mm"), {}),
}
"""What makes each of those found that the CPU's side alone tells: events, and what the compiler did."""


def recording(tmp_path, build=regions, compiled=None, *, length=900):
    builder = TraceBuilder()
    builder.own(device="cpu", steps=2, compile=evidence(**(compiled or {})))
    for number in range(2):
        builder.step(number, number * 1000, length)
        builder.op("aten::add", number * 1000 + 10, 5)
    build(builder)
    return load(builder.write(tmp_path / f"{length}.json"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_finding_that_cannot_be_seen_is_not_measured(rule, tmp_path):
    build, compiled = SEEN.get(rule.code, (regions, {}))
    profile = recording(tmp_path, build, compiled)
    if rule.code == "compile-overhead":
        profile = profile.with_others([recording(tmp_path, length=500)])
    with pytest.raises(LimitsMissed if rule.code in SEEN else NotMeasured, match=rule.code):
        profile.expect(forbid=rule.code)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_what_can_be_seen_and_is_not_there_holds(rule, tmp_path):
    if rule.code in SEEN:
        recording(tmp_path).expect(forbid=rule.code)


def test_a_rule_must_say_what_it_reads():
    with pytest.raises(TypeError, match="needs"):
        Rule(code="mine", find=lambda _: ())


def test_a_comparison_needs_something_to_compare_with(tmp_path):
    profile = recording(tmp_path, lambda builder: regions(builder, "aten::mm"))
    with pytest.raises(NotMeasured, match="no uncompiled measurement"):
        profile.expect(forbid="compile-overhead")


def test_what_the_compiler_did_is_not_known_of_anybodys_recording(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.op("aten::add", 10, 5)
    profile = load(builder.write(tmp_path / "t.json"), device="cpu")
    for code in ("graph-break", "recompile", "not-compiled", "cuda-graph-skipped"):
        with pytest.raises(NotMeasured, match=code):
            profile.expect(forbid=code)


@pytest.mark.parametrize("code", ["implicit-sync", "sync-over-little-work", "small-grid", "low-occupancy"])
def test_what_is_read_from_a_gpus_work_says_that_the_cpu_was_the_device(tmp_path, code):
    found = recording(tmp_path)
    with pytest.raises(NotMeasured, match="it is read from the work of a GPU, and the CPU was the device"):
        found.expect(forbid=code)

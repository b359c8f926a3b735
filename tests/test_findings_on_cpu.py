"""Each finding where the CPU is the device: one that is read from a GPU's work is not measured there, never absent."""

from __future__ import annotations

import json

import jobs
import pytest
from builder import TraceBuilder
from facts import says, why_not

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.findings import RULES, find, find_with_events
from pytest_torchprof.findings.finding import Rule
from pytest_torchprof.reasons.composed import FindingUntold
from pytest_torchprof.reasons.findings import NothingUncompiled

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


def reducing(builder):
    told = {"Input Dims": [[[250]]], "Input type": ["float"]}
    builder.event("cpu_op", "c10d::allreduce_", 100, 5, **{"Input Dims": [[[[250]]]], "Input type": ["TensorList"]})
    builder.event("user_annotation", "gloo:all_reduce", 110, 400, tid=7, **told)


SEEN = {
    "exposed-communication": (reducing, {}),
    "nothing-recorded": (regions, {}),
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


def recording(tmp_path, build=regions, compiled=None, *, length=900, busy=False):
    builder = TraceBuilder()
    builder.own(device="cpu", steps=2, compile=evidence(**(compiled or {})))
    for number in range(2):
        builder.step(number, number * 1000, length)
        builder.op("aten::add", number * 1000 + 10, 5)
        if busy:
            builder.annotation("work", number * 1000 + 20, 990)
    build(builder)
    return load(builder.write(tmp_path / f"{length}.json"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_finding_that_cannot_be_seen_is_not_measured(rule, tmp_path):
    build, compiled = SEEN.get(rule.code, (regions, {}))
    profile = recording(tmp_path, build, compiled)
    if rule.code == "compile-overhead":
        profile = profile.with_others([recording(tmp_path, length=500)])
    with pytest.raises(LimitsMissed if rule.code in SEEN else NotMeasured, match=rule.code) as caught:
        profile.expect(forbid=rule.code)
    if rule.code in SEEN:
        assert "on the GPU" not in str(caught.value), "where the CPU is the device, no GPU is spoken of"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_what_can_be_seen_and_is_not_there_holds(rule, tmp_path):
    if rule.code in SEEN:
        recording(tmp_path, busy=True).expect(forbid=rule.code)


def test_a_rule_must_say_what_it_reads():
    with pytest.raises(TypeError, match="needs"):
        Rule(code="mine", find=lambda _: ())


def test_a_comparison_needs_something_to_compare_with(tmp_path):
    profile = recording(tmp_path, lambda builder: regions(builder, "aten::mm"))
    reason = why_not(lambda: profile.expect(forbid="compile-overhead"))
    assert says(reason, FindingUntold, finding="compile-overhead", because=NothingUncompiled())


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
    assert why_not(lambda: found.expect(forbid=code)).code == "not-recorded"


REDUCING = """
x, many = torch.ones(250), torch.ones(300, 300)
def step():
    many @ many
    distributed.all_reduce(x)
    work = distributed.all_reduce(many, async_op=True)
    x.sin()
    work.wait()
"""


def union_us(spans):
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return total


@pytest.mark.skipif("not __import__('torch').distributed.is_gloo_available()", reason="needs gloo")
def test_what_gloo_does_while_nothing_computes_is_exposed(tmp_path):
    """A rank's time is counted once more from the events: gloo's ranges, less those of the operators that compute."""
    for path in jobs.record(tmp_path, REDUCING, steps=2):
        profile = load(path, device="cpu")
        found = {one.code: one for one in find_with_events(profile)}["exposed-communication"]
        events = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("ph") == "X"]
        own = [one for one in events if one["name"] in ("gloo:all_reduce", "aten::mm", "aten::sin")]
        spans = {one: [] for one in ("gloo:all_reduce", "aten::mm", "aten::sin")}
        for one in own:
            spans[one["name"]].append((one["ts"], one["ts"] + one["dur"]))
        talking = spans["gloo:all_reduce"]
        computing = [*spans["aten::mm"], *spans["aten::sin"]]
        both = union_us(talking) + union_us(computing) - union_us([*talking, *computing])
        assert found.time_us == pytest.approx(union_us(talking) - both, abs=0.1)
        assert found.on_cpu
        assert found.collectives_us == {"all_reduce": pytest.approx(union_us(talking), abs=0.1)}
        notes = profile.trace.annotations
        marked = [(notes.start[i] / 1000, notes.end[i] / 1000) for i in found.events.annotations]
        assert len(marked) == len(talking)
        assert union_us(marked) == pytest.approx(union_us(talking), abs=0.1)


def test_collectives_that_run_at_once_take_their_time_once(tmp_path):
    def two_at_once(builder):
        for start, tid in ((100, 31), (200, 32)):
            builder.event(
                "cpu_op", "c10d::allreduce_", start, 5, **{"Input Dims": [[[[250]]]], "Input type": ["TensorList"]}
            )
            builder.annotation("gloo:all_reduce", start + 10, 300, tid=tid)

    found = {one.code: one for one in find(recording(tmp_path, two_at_once))}["exposed-communication"]
    assert (found.collectives_us, found.time_us) == ({"all_reduce": 400}, 400)


def test_when_a_collective_ran_that_left_no_range_is_not_known(tmp_path):
    def left_alone(builder):
        builder.event("cpu_op", "c10d::allreduce_", 100, 5, **{"Input Dims": [[[[250]]]], "Input type": ["TensorList"]})

    found = recording(tmp_path, left_alone)
    assert why_not(lambda: found.expect(forbid="exposed-communication")).code == "not-recorded"

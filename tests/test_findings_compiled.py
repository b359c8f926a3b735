"""Findings about torch.compile, on code that is compiled and recorded here, on the CPU."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
import torch
from builder import TraceBuilder, write

from pytest_torchprof import capture, load
from pytest_torchprof.findings import RULES, find, with_thresholds


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def record(tmp_path):
    """Return a function that records calls of a function on the CPU and returns the profile."""

    def run(step, *, warmup=3, steps=3):
        path = tmp_path / "recording.json"
        plan = capture.Plan(
            device="cpu", warmup=warmup, steps=steps, record=frozenset(), nodeid="test_it.py::test_it", label=None
        )
        with closing(capture.iterations(plan, path, lambda _: None)) as calls:
            for number, _ in enumerate(calls):
                step(number)
        return load(path)

    return run


def found(profile, code):
    return next((finding for finding in profile.findings if finding.code == code), None)


X = torch.ones(16, 16)


def test_a_graph_break_is_found_with_its_line(record):
    @torch.compile
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    finding = found(record(lambda _: broken(X)), "graph-break")
    here = f"{os.path.relpath(__file__)}:"
    assert finding.evidence["source"].startswith(here)
    assert f"({here}" in finding.message
    assert found(record(lambda _: torch.compile(torch.sin)(X)), "graph-break") is None


def test_a_recompile_is_found_with_its_reason(record):
    compiled = torch.compile(lambda x: x.sin() + 1, dynamic=False)
    finding = found(record(lambda number: compiled(torch.ones(4 + number % 2, 4))), "recompile")
    assert "size mismatch" in finding.message
    torch._dynamo.reset()
    assert found(record(lambda _: compiled(X)), "recompile") is None


def test_steps_that_run_other_graphs_are_found(record):
    compiled = torch.compile(lambda x: x.sin() + 1, dynamic=False)
    finding = found(record(lambda number: compiled(torch.ones(4 + number % 2, 4))), "graph-hash-changes")
    assert len(finding.evidence["graphs"]) == 2
    assert found(record(lambda _: compiled(X)), "graph-hash-changes") is None


def test_compiling_inside_the_steps_is_found(record):
    compiled = torch.compile(lambda x: x.sin() * 2)
    assert found(record(lambda _: compiled(X), warmup=0, steps=2), "compile-in-window").evidence["time_us"] > 0
    assert found(record(lambda _: compiled(X)), "compile-in-window") is None


def test_cuda_graphs_that_inductor_did_not_record_are_found(record):
    # Graphs are asked for, and on the CPU there are none.
    graphed = torch.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    finding = found(record(lambda _: graphed(X)), "cuda-graph-skipped")
    assert "skipping cudagraphs due to" in finding.message
    torch._dynamo.reset()
    plain = torch.compile(lambda x: x.sin() + 1)
    assert found(record(lambda _: plain(X)), "cuda-graph-skipped") is None


def test_code_that_torch_compile_leaves_alone_is_found(record):
    left_alone = torch.compile(torch.nn.Linear(16, 16).forward)
    plain = record(lambda _: X.sin())
    assert found(plain, "not-compiled") is None
    with torch.compiler.set_stance("force_eager"):
        profile = record(lambda _: left_alone(X))
    assert "force_eager" in found(profile, "not-compiled").message


def test_a_backward_that_runs_node_by_node_is_found(record):
    layer = torch.nn.Linear(16, 16)
    eager_backward = torch.compile(layer, backend="eager")
    finding = found(record(lambda _: eager_backward(X).sum().backward()), "backward-not-compiled")
    assert any("Addmm" in node for node in finding.evidence["nodes"])
    compiled_backward = torch.compile(layer, backend="aot_eager")
    assert found(record(lambda _: compiled_backward(X).sum().backward()), "backward-not-compiled") is None
    assert found(record(lambda _: layer(X).sum().backward()), "backward-not-compiled") is None


def guards(profile, share):
    """Return the finding as it is where guards may take this share of the CPU's time."""
    rules = with_thresholds(RULES, [f"guard-overhead.share={share}"])
    return next((finding for finding in find(profile, rules) if finding.code == "guard-overhead"), None)


def test_each_call_of_compiled_code_has_guards_that_are_found(record):
    pieces = [torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager") for _ in range(8)]

    def many_small(_):
        for piece in pieces:
            piece(X)

    profile = record(many_small)
    finding = guards(profile, 0)
    assert finding.evidence["calls"] == 3 * len(pieces)
    cpu_us = sum(step.cpu_time_us for step in profile.steps)
    assert 0 < finding.evidence["time_us"] < cpu_us
    share = finding.evidence["time_us"] / cpu_us
    assert guards(profile, share * 0.99) is not None
    assert guards(profile, share * 1.01) is None
    assert guards(record(lambda _: X.relu()), 0) is None


@pytest.mark.parametrize(("spent", "is_found"), [(110, True), (90, False)])
def test_guards_are_told_where_they_take_a_tenth_of_the_time(tmp_path, spent, is_found):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.op("TorchDynamo Cache Lookup", 0, spent)
    builder.launched("k", 500)
    finding = found(load(builder.write(tmp_path / "t.json")), "guard-overhead")
    assert (finding is not None) == is_found


def times_as_long(profile, factor):
    """Return the profile of a recording as a machine would make it on which all takes so much longer."""
    path = Path(profile.trace.path)
    document = json.loads(path.read_text())
    timed = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    begin = min(event["ts"] for event in timed)
    for event in timed:
        event["ts"] = begin + (event["ts"] - begin) * factor
        event["dur"] *= factor
    return load(write(path.with_name(f"{factor}.json"), json.dumps(document)))


def test_a_compiled_step_that_costs_more_is_found_where_both_were_measured(record):
    eager = record(lambda _: X.sin())
    slow, fast = times_as_long(eager, 1000), times_as_long(eager, 0.001)
    compiled_sin = torch.compile(torch.sin, backend="eager")
    compiled = record(lambda _: compiled_sin(X))
    assert found(compiled, "compile-overhead") is None
    finding = found(compiled.with_others([fast]), "compile-overhead")
    assert finding.evidence["cpu_us"] > finding.evidence["cpu_us_uncompiled"]
    assert found(compiled.with_others([slow]), "compile-overhead") is None
    assert found(eager.with_others([compiled]), "compile-overhead") is None

"""Findings about torch.compile, on code that is compiled and recorded here, on the CPU."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

from pytest_torchprof import capture, load


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
    assert finding.evidence["source"].startswith(__file__)
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


def test_guards_that_cost_more_than_the_work_are_found(record):
    pieces = [torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager") for _ in range(8)]
    small = torch.ones(2)

    def many_small(_):
        for piece in pieces:
            piece(small)

    finding = found(record(many_small), "guard-overhead")
    assert finding.evidence["calls"] == 3 * len(pieces)
    large = torch.ones(1000, 1000)
    assert found(record(lambda _: pieces[0](large) @ large), "guard-overhead") is None


def test_a_compiled_step_that_costs_more_is_found_where_both_were_measured(record):
    small = torch.ones(2)
    eager = record(lambda _: small.sin())
    compiled_sin = torch.compile(torch.sin, backend="eager")
    compiled = record(lambda _: compiled_sin(small))
    assert found(compiled, "compile-overhead") is None
    finding = found(compiled.with_others([eager]), "compile-overhead")
    assert finding.evidence["cpu_us"] > finding.evidence["cpu_us_uncompiled"]
    assert found(eager.with_others([compiled]), "compile-overhead") is None

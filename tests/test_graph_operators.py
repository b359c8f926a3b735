"""A recording that says what its CUDA graphs were captured from has operators, ranges and modules inside of them."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder

import pytest_torchprof
from pytest_torchprof import LimitsMissed, NotMeasured, family, gemm
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

GRAPH = 3
FLOATS = ("[[8, 8], [8, 8]]", '["float", "float"]', "[[8, 1], [8, 1]]")


def captured(*nodes, graph=GRAPH):
    """Return what was noted of a graph: a product in a linear layer in a range, then an activation."""
    ranges = [
        {"name": "block", "begin": 2, "end": 20, "kind": "range"},
        {"name": "MLP_0", "begin": 4, "end": 20, "kind": "module"},
        {"name": "model.py(7): forward, MLP_0", "begin": 4, "end": 4, "kind": "line"},
        {"name": "aten::linear", "begin": 4, "end": 10},
        {"name": "aten::mm", "begin": 6, "end": 10, "operands": FLOATS},
        {"name": "model.py(8): forward, MLP_0", "begin": 12, "end": 12, "kind": "line"},
        {"name": "aten::gelu", "begin": 12, "end": 18},
    ]
    return {"graphs": [1, graph], "ranges": ranges, "nodes": list(nodes), "kernels": list(NAMES)}


NAMES = ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", "gelu_kernel")
PRODUCT = {"node": 0, "kind": "kernel", "at": 8, "kernel": 0}
GELU = {"node": 1, "kind": "kernel", "at": 16, "kernel": 1}
KNOWN = captured(PRODUCT, GELU)


@pytest.fixture
def profile(tmp_path):
    """Return a function that reads a recording of two steps, each with a replay of two kernels."""

    def load(known=KNOWN, *, own=True, us=2, around=None, **args):
        builder = TraceBuilder()
        if own:
            builder.own(steps=2, **({} if known is None else {"captured_graphs": [known]}))
        for step in range(2):
            builder.step(step, 1000 * step, 900)
            if around is not None:
                builder.op(around, 1000 * step + 5, 20)
            launch = builder.graph_launch(1000 * step + 10, us)
            for node, name in enumerate(NAMES):
                builder.kernel(name, 1000 * step + 30 + 10 * node, 5 + node, launch)
                builder.events[-1]["args"] |= {"graph id": GRAPH, "graph node id": (GRAPH << 32) + node, **args}
        return pytest_torchprof.load(builder.write(tmp_path / "t.json"))

    return load


@pytest.fixture
def rows(capsys):
    """Return a function that gives name, calls, kernels and times on GPU and CPU of each row of a table."""

    def tell(profile, by):
        assert main(["analyze", profile.trace.path, "--json", "--by", by]) == 0
        columns = ("name", "calls", "kernels", "gpu_us", "cpu_us")
        return [tuple(row[column] for column in columns) for row in json.loads(capsys.readouterr().out)[f"{by}s"]]

    return tell


def test_operators_of_the_capture_launched_the_kernels(profile):
    found = profile()
    assert [(one.op, one.op_chain) for one in found.kernels] == [
        ("aten::mm", ("aten::linear", "aten::mm")),
        ("aten::gelu", ("aten::gelu",)),
    ]
    assert found.ops == {"aten::linear": 1, "aten::mm": 1, "aten::gelu": 1}
    assert found.kernels[0].op_shapes == ([8, 8], [8, 8])
    found.expect(ops={"aten::mm": 1}, forbid_ops=["aten::bmm"], kernels={gemm(op="linear"): 1})
    with pytest.raises(LimitsMissed, match=r"1 x aten::gelu +model.py:8 in forward, MLP_0"):
        found.expect(forbid_ops=["gelu"])


def test_an_operator_that_replays_a_graph_launches_what_is_in_it(profile):
    found = profile(around="mine::decode")
    assert [one.op_chain[0] for one in found.kernels] == ["mine::decode", "mine::decode"]
    found.expect(ops={"mine::decode": 1, "aten::mm": 1})
    with pytest.raises(LimitsMissed, match="1 operator matches mine::decode"):
        found.expect(forbid_ops=["mine::decode"])


def test_without_what_was_captured_they_are_not_known(profile):
    found = profile(None)
    for limits in ({"forbid_ops": ["aten::bmm"]}, {"ops": ["aten::mm"]}, {"kernels": {gemm(op="linear"): 0}}):
        with pytest.raises(NotMeasured):
            found.expect(**limits)


@pytest.mark.parametrize(
    "known",
    [
        captured(PRODUCT),
        captured(PRODUCT, {**GELU, "kind": "memcpy"}),
        captured(PRODUCT, {**GELU, "kernel": 0}),
        captured(PRODUCT, {**GELU, "kernel": None}),
        captured(PRODUCT, GELU, graph=GRAPH + 1),
    ],
    ids=[
        "a node that was not captured",
        "a node of another kind",
        "a node that was given another kernel",
        "a node whose kernel is not told",
        "another graph",
    ],
)
def test_a_replay_that_does_not_fit_the_capture_is_not_known(profile, known):
    found = profile(known)
    assert [one.op for one in found.kernels] == [None, None]
    with pytest.raises(NotMeasured, match="cannot be told for 2 kernels"):
        found.expect(forbid_ops=["aten::bmm"])


def test_nodes_of_the_body_of_a_conditional_node_are_not_known(profile):
    body = (GRAPH + 1) << 32
    found = profile(**{"graph node id": body})
    assert [one.op for one in found.kernels] == [None, None]


def test_a_graph_with_more_nodes_than_its_launch_has_time_for_is_not_known(profile):
    assert [one.op for one in profile(us=0.003).kernels] == [None, None]
    assert [one.op for one in profile(us=0.004).kernels] == ["aten::mm", "aten::gelu"]


def test_an_operator_that_may_have_launched_a_kernel_is_not_known(profile):
    found = profile(captured(PRODUCT, {**GELU, "unsure": ["aten::copy_"]}))
    found.expect(forbid_ops=["aten::bmm"], kernels={gemm(op="mm"): 1})
    for limits in ({"ops": {"aten::copy_": (1, 5)}}, {"forbid_ops": ["aten::copy_"]}):
        with pytest.raises(NotMeasured, match="cannot be told for 1 kernel"):
            found.expect(**limits)
    with pytest.raises(NotMeasured, match="cannot be told for 1 kernel"):
        found.expect(kernels={family("pointwise", op="copy_"): 0})


def test_ranges_of_the_capture_hold_their_kernels(profile):
    inside = profile().range("block")
    assert (inside.kernels, inside.kernel_time_us) == (2, 11)


def test_the_cpu_goes_through_no_range_of_a_graph(profile):
    inside = profile().range("block")
    assert (inside.launches, inside.syncs, inside.cpu_time_us, inside.cpu_gpu_ratio) == (None, None, None, None)


def test_rows_of_modules_and_ranges(profile, rows):
    found = profile()
    assert rows(found, "module") == [("nn.Module: MLP_0", 2, 4, 22, 0)]
    assert ("block", 2, 4, 22, 0) in rows(found, "range")


def test_numbers_stay_as_they_are(profile):
    with_it, without = profile(), profile(None)
    assert [step.numbers for step in with_it.steps] == [step.numbers for step in without.steps]


def test_annotations_of_torch_are_ranges_of_their_own(profile, rows):
    found = profile(None, own=False, name="phase_A")
    assert ("phase_A (in CUDA graphs)", 2, 4, 22, 0) in rows(found, "range")
    with pytest.raises(NotMeasured):
        found.expect(forbid_ops=["aten::bmm"])


def test_an_annotation_that_is_no_text_has_no_row(profile, rows):
    assert not [row for row in rows(profile(None, name={"a": 1}), "range") if "graphs" in row[0]]

"""A recording that says what its CUDA graphs were captured from has operators, ranges and modules inside of them."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest
from builder import TraceBuilder
from facts import came, misses, says, why_not

import pytest_torchprof
from pytest_torchprof import NotMeasured, family, gemm
from pytest_torchprof.baseline import entry_of
from pytest_torchprof.cli import main
from pytest_torchprof.compare import blame, compare
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.limits import RangeNotInStep, RangeOfGraphUnknown
from pytest_torchprof.reasons.operators_untold import OperatorMatchUntold, OperatorUntold

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

    def load(known=KNOWN, *, own=True, us=2, around=None, each=({}, {}), count=2, **args):
        builder = TraceBuilder()
        if own:
            builder.own(steps=2, **({} if known is None else {"captured_graphs": [known]}))
        for step in range(2):
            builder.step(step, 1000 * step, 900)
            if around is not None:
                builder.op(around, 1000 * step + 5, 20)
            launch = builder.graph_launch(1000 * step + 10, us)
            for node, name in enumerate(NAMES[:count]):
                builder.kernel(name, 1000 * step + 30 + 10 * node, 5 + node, launch)
                numbers = {"graph id": GRAPH, "graph node id": (GRAPH << 32) + node}
                builder.events[-1]["args"] |= {**numbers, **each[node], **args}
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
    (row,) = misses(found, forbid_ops=["gelu"]).rows
    assert (row.count, row.name, row.places) == (1, "aten::gelu", ((1, "model.py:8 in forward, MLP_0"),))


def test_an_operator_that_replays_a_graph_launches_what_is_in_it(profile):
    found = profile(around="mine::decode")
    assert [one.op_chain[0] for one in found.kernels] == ["mine::decode", "mine::decode"]
    found.expect(ops={"mine::decode": 1, "aten::mm": 1})
    verdict = misses(found, forbid_ops=["mine::decode"])
    assert verdict.seen == (ForbiddenMatches(1, "operator", "mine::decode"),)


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
    assert says(why_not(lambda: found.expect(forbid_ops=["aten::bmm"])), OperatorUntold, kernels=2)


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"forbid_ops": ["aten::bmm"]}, OperatorUntold),
        ({"ops": ["aten::mm"]}, OperatorUntold),
        ({"kernels": {"gelu_*": 1, gemm(op="linear"): 0}}, OperatorMatchUntold),
    ],
)
def test_kernels_whose_operator_is_not_known_are_named(profile, limits, kind):
    reason = why_not(lambda: profile(captured(PRODUCT)).expect(**limits))
    named = ((1, f"gemm {NAMES[0]}"), (1, f"pointwise {NAMES[1]}"))[: 1 if kind is OperatorMatchUntold else 2]
    assert says(reason, kind, named=named)
    assert all(f"1 x {name}" in str(reason) for _, name in named)


def test_of_many_names_the_first_are_told():
    reason = OperatorUntold(21, named=tuple((7 - i, f"kernel_{i}") for i in range(6)))
    assert str(reason).endswith(
        "21 kernels: 7 x kernel_0, 6 x kernel_1, 5 x kernel_2, 4 x kernel_3, 3 x kernel_4 and 1 more name "
        "[operator-unknown]"
    )


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
        assert why_not(partial(found.expect, **limits)).code == Code.OPERATOR_UNKNOWN
    assert why_not(lambda: found.expect(kernels={family("pointwise", op="copy_"): 0})).code == Code.MATCH_UNKNOWN


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


def against_product(profile, known, capsys, tmp_path):
    """Return what a baseline of the product alone and `torchprof diff` say of a kernel that came."""
    before = profile(known, count=1)
    first = shutil.copy(before.trace.path, tmp_path / "before.json")
    old = entry_of(before, source_hash="")
    after = profile(known)
    new = entry_of(after, source_hash="")
    lines = str(blame(after, new, compare(old, new)).comparison).splitlines()
    assert main(["diff", str(first), after.trace.path]) == 1
    return lines, capsys.readouterr().out.splitlines()


def test_a_kernel_that_came_to_a_graph_has_the_operator_and_line_of_its_capture(profile, capsys, tmp_path):
    lines, diff = against_product(profile, KNOWN, capsys, tmp_path)
    assert lines[:2] == [
        f"  {came('aten::gelu', name='gelu_kernel')}",
        "    pointwise gelu_kernel from: model.py:8 in forward, MLP_0",
    ]
    assert diff[-1].endswith("pointwise gelu_kernel (aten::gelu)")


def test_of_a_kernel_that_came_to_an_unknown_graph_the_replay_launched_it(profile, capsys, tmp_path):
    lines, diff = against_product(profile, None, capsys, tmp_path)
    assert lines[0].startswith("  + pointwise gelu_kernel: 1 ")
    assert " replay " in lines[0]
    assert diff[-1].endswith("pointwise gelu_kernel (graph replay)")


# ------------------------------------------------------------------- annotations of graphs' nodes, in others' recordings

SCOPES = (
    {"name": "phase_A"},  # torch.cuda.graph_annotations.mark_kernels, export_chrome_trace(cuda_graph_annotations=...)
    {"str": "phase_A"},  # torch.cuda._annotate_cuda_graph_trace of torch 2.12
    {"annotation": "phase_A"},  # the same, of a scope without fields
    {"annotation": '[{"name": "phase_A"}, {"name": "around"}]'},  # Cuspy
    {"name": "phase_A", "In msg nelems": "8", "Group size": "2", "stream": 61, "original_stream": 7},
)
LAYERS = ({"module_fqn": "layers.0.mlp"}, {"name": "L.layers.0.mlp"}, {"name": "fc", "module_fqn": "layers.0.mlp"})


@pytest.fixture
def annotated(profile):
    """Return a function that reads a recording of others whose nodes are annotated, each with its own."""

    def load(product, gelu=None, **args):
        return profile(None, own=False, each=(product, product if gelu is None else gelu), **args)

    return load


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_scopes_are_ranges_of_their_own(annotated, rows, scope):
    found = annotated(scope)
    assert ("phase_A (in CUDA graphs)", 2, 4, 22, 0) in rows(found, "range")
    assert found.range("phase_A (in CUDA graphs)").kernels == 2
    found.expect(ranges={"phase_A (in CUDA graphs)": {"max_kernels": 2, "kernels": {"gelu_*": 1}}})
    verdict = misses(found, ranges={"phase_A (in CUDA graphs)": {"max_kernels": 1}})
    assert (verdict.limit, verdict.range, verdict.number) == ("max_kernels", "phase_A (in CUDA graphs)", 2)
    assert (verdict.in_step.occurrence, verdict.in_step.occurrences) == (1, 1)


@pytest.mark.parametrize("node", [0, 1])
def test_nodes_are_known_by_their_graph_where_the_file_has_the_low_bits_of_their_numbers(annotated, rows, node):
    found = annotated({"name": "phase_A"}, **{"graph node id": node})
    assert ("phase_A (in CUDA graphs)", 2, 4, 22, 0) in rows(found, "range")


def test_check_and_analyze_know_scopes_of_a_file(annotated, capsys):
    path = str(annotated({"name": "phase_A"}, {"name": "phase_B"}).trace.path)
    for kernels, status in ((1, 0), (0, 1)):
        asked = f'ranges={{"phase_A (in CUDA graphs)": {{"max_kernels": {kernels}}}}}'
        assert main(["check", path, "--limit", asked]) == status
    assert main(["analyze", path, "--by", "range"]) == 0
    assert "phase_B (in CUDA graphs)" in capsys.readouterr().out


def test_the_name_of_a_scope_alone_is_no_range_since_scopes_inside_it_have_names_of_their_own(annotated):
    found = annotated({"name": "outer"}, {"name": "inner"})
    reason = why_not(lambda: found.expect(ranges={"outer": {"max_kernels": 1}}))
    assert says(reason, RangeNotInStep, near="outer (in CUDA graphs)")


def test_the_cpu_goes_through_no_scope(annotated):
    found = annotated({"name": "phase_A"})
    inside = found.range("phase_A (in CUDA graphs)")
    assert (inside.launches, inside.syncs, inside.cpu_time_us, inside.cpu_gpu_ratio) == (None, None, None, None)
    with pytest.raises(NotMeasured, match="max_launches"):
        found.expect(ranges={"phase_A (in CUDA graphs)": {"max_launches": 0}})


def test_what_carries_no_annotation_is_named_and_no_range_is_judged_beside_it(annotated, rows):
    found = annotated({"name": "phase_A"}, {})
    assert ("without annotation (in CUDA graphs)", 2, 2, 12, 0) in rows(found, "range")
    reason = why_not(lambda: found.expect(ranges={"phase_A (in CUDA graphs)": {"max_kernels": 9}}))
    # Of both steps: in which replays the range is besides is not known either.
    assert says(reason, RangeOfGraphUnknown, operations=2, named=((2, f"pointwise {NAMES[1]}"),))


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_paths_of_modules_are_rows_with_the_modules_that_hold_them(annotated, rows, layer):
    act = {key: f"{value}.act" if "." in value else value for key, value in layer.items()}
    root = "L." * layer.get("name", "").startswith("L.")
    whole, own = (2, 4, 22, 0), (2, 2, 12, 0)
    of = {"layers": whole, "layers.0": whole, "layers.0.mlp": whole, "layers.0.mlp.act": own}
    found = {name: tuple(figures) for name, *figures in rows(annotated(layer, act), "module")}
    assert {
        f"nn.Module: {root}{name} (in CUDA graphs)": figures for name, figures in of.items()
    }.items() <= found.items()


def test_a_kernel_that_was_fused_is_in_each_of_its_modules(annotated, rows):
    found = {name for name, *_ in rows(annotated({"name": "L.a.x + L.b.y"}), "module")}
    assert {"nn.Module: L.a.x (in CUDA graphs)", "nn.Module: L.b.y (in CUDA graphs)"} < found


def test_what_carries_no_annotation_is_a_row_beside_modules(annotated, rows):
    found = rows(annotated({"module_fqn": "head"}, {}), "module")
    assert ("without annotation (in CUDA graphs)", 2, 2, 12, 0) in found


def test_a_backward_pass_is_not_in_the_scope_of_its_forward(annotated, rows):
    found = rows(annotated({"name": "mlp"}, {"name": "mlp", "autograd_phase": "backward"}), "range")
    assert ("mlp (in CUDA graphs)", 2, 2, 10, 0) in found
    assert ("mlp (backward, in CUDA graphs)", 2, 2, 12, 0) in found


def test_failure_texts_say_where_in_the_graph(annotated):
    found = annotated({"module_fqn": "layers.0.mlp"}, {"name": "mlp", "autograd_phase": "backward"})
    assert {place for row in misses(found, max_kernels=1).rows for _, place in row.places} == {
        "layers.0.mlp",
        "backward of mlp",
    }


def test_a_scope_that_is_called_as_an_operator_proves_it_and_excludes_none(annotated):
    found = annotated({"name": "aten::linear"}, {"name": "act"})
    found.expect(kernels={gemm(op="linear"): 1})
    assert misses(found, forbid_ops=["aten::linear"]).seen == (ForbiddenMatches(1, "kernel", "aten::linear"),)
    for limits in ({"forbid_ops": ["aten::bmm"]}, {"kernels": {gemm(op="addmm"): 0}}, {"ops": ["aten::linear"]}):
        with pytest.raises(NotMeasured, match=NAMES[0]):
            found.expect(**limits)


@pytest.mark.parametrize(
    "scope", [{"name": {"a": 1}}, {"name": ""}, {"name": 7}, {"annotation": "[1"}, {"annotation": "[3]"}], ids=str
)
def test_what_is_no_text_names_nothing(annotated, rows, scope):
    assert not [row for row in rows(annotated(scope), "range") if "graphs" in row[0]]

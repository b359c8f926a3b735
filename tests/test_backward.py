"""The backward pass: what it launches tells whose backward it is, and counts in the range that waited for it."""

from __future__ import annotations

import json

import pytest
import torch
from builder import AUTOGRAD, TraceBuilder
from torch.profiler import ProfilerActivity, profile, record_function

from pytest_torchprof import load
from pytest_torchprof.cli import main

NODE = "autograd::engine::evaluate_function: MmBackward0"
CLEANING_UP = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
OTHER = 1002
"""A thread of the user's."""


def training():
    """Return a step whose forward is on the main thread, whose backward on autograd's, which the main thread awaits."""
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.annotation("forward", 10, 100)
    builder.launched("product", 20, op="aten::mm")
    builder.annotation("backward", 200, 500)
    builder.op(NODE, 250, 100, tid=AUTOGRAD)
    builder.op("MmBackward0", 255, 90, tid=AUTOGRAD)
    builder.launched("product", 260, op="aten::mm", tid=AUTOGRAD, dur=30)
    builder.launched("product", 290, op="aten::mm", tid=AUTOGRAD, dur=30)
    builder.op(CLEANING_UP, 400, 50, tid=AUTOGRAD)
    builder.launched("sum", 410, op="aten::add_", tid=AUTOGRAD, dur=7)
    builder.sync(1100, 10)
    return builder


@pytest.fixture
def look(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def test_a_kernel_of_the_backward_pass_names_the_operator_whose_backward_it_is(look):
    builder = training()
    builder.backward_of(20, 255)
    kernels = look(builder).kernels
    assert [(kernel.op, kernel.forward_op) for kernel in kernels] == [
        ("aten::mm", None),
        ("aten::mm", "aten::mm"),
        ("aten::mm", "aten::mm"),
        ("aten::add_", None),
    ]


def test_without_an_arrow_nobody_knows(look):
    assert {kernel.forward_op for kernel in look(training()).kernels} == {None}
    half = training()
    half.backward_of(20, 255)
    half.events = [event for event in half.events if event["ph"] != "s"]
    assert {kernel.forward_op for kernel in look(half).kernels} == {None}


def test_the_tables_say_so_too(look, tmp_path, capsys):
    builder = training()
    builder.op("aten::convolution", 150, 20)
    builder.op("ConvolutionBackward0", 500, 20, tid=AUTOGRAD)
    builder.launched("dgrad", 505, op="aten::convolution_backward", tid=AUTOGRAD)
    builder.backward_of(20, 255)
    builder.backward_of(150, 500)
    # Mostly called in the forward: nobody's backward.
    for at in (700, 720, 740):
        builder.launched("shared", at, op="aten::sum")
    builder.launched("shared", 512, op="aten::sum", tid=AUTOGRAD, dur=1)
    path = str(builder.write(tmp_path / "t.json"))
    assert main(["analyze", path, "--json", "--by", "op"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["forward_op"] for row in found["kernels"]} == {
        "product": "aten::mm",
        "dgrad": "aten::convolution",
        "sum": None,
        "shared": None,
    }
    assert {row["name"]: row["forward_op"] for row in found["ops"]} == {
        "MmBackward0": "aten::mm",
        "ConvolutionBackward0": "aten::convolution",
        "aten::convolution_backward": "aten::convolution",
        # Called three times, twice in a backward.
        "aten::mm": "aten::mm",
        **dict.fromkeys([NODE, CLEANING_UP, "aten::add_", "aten::convolution", "aten::sum"]),
    }
    assert main(["analyze", path]) == 0
    assert "convolution_ba... < convolution" in capsys.readouterr().out
    assert main(["analyze", path, "--by", "op"]) == 0
    assert "backward of aten::convolution" in capsys.readouterr().out


@pytest.mark.parametrize("arrows", [True, False])
def test_a_backward_pass_counts_in_the_range_that_waits_for_it(look, arrows):
    builder = training()
    if arrows:
        builder.backward_of(20, 255)
    profile = look(builder)
    forward, backward = profile.range("forward"), profile.range("backward")
    assert (forward.kernels, forward.launches, forward.kernel_time_us) == (1, 1, 10)
    assert (backward.kernels, backward.launches, backward.kernel_time_us) == (3, 3, 67)
    assert backward.cpu_time_us == 500


def test_a_range_of_another_thread_has_no_part_in_it_where_an_arrow_tells_who_waits(look):
    builder = training()
    builder.annotation("loading", 200, 500, tid=OTHER)
    assert look(builder).range("loading").kernels == 3
    builder.backward_of(20, 255)
    builder.backward_of(20, 400)
    assert look(builder).range("loading").kernels == 0
    assert look(builder).range("backward").kernels == 3


def test_other_threads_that_run_no_backward_count_for_themselves(look):
    builder = training()
    builder.launched("elsewhere", 300, tid=OTHER)
    assert look(builder).range("backward").kernels == 3


def test_what_checkpointing_runs_again_inside_the_backward_counts_there(look):
    builder = training()
    builder.op("CheckpointFunction", 120, 20)
    builder.op("CheckpointFunctionBackward", 460, 200, tid=AUTOGRAD)
    builder.op(NODE, 455, 210, tid=AUTOGRAD)
    builder.launched("product again", 470, op="aten::mm", tid=AUTOGRAD)
    builder.op("MmBackward0", 500, 50, tid=AUTOGRAD)
    builder.launched("product's backward", 510, op="aten::mm", tid=AUTOGRAD)
    builder.backward_of(120, 460)
    # The inner node's forward ran on autograd's own thread.
    builder.backward_of(470, 500, tid=AUTOGRAD)
    assert look(builder).range("backward").kernels == 5


def test_by_range_says_the_same_as_the_range(tmp_path, capsys, look):
    path = training().write(tmp_path / "t.json")
    assert main(["analyze", str(path), "--json", "--by", "range"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["ranges"]}
    assert {name: (row["kernels"], row["gpu_us"]) for name, row in rows.items()} == {
        "ProfilerStep*": (4, 77),
        "forward": (1, 10),
        "backward": (3, 67),
    }
    profile = load(path)
    for name in ("forward", "backward"):
        assert rows[name]["worst"] == {key: getattr(profile.range(name), key) for key in rows[name]["worst"]}


def test_an_unrecorded_launch_counts_in_the_range_in_which_it_ran(look):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 500)
    builder.annotation("graph", 100, 100)
    builder.launched("known", 10, tid=OTHER)
    builder.kernel("inside", 150, 5, builder.unrecorded())
    builder.kernel("outside", 300, 5, builder.unrecorded())
    builder.sync(600, 10)
    assert look(builder).trace.unrecorded_launches == 2
    assert look(builder).range("graph").kernels == 1


@pytest.mark.parametrize(
    ("recording", "linked", "kernels"),
    [
        # What is left is what autograd adds up by itself, which is nobody's backward.
        ("v100_ns_timestamps", {"aten::convolution", "aten::cudnn_batch_norm", "aten::relu_"}, 378),
        ("rtx3060_compile_steps", {"CompiledFunction", "aten::nll_loss_forward", "aten::_log_softmax"}, 137),
        ("rtx3060_cudagraph_steps", {"CompiledFunction", "aten::nll_loss_forward", "aten::_log_softmax"}, 138),
        ("mi250_string_tids", {"aten::mse_loss", "aten::relu", "aten::addmm"}, 4),
    ],
)
def test_recordings_name_whose_backward_their_kernels_are(recording, linked, kernels, shared_trace):
    profile = load(shared_trace(recording))
    found = [kernel for kernel in profile.kernels if kernel.forward_op is not None]
    assert len(found) == kernels
    assert linked <= {kernel.forward_op for kernel in found}
    assert all("Backward" in " ".join(kernel.op_chain) for kernel in found)


def test_the_backward_of_a_recording_is_in_its_range(shared_trace):
    profile = load(shared_trace("v100_ns_timestamps"))
    step, forward, backward = profile.worst, profile.range("## forward ##"), profile.range("## backward ##")
    optimizer = profile.range("## optimizer ##")
    # All of these 562 kernels are launched by autograd's thread.
    assert backward.kernels == 562
    assert step.kernels == forward.kernels + backward.kernels + optimizer.kernels
    assert step.launches == forward.launches + backward.launches + optimizer.launches


def test_live_arrows_link_a_backward_to_its_forward(tmp_path):
    x, w = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("forward"):
            y = torch.sigmoid(x @ w)
        y.sum().backward()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    trace = load(tmp_path / "t.json").trace
    names = {
        trace.names[trace.ops.name[backward]]: trace.names[trace.ops.name[forward]]
        for backward, forward in trace.forward_of.items()
    }
    assert names == {"SigmoidBackward0": "aten::sigmoid", "MmBackward0": "aten::mm", "SumBackward0": "aten::sum"}


def test_arrows_and_allocations_of_odd_types_are_left_out(look):
    builder = training()
    builder.backward_of(20, 255)
    builder.events += [
        {"ph": "s", "cat": "fwdbwd", "id": None, "tid": [], "ts": "soon"},
        {"ph": "f", "cat": 7},
        {"ph": "i", "name": "[memory]", "tid": 1, "ts": 5, "args": {"Bytes": "many"}},
        {"ph": "i", "name": None, "args": None},
    ]
    assert look(builder).kernels[1].forward_op == "aten::mm"
    assert len(look(builder).trace.allocations) == 0

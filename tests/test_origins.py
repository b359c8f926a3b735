"""Lines and modules out of the Python frames of a recording, ours or anybody's."""

from __future__ import annotations

import pytest
from builder import AUTOGRAD, TraceBuilder
from facts import misses

from pytest_torchprof import LimitsMissed, load
from pytest_torchprof.limits.remedies import REMEDIES
from pytest_torchprof.limits.seen import NumberSeen

pytestmark = pytest.mark.any_torch

MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, MulFunctor> >"
GEMM = "ampere_sgemm_128x64_tn"


@pytest.fixture
def profile(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def frame(builder, name, start, dur, **where):
    builder.event("python_function", name, start, dur, **where)


def foreign():
    """Return a recording of somebody's: a module that is called in a step, with torch's own frames around."""
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    frame(builder, "train.py(20): main", -50, 2000)
    builder.module("Net_0", 10, 500)
    frame(builder, "torch/nn/modules/module.py(1780): _call_impl", 11, 490)
    frame(builder, "net.py(6): forward", 12, 480)
    builder.module("Linear_1", 20, 100)
    frame(builder, "torch/nn/modules/linear.py(130): forward", 21, 90)
    frame(builder, "<built-in function linear>", 22, 80)
    builder.launched(GEMM, 30, op="aten::addmm")
    builder.launched(MUL, 200)
    builder.sync(1500, 50)
    return builder


def told(profile, **limits):
    """Return what a missed limit says, without its layout."""
    with pytest.raises(LimitsMissed) as missed:
        profile.expect(**limits)
    return " ".join(str(missed.value).split())


def test_a_kernel_of_a_foreign_recording_has_its_function_and_modules(profile):
    text = told(profile(foreign()), max_kernels=0)
    assert "10.0 us aten::addmm forward (net.py:6), Net_0.Linear_1" in text
    assert "10.0 us aten::mul forward (net.py:6), Net_0 " in text


@pytest.mark.parametrize("hook", ["__torch_function__", "__torch_dispatch__"])
def test_what_torch_calls_around_every_operator_is_not_who_asked_for_it(hook, profile):
    builder = foreign()
    frame(builder, f"parameter.py(122): {hook}", 25, 70)
    assert "10.0 us aten::addmm forward (net.py:6), Net_0.Linear_1" in told(profile(builder), max_kernels=0)


@pytest.mark.parametrize(
    "library",
    [
        "torch/nn/functional.py(1): linear",
        "typing.py(359): inner",
        "logging/__init__.py(1720): getEffectiveLevel",
        "/usr/lib/python3.12/contextlib.py(75): inner",
        "/opt/venv/lib/python3.12/site-packages/torch/_ops.py(10): __call__",
        "/tmp/torchinductor_root/ab/cab.py(82): call",
        "_pytest/python.py(160): pytest_pyfunc_call",
        "pytest_torchprof/run/measure.py(1): repeat",
        "<built-in method mul of type object at 0x7f>",
    ],
)
def test_frames_that_are_nobodys_to_change_are_passed_over(profile, library):
    builder = foreign()
    frame(builder, library, 199, 20)
    assert "aten::mul forward (net.py:6), Net_0 " in told(profile(builder), max_kernels=0)


def test_installed_packages_are_told_by_their_own_path(profile):
    builder = foreign()
    frame(builder, "/opt/venv/lib/python3.12/site-packages/transformers/bert.py(7): forward", 199, 20)
    assert "forward (transformers/bert.py:7), Net_0" in told(profile(builder), max_kernels=0)


def test_code_after_a_graph_break_goes_by_the_name_that_it_was_given(profile):
    builder = foreign()
    frame(builder, "net.py(9): torch_dynamo_resume_in_forward_at_9", 199, 20)
    assert "forward (net.py:9), Net_0" in told(profile(builder), max_kernels=0)


def test_what_autograd_launches_on_its_thread_is_placed_where_the_program_waits(profile):
    builder = foreign()
    frame(builder, "train.py(30): backward_pass", 600, 300)
    builder.op("autograd::engine::evaluate_function: MulBackward0", 690, 30, tid=AUTOGRAD)
    builder.launched(MUL, 700, tid=AUTOGRAD)
    assert "backward_pass (train.py:30)" in told(profile(builder), max_kernels=0)


def test_what_another_thread_launches_is_nowhere(profile):
    builder = foreign()
    frame(builder, "train.py(30): unrelated", 600, 300)
    builder.launched(MUL, 700, tid=AUTOGRAD)
    assert "unrelated" not in told(profile(builder), max_kernels=0)


def mark(builder, place, start):
    """A mark as ours leave them; they hold until the next one."""
    frame(builder, f"[line] {place}", start, 1)


def marked():
    """Return a recording of ours with marks of lines and modules."""
    builder = TraceBuilder()
    builder.own(steps=1, lines=True)
    builder.step(0, 0, 1000)
    mark(builder, "test_x.py(40): test_x, ", 5)
    mark(builder, "net.py(7): forward, Net_0", 11)
    mark(builder, "net.py(7): forward, Net_0.Linear_0", 15)
    builder.launched(GEMM, 20, op="aten::addmm")
    mark(builder, "net.py(8): forward, Net_0", 50)
    builder.launched(MUL, 60)
    mark(builder, "test_x.py(40): test_x, ", 510)
    builder.launched(MUL, 600)
    builder.sync(1500, 50)
    return builder


def test_with_marks_the_line_is_the_one_that_was_reached_last(profile):
    text = told(profile(marked()), max_kernels=0)
    assert "aten::addmm net.py:7 in forward, Net_0.Linear_0 " in text
    assert "1 x net.py:8 in forward, Net_0 " in text


def test_after_a_call_the_line_is_that_of_the_caller_again(profile):
    assert "1 x test_x.py:40 in test_x" in told(profile(marked()), max_kernels=0)


@pytest.mark.parametrize(("place", "text"), [(", Net_0", " aten::exp Net_0 "), (", ", " aten::exp do:")])
def test_marks_outside_of_the_users_code_tell_the_modules_or_nothing(profile, place, text):
    builder = TraceBuilder()
    builder.own(steps=1, lines=True)
    builder.step(0, 0, 1000)
    mark(builder, place, 5)
    builder.launched(MUL, 60, op="aten::exp")
    builder.sync(1500, 50)
    assert text in told(profile(builder), max_kernels=0)


def test_beside_marks_frames_tell_of_other_threads(profile):
    builder = marked()
    frame(builder, "net.py(90): in_background", 700, 50, tid=AUTOGRAD)
    builder.launched(MUL, 710, tid=AUTOGRAD, op="aten::exp")
    text = told(profile(builder), max_kernels=0)
    assert "in_background (net.py:90)" in text


def test_without_frames_nothing_is_said(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.launched(MUL, 200)
    builder.sync(1500, 50)
    found = profile(builder)
    assert not found.launching.origins.recorded
    assert f"10.0 us aten::mul do: {REMEDIES['max_kernels']}" in told(found, max_kernels=0)


def transfers():
    """Return a step that copies to the GPU, and reads a value back by an operator."""
    builder = foreign()
    builder.op("aten::copy_", 600, 30)
    builder.memcpy("HtoD", 620, 5, builder.call("copy", 602), size=4096)
    builder.op("aten::item", 700, 50)
    builder.op("aten::_local_scalar_dense", 701, 48)
    builder.memcpy("DtoH", 720, 2, builder.call("copy", 702), size=4)
    builder.sync(710, 30, what="stream sync")
    builder.sync(800, 20, what="device sync")
    builder.op("aten::add", 900, 10)
    return builder


def test_too_many_blocking_calls_are_named_with_operator_time_and_line(profile):
    text = told(profile(transfers()), max_syncs=0)
    assert "max_syncs=0 2 blocking calls" in text
    assert "1 x cudaStreamSynchronize 30.0 us aten::item, aten::_local_... main (train.py:20)" in text
    assert "1 x cudaDeviceSynchronize 20.0 us main (train.py:20)" in text


def test_too_many_copies_are_named_with_direction_size_operator_and_line(profile):
    text = told(profile(transfers()), max_memcpys=1)
    assert "max_memcpys=1 2 copies" in text
    assert "1 x Memcpy HtoD (Pageable -> Device) 5.00 us 4.00 KiB aten::copy_ main (train.py:20)" in text
    assert "1 x Memcpy DtoH (Device -> Pageable) 2.00 us 4 B aten::_local_scalar_dense main (train.py:20)" in text


def test_too_many_fills_are_named(profile):
    builder = foreign()
    builder.op("aten::zero_", 600, 30)
    builder.memset(620, 5, builder.call("fill", 602))
    assert "1 x Memset (Device) 5.00 us 4 B aten::zero_ main (train.py:20)" in told(profile(builder), max_memsets=0)


def test_a_ratio_is_shown_with_the_two_times_that_it_is_made_of(profile):
    verdict = misses(profile(foreign()), max_cpu_gpu_ratio=0.5)
    assert verdict.seen == (NumberSeen("cpu_gpu_ratio", 50, beyond=0.5, parts_us=(1000, 20)),)
    assert f"max_cpu_gpu_ratio=0.5 {verdict.seen[0]}" in told(profile(foreign()), max_cpu_gpu_ratio=0.5)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("h100_transformer_three_steps", "forward (torch_prof.py:36), SimpleTransformerLayer_0.Sequential_0.Linear_0"),
        ("h100_bert_small", "forward (transformers/models/bert/modeling_bert.py:"),
        ("a100_moe_no_steps", "SwitchTransformer_0.SwitchTransformerBlock_0."),
        ("rocm_no_correlation", ""),
    ],
)
def test_shared_recordings_with_stacks_tell_lines_and_modules(shared_trace, name, place):
    found = load(shared_trace(name))
    assert found.launching.origins.recorded
    assert place in told(found, max_kernels=0) or any(
        place in str(origin) for step in found.steps for _, origin in step.places.of(step.places.work)
    )


@pytest.mark.parametrize(
    ("name", "module"), [("h100_bert_small", "BertModel_0"), ("b200_eager_nvjet", "TransformerBlock_0")]
)
def test_a_recording_is_analysed_by_module(shared_trace, name, module):
    assert module in load(shared_trace(name)).table(by="module")


def test_findings_of_a_recording_with_stacks_have_lines(shared_trace):
    sources = {one.code: one.evidence.get("source") for one in load(shared_trace("h100_bert_small")).findings}
    assert any(source and "modeling_bert.py:" in source for source in sources.values()), sources

"""Recordings that torch.profiler made without a GPU, taken for recordings of the CPU as device."""

from __future__ import annotations

import json

import pytest
import torch
from builder import MAIN, TraceBuilder
from facts import says
from torch.profiler import ProfilerActivity, profile, schedule

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.recordings import GpuWasMeasured, RecordedElsewhere


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Three steps of a product and an addition, recorded as anybody would."""
    path = tmp_path_factory.mktemp("recordings") / "cpu.json"
    a = torch.ones(16, 16)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda one: one.export_chrome_trace(str(path)),
    ) as running:
        for _ in range(4):
            (a @ a).add(1)
            running.step()
    return path


def test_its_kernels_are_the_operators_that_compute(recording):
    found = load(recording, device="cpu")
    assert found.why_not is None
    assert [[kernel.op for kernel in step.kernels] for step in found.steps] == [["aten::mm", "aten::add"]] * 3
    assert found.launches is None
    found.expect(max_kernels=2, kernels={"aten::mm": 1})


def test_without_it_the_text_says_how(recording):
    assert "load(path, " in load(recording).why_not


def test_a_folder_is_read_so_too(recording):
    (found,) = load(recording.parent, device="cpu")
    assert [len(step.kernels) for step in found.steps] == [2, 2, 2]


def test_the_commands_take_it(recording, capsys):
    file = str(recording)
    assert main(["check", file, "--limit", "max_kernels=2"]) == 3
    assert "--device cpu" in capsys.readouterr().out
    assert main(["check", file, "--limit", "max_kernels=2", "--device", "cpu"]) == 0
    assert "work on threads that torch.profiler does not see" in capsys.readouterr().out
    assert main(["check", file, "--limit", "max_kernels=1", "--device=cpu"]) == 1
    assert main(["check", file, "--limit", "max_launches=1", "--device=cpu"]) == 3
    assert main(["diff", file, file]) == 3
    assert main(["diff", file, file, "--device=cpu"]) == 0
    capsys.readouterr()
    assert main(["analyze", file, "--device", "cpu"]) == 0
    assert "GPU" not in capsys.readouterr().out
    assert main(["analyze", file, "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"]["measured"]


def test_what_is_no_device_is_refused(recording, capsys):
    assert main(["analyze", str(recording), "--device", "tpu"]) == 2
    assert "expected cuda or cpu, got 'tpu'" in capsys.readouterr().err


def test_a_recording_of_a_gpu_is_not_taken_for_one_of_the_cpu(shared_trace):
    with pytest.raises(TorchprofError) as refused:
        load(shared_trace("a100_sam_fast_large"), device="cpu")
    assert says(refused.value.reason, GpuWasMeasured, asked="cpu")


def test_a_recording_that_says_what_was_measured_is_taken_for_nothing_else(run_tests, pytester):
    run_tests(
        '@pytest.mark.torchprof(device="cpu", max_kernels=1)\ndef test_a():\n    torch.ones(4).mul(2)\n',
        "--torchprof-baseline=off",
        "--torchprof-save=saved",
    ).assert_outcomes(failed=1)
    path = next(pytester.path.rglob("saved/**/*[0-9a-f].json.gz"))
    assert len(load(path, device="cpu").kernels) == len(load(path).kernels) == 2
    with pytest.raises(TorchprofError) as refused:
        load(path, device="cuda")
    assert refused.value.reason == RecordedElsewhere("cpu", "cuda")
    assert str(path) in str(refused.value)


FLEX_ATTENTION = "graph_2_kernel"
"""What Inductor calls the kernel that it makes of flex_attention's template."""


def test_a_graph_without_its_kernels_is_not_measured(tmp_path):
    """The C++ kernels of Inductor leave events only where they were compiled to."""

    def made(*kernels):
        builder = TraceBuilder()
        builder.step(0, 0, 900)
        for place, kernel in enumerate(kernels):
            builder.annotation(f"## Call CompiledFxGraph {place} ##", 100 * place, 90)
            builder.op(kernel, 100 * place + 10, 30)
        return load(builder.write(tmp_path / "t.json"), device="cpu")

    for kernel in ("graph_0_cpp_fused_add_0", FLEX_ATTENTION):
        assert made(kernel).kernels.matching(kernel).count == 1
        made(kernel).expect(max_kernels=5)
    for kernels in (["aten::mm"], ["graph_0_cpp_fused_add_0", "aten::mm"]):
        with pytest.raises(NotMeasured, match="TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1"):
            made(*kernels).expect(max_kernels=5)


OTHER = 4242
"""A thread of torch's, on which a forked function runs."""


@pytest.mark.parametrize("waits", [True, False])
def test_what_a_fork_runs_are_its_operators_wherever_its_frames_lie(tmp_path, waits):
    """As torch 2.13 records ``torch.jit.fork``: frames by the function's name, the work on whichever thread was free."""
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.op("forward", 100, 500)
    builder.op("<forked function>", 150, 400, tid=OTHER)
    builder.op("aten::mm", 200, 100, tid=OTHER)
    # A frame that waited goes on where the function ended that it had waited for.
    builder.op("aten::add", 450, 50, tid=OTHER if waits else MAIN)
    if waits:
        builder.op("<forked function>", 510, 10, tid=OTHER + 1)
    kernels = load(builder.write(tmp_path / "t.json"), device="cpu").kernels
    assert [kernel.name for kernel in kernels] == ["aten::mm", "aten::add"]


def test_a_frame_of_torchscript_without_operators_is_one_kernel(tmp_path):
    """A fused graph leaves no event but its function's frame."""
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.op("forward", 100, 500)
    assert load(builder.write(tmp_path / "t.json"), device="cpu").kernels.names == ["forward"]

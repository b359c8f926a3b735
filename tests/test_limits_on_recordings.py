"""Each limit holds and is missed on a real recording, by the independently computed figures beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from facts import misses, says, why_not

from pytest_torchprof import gemm, load
from pytest_torchprof.cli import main
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.composed import FindingUntold
from pytest_torchprof.reasons.limits import NothingRan
from pytest_torchprof.reasons.operators_untold import CarriedUntold, OperatorMatchUntold, OperatorUntold
from pytest_torchprof.reasons.own_steps import NoGpuOperations
from pytest_torchprof.reasons.recordings import MadeWithoutGpu, NumberNotRecorded
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.throughput import FlopsNotRecorded

TRACES = Path(__file__).parents[2] / "shared" / "traces"
pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(not (TRACES / "expected.json").is_file(), reason="needs the shared recordings"),
]


def worst(name: str) -> dict[str, float]:
    entries = json.loads((TRACES / "expected.json").read_text())
    summary: dict[str, float] = next(e for e in entries if e["file"] == f"{name}.json.gz")["expected"]["summary"][
        "worst"
    ]
    return summary


AT_MOST = [
    ("rtx3060_compile_steps", "max_kernels", "kernels", 1),
    ("rtx3060_cudagraph_steps", "max_launches", "launches", 1),
    ("h100_bert_small", "max_memcpys", "memcpys", 1),
    ("rtx3060_compile_steps", "max_memsets", "memsets", 1),
    ("v100_resnet50_steps", "max_syncs", "syncs", 1),
    ("h100_bert_small", "max_cpu_gpu_ratio", "cpu_gpu_ratio", 0.1),
    ("mi300x_bert_small", "max_kernels", "kernels", 1),
]


@pytest.mark.parametrize(("name", "limit", "number", "less"), AT_MOST)
def test_a_limit_from_above_holds_at_the_figure_and_is_missed_below_it(name, limit, number, less):
    profile = load(TRACES / f"{name}.json.gz")
    figure = worst(name)[number]
    profile.expect(**{limit: figure if isinstance(figure, int) else figure * 1.001})
    assert misses(profile, **{limit: figure - less}).number == pytest.approx(figure)


@pytest.mark.parametrize(
    ("name", "limit", "number", "more"),
    [
        ("rtx3060_compile_steps", "min_gpu_utilization", "gpu_utilization", 0.01),
        ("rtx3060_compile_steps", "min_sm_efficiency", "sm_efficiency", 0.01),
    ],
)
def test_a_limit_from_below_holds_at_the_figure_and_is_missed_above_it(name, limit, number, more):
    profile = load(TRACES / f"{name}.json.gz")
    figure = worst(name)[number]
    profile.expect(**{limit: figure * 0.999})
    assert misses(profile, **{limit: figure + more}).number == pytest.approx(figure)


def test_min_kernels_takes_the_step_with_fewest():
    profile = load(TRACES / "rtx3060_compile_steps.json.gz")
    profile.expect(min_kernels=202)
    assert misses(profile, min_kernels=203).number == 202


def test_max_gpu_time_is_a_limit_on_busy_time():
    profile = load(TRACES / "rtx3060_compile_steps.json.gz")
    assert worst("rtx3060_compile_steps")["gpu_busy_us"] == pytest.approx(22647.323)
    profile.expect(max_gpu_time="22.7ms")
    profile.expect(max_gpu_time=0.0227)
    verdict = misses(profile, max_gpu_time="22.6ms")
    assert (verdict.written, verdict.number) == ("max_gpu_time=22.6ms", pytest.approx(22647.323))


@pytest.mark.parametrize(
    ("holds", "missed"),
    [
        ({"kernels": "gemm"}, {"kernels": "no_such_kernel"}),
        ({"kernels": ["re:^ampere_", "*gemm*"]}, {"kernels": ["re:^ampere_", "re:^volta_"]}),
        ({"kernels": {"re:.": 202}}, {"kernels": {"re:.": 201}}),
        ({"kernels": {"re:.": (200, 202)}}, {"kernels": {"re:.": (203, 300)}}),
        ({"forbid_kernels": "nccl"}, {"forbid_kernels": ["nccl", "triton_poi"]}),
        ({"only_kernels": ["re:."]}, {"only_kernels": "triton_*"}),
        ({"ops": "CompiledFunction"}, {"ops": "aten::no_such_operator"}),
        ({"forbid_ops": "aten::lstm"}, {"forbid_ops": ["CompiledFunction"]}),
        ({"forbid": "no-gpu-work"}, {"forbid": ["no-gpu-work", "in-flight-kernels"]}),
    ],
)
def test_what_ran_holds_and_is_missed_on_a_compiled_training_step(holds, missed):
    profile = load(TRACES / "rtx3060_compile_steps.json.gz")
    profile.expect(**holds)
    misses(profile, **missed)


@pytest.mark.parametrize(
    ("name", "limits", "kind", "facts"),
    [
        ("a100_launches_without_kernels", {"max_kernels": 10_000}, NoGpuOperations, {"launches": 260}),
        ("cpu_only_steps", {"max_kernels": 10_000}, MadeWithoutGpu, {}),
        ("cpu_only_steps", {"max_syncs": 10_000}, MadeWithoutGpu, {}),
        ("mi300x_bert_small", {"min_sm_efficiency": 0.0}, NumberNotRecorded, {"number": "sm_efficiency"}),
        ("rtx3060_compile_steps", {"max_peak_memory": "80GiB"}, NumberNotRecorded, {"number": "peak_memory_bytes"}),
        ("rtx3060_compile_steps", {"min_mfu": 0.0}, FlopsNotRecorded, {}),
        (
            "mi250_string_tids",
            {"max_kernels": 14},
            NothingRan,
            {"step": StepTitle(step=2, steps=2, name="ProfilerStep#2")},
        ),
        ("rocm_no_correlation", {"forbid": ["launch-gaps"]}, FindingUntold, {"finding": "launch-gaps"}),
        ("mi210_gpu_only", {"forbid": ["misaligned-gemm"]}, FindingUntold, {"finding": "misaligned-gemm"}),
        ("mi300x_bert_small", {"forbid": ["low-occupancy"]}, FindingUntold, {"finding": "low-occupancy"}),
        ("mi210_gpu_only", {"forbid_ops": ["aten::mm"]}, OperatorUntold, {"kernels": 562}),
        ("mi210_gpu_only", {"ops": {"aten::mm": 0}}, OperatorUntold, {"kernels": 562}),
        ("mi210_gpu_only", {"ops": "aten::mm"}, OperatorUntold, {"kernels": 562}),
        ("a100_graphs_nccl_orphans", {"fused": ["add", "mul"]}, CarriedUntold, {"kernels": 15}),
        ("rtx3060_cudagraph_steps", {"forbid_ops": ["aten::mm"]}, OperatorUntold, {"kernels": 191}),
        ("rtx3060_cudagraph_steps", {"forbid_kernels": gemm(op="mm")}, OperatorMatchUntold, {"count": 51}),
    ],
)
def test_what_a_recording_cannot_tell_is_not_measured(name, limits, kind, facts, shared_trace):
    profile = load(shared_trace(name))
    assert says(why_not(lambda: profile.expect(**limits)), kind, **facts)


def test_an_empty_step_is_fine_where_the_test_says_so():
    load(TRACES / "mi250_string_tids.json.gz").expect(max_kernels=14, min_kernels=0)


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["max_kernels=202", "max_gpu_time=22.7ms", "kernels=gemm", "kernels=triton_*"], 0),
        (["max_kernels=201"], 1),
        (["max_kernels=201", "max_peak_memory=1"], 1),
        (["max_kernels=202", "max_peak_memory=1"], 3),
        (["kernels={'gemm': (1, 500)}"], 0),
        (['kernels=["gemm", "no_such"]'], 1),
        (["max_kernel=1"], 2),
        (["max_kernels=many"], 2),
        (["max_kernels"], 2),
        (["max_kernels=1", "max_kernels=2"], 2),
    ],
)
def test_check_judges_a_file_by_the_same_limits(limits, status, capsys):
    argv = [word for limit in limits for word in ("--limit", limit)]
    assert main(["check", str(TRACES / "rtx3060_compile_steps.json.gz"), *argv]) == status
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert bool(said.err) == (status == 2)


@pytest.mark.parametrize(
    "argv", [[], ["a.json"], ["a.json", "--limit"], ["--limit", "max_kernels=1"], ["a", "--limt=1"]]
)
def test_check_without_what_it_needs_is_bad_usage(argv, capsys):
    assert main(["check", *argv]) == 2
    assert "torchprof check" in capsys.readouterr().err


def test_check_says_what_is_wrong_with_a_file(tmp_path, capsys):
    assert main(["check", str(tmp_path / "missing.json"), "--limit", "max_kernels=1"]) == 2
    assert "missing.json" in capsys.readouterr().err


def test_a_forbidden_operator_may_launch_a_copy_and_no_kernel(shared_trace):
    profile = load(shared_trace("a100_moe_no_steps"))
    verdict = misses(profile, forbid_ops="aten::item")
    assert verdict.seen == (ForbiddenMatches(20, "operator", "aten::item"),)
    assert "aten::item" not in profile.ops

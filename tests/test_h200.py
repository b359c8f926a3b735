"""The examples as one NVIDIA H200 ran them (tests/recordings/README.md), judged on any machine: counts, names, limits, numbers of the device."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from pytest_torchprof import gemm, load

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
RECORDINGS = sorted((ROOT / "tests/recordings/h200").glob("*.json.gz"))
ADOPTED = ("test_serving", "test_training")
"""Recordings of a profiler of the example's own, whose steps are its ranges."""


def recorded(name):
    (path,) = [path for path in RECORDINGS if path.name.startswith(f"{name}.")]
    return load(path)


def counted_by_hand(path):
    """Count each step's kernels by the calls with their numbers, straight from the file."""
    events = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"
    ]
    began = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event["args"]
    }
    launched = [began[event["args"]["correlation"]] for event in events if event.get("cat") == "kernel"]
    steps = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and re.fullmatch(r"ProfilerStep#\d+", event["name"])
    }
    return {name: sum(start <= ts < end for ts in launched) for name, (start, end) in steps.items()}


@pytest.mark.parametrize(
    "path",
    [path for path in RECORDINGS if not path.name.startswith(ADOPTED)],
    ids=lambda path: path.name.split(".")[1][:60],
)
def test_each_step_has_the_kernels_that_the_file_has_for_it(path):
    profile = load(path)
    assert profile.why_not is None
    assert {step.name: len(step.kernels) for step in profile.steps} == counted_by_hand(path)
    assert (profile.trace.orphans, profile.trace.lost_kernels) == (0, 0)
    assert not [kernel.name for kernel in profile.kernels if kernel.family is None]


def test_a_linear_layer_is_one_product_of_cublas_with_its_layout_and_type():
    profile = recorded("test_linear.test_eager_is_one_gemm")
    (name,) = {kernel.name for kernel in profile.kernels}
    assert name.startswith("nvjet_sm90_")
    profile.expect(kernels={gemm(layout="tn", dtype="bf16"): 1}, max_kernels=1, max_launches=1, max_syncs=0)


def test_what_is_compiled_is_one_triton_kernel_beside_the_products():
    profile = recorded("test_geglu_mlp.test_compiled_the_two_pointwise_kernels_are_one")
    profile.expect(kernels={gemm(): 3, "triton_poi_fused_*": 1}, fused=["gelu", "mul"], max_graph_breaks=0)


def test_a_graphs_replay_is_one_launch_of_all_its_kernels():
    (step, *_) = recorded("test_cuda_graph.test_one_launch_replays_the_whole_step").steps
    assert (step.launches, step.graph_launches) == (1, 1)
    assert len(step.kernels) > 1


def test_a_short_kernel_is_bound_by_overhead_and_a_long_one_is_not():
    small, large = (recorded(f"test_matmul_add.test_eager_is_two_kernels-{size}") for size in (64, 4096))
    assert small.cpu_gpu_ratio > 10
    assert large.cpu_gpu_ratio < 1


JUDGED = ("test_linear", "test_geglu_mlp", "test_matmul_add", "test_multiply_add", "test_batched_matmul")


def test_examples_are_judged_without_a_gpu_as_they_were_on_it(pytester):
    examples = pytester.mkdir("examples")
    for name in ("conftest", *JUDGED):
        shutil.copy(ROOT / "examples" / f"{name}.py", examples)
    pytester.makeini("[pytest]")
    kept = ROOT / "tests/recordings/h200"
    judged = pytester.runpytest_inprocess("examples", "-p", "no:cacheprovider", f"--torchprof-replay={kept}")
    judged.assert_outcomes(passed=11, skipped=1)  # max-autotune is asked of a GPU alone
    assert "NVIDIA H200 (sm_90), torch 2.11.0+cu130" in judged.stdout.str()

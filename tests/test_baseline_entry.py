"""What a baseline keeps of a recording."""

from __future__ import annotations

import json

import pytest

from pytest_torchprof import load
from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.baseline import device_slug, entry_of, read, update
from pytest_torchprof.baseline.family_times import KEYS
from pytest_torchprof.compare import compare

pytestmark = pytest.mark.any_torch

GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
ADD = "triton_poi_fused_add_0"
ENVIRONMENT = {
    "gpu": "NVIDIA H200",
    "compute_capability": "9.0",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.13.0+cu130",
    "triton": None,
    "python": "3.12.1",
    "tf32_matmul": False,
    "matmul_precision": "highest",
    "clocks_mhz": {"sm": 1980},
    "cpu": "a CPU",
    "platform": "Linux-x86_64",
}


def recording(tmp_path, *steps: tuple[str, ...], environment: dict | None = ENVIRONMENT, device: str = "cuda:0"):
    """Return the profile of a recording whose steps launch kernels of these names, each 10 us long."""
    events, correlation = [], 0
    for number, names in enumerate(steps):
        start = 1000 * (number + 1)
        events.append(event("user_annotation", f"ProfilerStep#{number}", start, 900))
        for place, name in enumerate(names):
            correlation += 1
            at = start + 20 * place + 1
            link = {"correlation": correlation, "External id": correlation}
            events.append(event("cpu_op", "aten::op", at, 8, **{"External id": correlation}))
            events.append(event("cuda_runtime", "cudaLaunchKernel", at + 1, 2, **link))
            gpu = event("kernel", name, at + 5, 10, device=0, stream=7, **link)
            events.append(gpu | {"pid": 0, "tid": 7})
    own = {"schema": 1, "nodeid": "t", "device": device, "environment": environment, "steps": len(steps)}
    own["peak_memory_bytes"] = 123_456_789
    file = tmp_path / "recording.json"
    file.write_text(json.dumps({"traceEvents": events} | ({"torchprof": own} if environment else {})))
    return load(file)


def event(category: str, name: str, start: int, duration: int, **args: object) -> dict:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration, "args": args}


def test_kernels_are_kept_in_launch_order_with_counts_and_each_distinct_step_once(tmp_path):
    entry = entry_of(recording(tmp_path, (GEMM, ADD, GEMM), (GEMM, ADD, GEMM), (ADD, GEMM)), source_hash="s")
    assert [row.name for row in entry.kernels] == [GEMM, ADD]
    assert [(row.family, row.op) for row in entry.kernels] == [("gemm", "aten::op"), ("pointwise", "aten::op")]
    gemm, add = entry.kernels
    assert entry.steps == ((gemm, add, gemm), (add, gemm))
    assert entry.counts() == (2, 1)


def test_counts_are_the_worst_step_s_and_times_the_median(tmp_path):
    entry = entry_of(recording(tmp_path, (GEMM, ADD, GEMM), (ADD, GEMM), (ADD, GEMM)), source_hash="s")
    assert (entry.numbers["kernels"], entry.numbers["launches"], entry.numbers["syncs"]) == (3, 3, 0)
    assert entry.varying["kernel_time_us"] == 20.0
    assert entry.varying["peak_memory_bytes"] == 123_456_789
    assert entry.numbers["graph_breaks"] is None
    assert "recompiles" not in entry.numbers


def test_the_time_of_each_family_is_kept_of_the_step_in_the_middle(tmp_path):
    found = recording(tmp_path, (ADD, ADD, ADD, ADD), (GEMM, ADD, GEMM), (GEMM, ADD))
    varying = entry_of(found, source_hash="s").varying
    families = {name: varying[name] for name in varying if name in KEYS}
    assert families == {"gemm_us": 20.0, "pointwise_us": 10.0}
    assert not KEYS.keys() & BY_NAME.keys()


def test_only_what_decides_which_kernels_run_is_kept_of_the_environment(tmp_path):
    found = recording(tmp_path, (GEMM,))
    entry = entry_of(found, source_hash="s")
    assert entry.environment == {
        "gpu": "NVIDIA H200",
        "compute_capability": "9.0",
        "driver": "580.1",
        "cuda": "13.0",
        "torch": "2.13.0",
        "tf32_matmul": False,
        "matmul_precision": "highest",
    }
    assert device_slug(found.trace.environment) == "nvidia-h200-sm90"


def test_on_the_cpu_the_gpu_s_software_is_not_kept(tmp_path):
    on_cpu = ENVIRONMENT | {"gpu": None, "compute_capability": None}
    entry = entry_of(recording(tmp_path, (GEMM,), environment=on_cpu, device="cpu"), source_hash="s")
    assert entry.environment == {"torch": "2.13.0", "matmul_precision": "highest"}


def test_a_foreign_recording_has_no_environment_but_its_gpu(tmp_path):
    entry = entry_of(recording(tmp_path, (GEMM,), environment=None), source_hash="s")
    assert entry.environment == {"gpu": "unnamed GPU"}
    assert "peak_memory_bytes" not in entry.varying


def test_a_recording_is_the_same_as_its_own_baseline_and_an_added_kernel_is_worse(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"t": entry_of(recording(tmp_path, (GEMM, ADD), (GEMM, ADD)), source_hash="s")})
    old = read(file).entries["t"]
    again = entry_of(recording(tmp_path, (GEMM, ADD)), source_hash="s")
    assert compare(old, again).verdict == "same"
    more = entry_of(recording(tmp_path, (GEMM, ADD), (GEMM, ADD, "triton_poi_fused_mul_1")), source_hash="s")
    comparison = compare(old, more)
    assert comparison.summary == "worse (+1 kernel)"
    assert "triton_poi_fused_mul_1" in comparison.lines[0]


REAL = (
    "h100_transformer_three_steps",
    "mi300x_bert_small",
    "rtx3060_cudagraph_steps",
    "v100_resnet50_steps",
    "b200_eager_nvjet",
    "cpu_only_steps",
)


@pytest.mark.parametrize("name", REAL)
def test_a_real_recording_is_the_same_as_its_own_baseline_read_back(shared_trace, tmp_path, name):
    entry = entry_of(load(shared_trace(name)), source_hash="s")
    file = tmp_path / "b.json"
    update(file, {"t": entry})
    assert read(file).entries == {"t": entry}
    assert compare(read(file).entries["t"], entry).summary == "same"
    before = file.read_bytes()
    update(file, {"t": entry_of(load(shared_trace(name)), source_hash="s")})
    assert file.read_bytes() == before
    assert len(before) < 150_000

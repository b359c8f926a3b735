"""The tutorials' own workloads give the tutorials' own diagnoses on a real GPU."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from pytest_torchprof import capture, load
from pytest_torchprof.analysis.operator_rows import by_op
from pytest_torchprof.findings import RULES, find

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


@pytest.fixture
def record(tmp_path):
    """Return a function that records calls on the GPU and returns the profile."""

    def run(step, *, warmup=3, steps=5, count_flops=False):
        device = capture.pick_device("auto")
        capture.arm(device)
        path = tmp_path / "recording.json"
        plan = capture.Plan(
            device=device,
            warmup=warmup,
            steps=steps,
            record=frozenset(),
            nodeid="t.py::t",
            label=None,
            count_flops=count_flops,
        )
        with closing(capture.iterations(plan, path, lambda _: None)) as calls:
            for _ in calls:
                step()
        return load(path)

    return run


def codes(profile):
    """Return all that is found, of however little time: on the simulated device times say nothing."""
    return {finding.code: finding for finding in find(profile, RULES)}


def matmul_add(size, dtype=torch.bfloat16):
    x, w, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(3))
    return lambda: torch.add(torch.matmul(x, w), b)


class WrittenNorm(nn.RMSNorm):
    """RMSNorm as models of transformers have it."""

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def test_a_norm_written_as_operators_is_found_and_torchs_own_is_one_kernel(record):
    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    written, own = (kind(256, device="cuda", dtype=torch.bfloat16) for kind in (WrittenNorm, nn.RMSNorm))
    found = codes(record(lambda: written(x)))["unfused-norm"]
    assert (found.norms, found.each, found.count) == (5, 8, 40)
    ready = record(lambda: own(x))
    assert "unfused-norm" not in codes(ready)
    assert len(ready.kernels) == 1


def test_a_small_product_is_bound_by_overhead(record):
    found = codes(record(matmul_add(64)))
    assert "overhead-bound" in found
    assert "compute-bound" not in found


@pytest.mark.real_gpu("whether the GPU or the CPU is the slower one is a time")
def test_a_large_product_is_bound_by_the_gpu(record):
    step = matmul_add(4096)
    found = codes(record(lambda: [step() for _ in range(20)]))
    assert "compute-bound" in found
    assert not {"overhead-bound", "fp32-gemm", "tf32-gemm"} & set(found)


def test_a_compiled_product_with_a_matrix_added_hides_a_copy(record):
    torch._dynamo.reset()
    x, w, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    compiled = torch.compile(lambda: torch.add(torch.matmul(x, w), b))
    profile = record(compiled)
    assert ("hidden-copy" in codes(profile)) == bool(profile.memcpys_d2d)


@pytest.mark.parametrize(("precision", "code"), [("highest", "fp32-gemm"), ("high", "tf32-gemm")])
def test_float_products_are_told_by_the_flag(precision, code, record):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert code in codes(record(matmul_add(2048, torch.float32)))
    finally:
        torch.set_float32_matmul_precision(before)


class Layer(nn.Module):
    """The transformer layer of the tutorial on efficiency."""

    def __init__(self, *, fused):
        super().__init__()
        self.attention = nn.MultiheadAttention(512, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
        self.norms = nn.ModuleList(nn.LayerNorm(512) for _ in range(2))
        self.fused = fused

    def forward(self, x):
        x = self.norms[0](x + self.attention(x, x, x, need_weights=not self.fused)[0])
        return self.norms[1](x + self.mlp(x))


@pytest.fixture
def optimized(record):
    """The profile of the layer after the tutorial's first optimization: a fused attention, bf16, a larger input."""
    layer, x = Layer(fused=True).cuda().train(), torch.randn(32, 2048, 512, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return layer(x)

    return record(step)


def test_a_transformer_before_its_first_optimization(record):
    layer, x = Layer(fused=False).cuda().train(), torch.randn(16, 128, 512, device="cuda")
    found = codes(record(lambda: layer(x)))
    assert "unfused-attention" in found
    assert {"fp32-gemm", "tf32-gemm"} & set(found)


def test_a_transformer_after_its_first_optimization(optimized):
    assert not {"unfused-attention", "fp32-gemm", "tf32-gemm"} & set(codes(optimized))


@pytest.mark.real_gpu("which of its kernels take longer, and whether they wait for the CPU, is a time")
def test_a_transformer_after_its_first_optimization_fills_the_gpu(optimized):
    assert not {"overhead-bound", "small-grid"} & set(codes(optimized))


def test_a_value_that_is_asked_for_is_a_hidden_synchronization(record):
    x = torch.randn(64, device="cuda")
    assert "aten::item" in codes(record(lambda: (x * 2).sum().item()))["implicit-sync"].evidence["ops"]
    assert "implicit-sync" not in codes(record((x * 2).sum))


def test_a_share_of_the_peak_is_measured_where_the_peak_is_known(record):
    step = matmul_add(8192)
    throughput = record(step, count_flops=True).efficiency.throughput
    assert throughput.flops_per_step == 2 * 8192**3
    assert throughput.mfu is None or 0 < throughput.mfu < 1


A_TIME = pytest.mark.real_gpu("how much longer the first call took than others is a time")
COLD = """
import sys, torch
from torch.profiler import profile, record_function
x, w, b = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
def step():
    with record_function("matmul_add"):
        torch.add(torch.matmul(x, w), b)
for _ in range(int(sys.argv[1])):
    step()
torch.cuda.synchronize()
with profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=5, repeat=1)) as prof:
    if int(sys.argv[1]):
        step()  # The first launches under the profiler are slow too, in a warm process as in any.
    prof.step()
    for _ in range(5):
        step()
        prof.step()
prof.export_chrome_trace(sys.argv[2])
"""


@A_TIME
@pytest.mark.parametrize(("calls_before", "cold"), [(0, True), (10, False)])
def test_a_cold_process_is_told_from_a_warm_one(calls_before, cold, tmp_path):
    path = tmp_path / "t.json"
    subprocess.run([sys.executable, "-c", COLD, str(calls_before), str(path)], check=True)
    found = codes(load(path))
    assert ("cold-start" in found) == cold
    assert "overhead-bound" in found


def counted_twice(events):
    """Return what torch adds to operators in which CUPTI asks for a buffer: it counts that call's kernel there as well."""
    twice = Counter()
    for event in events:
        inside, time_us = event.cpu_parent, event.device_time_total
        while event.name == "Activity Buffer Request" and inside is not None:
            twice[inside.name] += time_us
            inside = inside.cpu_parent
    return twice


def test_the_operator_table_is_that_of_key_averages(tmp_path):
    model, x = nn.Linear(256, 256, device="cuda"), torch.randn(64, 256, device="cuda")

    def step():
        model(x).relu().sum().backward()

    step()
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True, profile_memory=True) as prof:
        for _ in range(3):
            step()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    found = load(tmp_path / "t.json")
    ours = {row.name: row for row in by_op(found.trace, found.launching, [step.part for step in found.steps])}
    theirs = {row.key: row for row in prof.key_averages() if row.key in ours and "cpu" in str(row.device_type).lower()}
    assert set(ours) == set(theirs)
    times_gpu = any(row.device_time_total for row in theirs.values())  # torch 2.11 has none on the simulated device
    twice = counted_twice(prof.events())
    for name, row in theirs.items():
        assert ours[name].calls == row.count
        assert ours[name].cpu_us == pytest.approx(row.cpu_time_total, abs=0.01)
        assert ours[name].self_cpu_us == pytest.approx(row.self_cpu_time_total, abs=0.01)
        if times_gpu:
            assert ours[name].gpu_us == pytest.approx(row.device_time_total - twice[name], abs=0.01)
            assert ours[name].self_gpu_us == pytest.approx(row.self_device_time_total, abs=0.01)
        assert ours[name].gpu_memory_bytes == row.device_memory_usage
        assert ours[name].self_gpu_memory_bytes == row.self_device_memory_usage


def test_a_backward_pass_counts_in_the_range_around_it(record):
    model, x = nn.Linear(256, 256, device="cuda"), torch.randn(64, 256, device="cuda")

    def step():
        with record_function("forward"):
            loss = model(x).relu().sum()
        with record_function("backward"):
            loss.backward()

    found = record(step)
    whole, forward, backward = found.worst, found.range("forward"), found.range("backward")
    assert backward.kernels > 0
    assert forward.kernels + backward.kernels == whole.kernels
    linked = {kernel.forward_op for kernel in found.kernels} - {None}
    assert {"aten::addmm", "aten::relu"} <= linked

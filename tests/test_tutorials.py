"""The tutorials' own workloads give the tutorials' own diagnoses: on traces with their figures, and on recordings.

tests/gpu/test_gpu_findings.py asks the same of the workloads themselves, on a GPU.
"""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from pytest_torchprof import load

pytestmark = pytest.mark.any_torch

PRODUCT = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >(int)"
STEP_US = 100


def operands(size):
    return [([size, size], [size, 1], "c10::BFloat16")] * 2


@pytest.fixture
def codes(tmp_path):
    return lambda builder: {finding.code: finding for finding in load(builder.write(tmp_path / "t.json")).findings}


def matmul_add(durations, *, size, gaps=(5.5, 4.5, 5, 5, 5)):
    """Return steps of a product and an addition; ``gaps`` pass from entering the range to the first operator."""
    builder, at = TraceBuilder(), 0
    ready = 0.0
    for number, (product_us, add_us) in enumerate(durations):
        gap = gaps[number]
        builder.step(number, at, STEP_US + gap)
        builder.annotation("matmul_add", at + 1, STEP_US - 5 + gap)
        begin = at + 1 + gap
        builder.op("aten::matmul", begin, 40)
        for name, op, late, spent in ((PRODUCT, "aten::mm", 2, product_us), (ADD, "aten::add", 50, add_us)):
            builder.op(op, begin + late, 30, inputs=operands(size))
            ready = max(ready, begin + late + 20)
            builder.kernel(name, ready, spent, builder.launch(begin + late + 10, 5), blocks_per_sm=1.2)
            ready += spent
        at += STEP_US + gap
    builder.sync(at + 5, max(ready - at, 0) + 1800)
    return builder


SMALL = [(3.5, 1.6)] * 3


def test_of_size_64_the_overhead_is_what_takes_the_time(codes):
    # 23 us on the GPU against 2.3 ms on the CPU; the wait of 1.78 ms over 26 us of work is the profiler's own.
    found = codes(matmul_add(SMALL, size=64))
    assert "overhead-bound" in found
    assert not {"compute-bound", "sync-over-little-work", "cold-start", "fp32-gemm", "tf32-gemm"} & set(found)


def test_of_size_4096_the_gpu_is(codes):
    found = codes(matmul_add([(580, 60)] * 3, size=4096))
    assert "compute-bound" in found
    assert not {"overhead-bound", "launch-gaps", "kernel-time-varies"} & set(found)


def test_a_cold_run_is_told_from_a_warm_one(codes):
    cold = codes(matmul_add(SMALL, size=64, gaps=(227.757, 5.521, 4.488)))["cold-start"]
    assert "matmul_add" in cold.message
    assert cold.evidence["first_call_us"] == pytest.approx(222.236)
    assert "cold-start" not in codes(matmul_add(SMALL, size=64, gaps=(5.5, 5.521, 4.488)))


def test_the_same_product_that_takes_longer_in_one_step(codes):
    # A mean of 1,084 us where four of five take 580: read the trace, not the mean.
    found = codes(matmul_add([(580, 60), (580, 60), (580, 60), (3100, 60), (580, 60)], size=4096))
    varying = found["kernel-time-varies"]
    assert (varying.evidence["kind"], varying.evidence["steps"]) == ("outlier", ["ProfilerStep#3"])
    assert varying.evidence["time_us"] == 3100 - 580


def compiled_addmm():
    builder = TraceBuilder()
    for number in range(3):
        at = number * 1000
        builder.step(number, at, 900)
        builder.op("TorchDynamo Cache Lookup", at + 10, 8)
        builder.region("0/0", at + 20, 150)
        builder.op("AOTDispatcher Runtime Wrapper Prologue", at + 22, 5)
        builder.annotation("## Call CompiledFxGraph fabc ##", at + 30, 130)
        builder.op("aten::addmm", at + 40, 100, inputs=[operands(4096)[0], *operands(4096)])
        builder.memcpy("DtoD", at + 60, 33, builder.call("copy", at + 50), size=32 * 2**20)
        builder.kernel(PRODUCT, at + 95, 600, builder.launch(at + 70))
    return builder


def test_the_compiled_product_hides_a_copy(codes):
    found = codes(compiled_addmm())
    hidden = found["hidden-copy"]
    assert (hidden.evidence["copies"], hidden.evidence["bytes"]) == (3, 3 * 32 * 2**20)
    assert hidden.evidence["ops"] == ["aten::addmm"]
    assert not {"graph-break", "graph-hash-changes", "unfused-pointwise"} & set(found)
    # Eager, the two operators have kernels of their own and nothing is copied.
    assert "hidden-copy" not in codes(matmul_add([(580, 60)] * 3, size=4096))


def test_compiling_one_operator_costs_the_cpu_more_than_it_saves(tmp_path):
    eager = load(matmul_add([(580, 60)] * 3, size=4096).write(tmp_path / "eager.json"))
    compiled = load(compiled_addmm().write(tmp_path / "compiled.json"))
    found = {finding.code for finding in compiled.with_others([eager]).findings}
    assert "compile-overhead" in found
    assert "compile-overhead" not in {finding.code for finding in compiled.findings}


def test_the_transformer_before_its_first_optimization(shared_trace):
    profile = load(shared_trace("h100_transformer_three_steps"))
    found = {finding.code for finding in profile.findings}
    assert {"unfused-attention", "tf32-gemm", "overhead-bound"} <= found
    assert profile.gpu_utilization < 0.2
    assert profile.sm_efficiency < 0.2


@pytest.mark.parametrize("recording", ["h100_qwen_orphans", "mi300x_compile_tiny"])
def test_a_transformer_in_bf16_with_fused_attention_has_none_of_these(recording, shared_trace):
    profile = load(shared_trace(recording))
    assert any(kernel.family == "attention" for kernel in profile.kernels)
    found = {finding.code for finding in profile.findings}
    assert not {"unfused-attention", "tf32-gemm", "fp32-gemm", "overhead-bound", "small-grid", "low-occupancy"} & found


def test_the_gap_that_is_the_profilers_own_buffer(shared_trace):
    found = {finding.code: finding for finding in load(shared_trace("b200_eager_nvjet")).findings}
    assert found["profiler-gap"].severity == "information"


def test_overhead_bound_and_compute_bound_recordings_are_told_apart(shared_trace):
    def bound(name):
        return {"overhead-bound", "compute-bound"} & {finding.code for finding in load(shared_trace(name)).findings}

    assert bound("h100_bert_small") == bound("h100_vit_falconsai") == {"overhead-bound"}
    assert bound("rtx3060_compile_steps") == bound("v100_ns_timestamps") == {"compute-bound"}

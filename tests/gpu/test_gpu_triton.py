"""Triton kernels: hand-written ones, however they are launched, and what those of Inductor carry."""

from __future__ import annotations

import gc
import importlib.util
import json
from contextlib import closing
from pathlib import Path

import kept
import pytest
import torch
from facts import misses, says, why_not

from pytest_torchprof import LimitsMissed, NotMeasured, capture, load, triton
from pytest_torchprof.capture import triton_kernels
from pytest_torchprof.limits.seen import CarriedTogether
from pytest_torchprof.reasons.operators_untold import NothingToFuse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
]

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def plus_one(x, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, mask=at < count) + 1, mask=at < count)

@triton.jit(repr=lambda specialization: "flash_fwd_of_mine")
def renamed(x, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)

@triton.jit
def in_compiled_code(x, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, mask=at < count) * 3, mask=at < count)
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """Triton reads the source of its functions: they need a file."""
    (tmp_path / "triton_functions.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    import triton_functions

    return triton_functions


@pytest.fixture
def record(tmp_path):
    def record(step, warmup=2):
        device = capture.pick_device("auto")
        capture.arm(device)
        path = tmp_path / "recording.json"
        plan = capture.Plan(device=device, warmup=warmup, steps=2, record=frozenset(), nodeid="t.py::t", label=None)
        with closing(capture.iterations(plan, path, lambda _: None)) as calls:
            for _ in calls:
                step()
        return load(path)

    return record


def test_a_launch_of_the_users(kernels, record):
    x = torch.zeros(1024, device="cuda")

    def step():
        kernels.plus_one[(8,)](x, 1024, block=128)
        kernels.renamed[(8,)](x, 1024, block=128)

    profile = record(step, warmup=0)
    assert profile.trace.metadata.triton_kernels == ("flash_fwd_of_mine", "plus_one")
    profile.expect(kernels={triton("user"): 2}, only_kernels=triton())


def test_in_compiled_code_the_range_tells(kernels, record):
    @torch.compile
    def compiled(y):
        z = y.sin() * 2
        kernels.in_compiled_code[(8,)](z, 1024, block=128)
        return z + 1

    x = torch.zeros(1024, device="cuda")
    profile = record(lambda: compiled(x))
    assert profile.trace.metadata.triton_kernels == ("in_compiled_code",)
    profile.expect(kernels={triton("user"): 1, triton("poi"): 2}, only_kernels=triton())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_in_a_graph_the_process_tells(kernels, record, monkeypatch, is_frozen):
    x, graph = torch.zeros(1024, device="cuda"), torch.cuda.CUDAGraph()
    kernels.plus_one[(8,)](x, 1024, block=128)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernels.plus_one[(8,)](x, 1024, block=128)
    if is_frozen:
        triton_kernels._compiled_here.cache_clear()
        monkeypatch.setattr(gc, "get_freeze_count", kept.count)
        gc.freeze()
    record(graph.replay).expect(kernels={triton("user"): 1})


def test_a_kernel_of_the_driver_that_triton_has_not_made(record):
    source = 'extern "C" __global__ void tripled(float* x) { x[threadIdx.x] *= 3; }'
    try:
        tripled = torch.cuda._compile_kernel(source, "tripled")
    except (AttributeError, RuntimeError, OSError) as error:
        pytest.skip(f"torch cannot compile it here: {error}")
    x = torch.zeros(128, device="cuda")
    profile = record(lambda: tripled(grid=(1, 1, 1), block=(128, 1, 1), args=[x]))
    assert profile.trace.metadata.triton_kernels == ()
    with pytest.raises(NotMeasured):
        profile.expect(kernels=triton())


def test_what_inductor_fuses_and_what_it_does_not(record):
    x = torch.zeros(1024, device="cuda")
    torch._dynamo.reset()
    together = torch.compile(lambda y: y.exp() + 1)
    first, second = torch.compile(lambda y: y.exp()), torch.compile(lambda y: y + 1)
    assert misses(record(lambda: together(x)), not_fused=["exp", "add"]).seen == (CarriedTogether(1, ("exp", "add")),)
    record(lambda: second(first(x))).expect(not_fused=["exp", "add"])
    eager = record(lambda: x.exp() + 1)
    assert says(why_not(lambda: eager.expect(not_fused=["exp", "add"])), NothingToFuse, absent=())


COMPILED = """
import pytest, torch
x = torch.ones(64, device="cuda")

@pytest.mark.torchprof(warmup=0, steps=1, max_compile_time={"cold": 3600, "warm": 3600})
def test_it():
    with torch.no_grad():
        torch.compile(lambda x: x.sin() * 2 + 1)(x)
"""


def test_what_triton_has_compiled_is_counted_cold_and_warm_and_shown(run_tests):
    told = run_tests(COMPILED, "--torchprof-report=report.json", "--torchprof-save=saved")
    told.assert_outcomes(passed=1)
    (result,) = json.loads(Path("report.json").read_text())["results"]
    caches = result["compile_caches"]
    cold, warm = caches["cold"]["uses"]["triton"], caches["uses"]["triton"]
    assert (cold["misses"] > 0, warm["misses"]) == (True, 0)
    # Triton tells hits to nobody outside its own process: they are not known, and not 0.
    assert (cold["hits"], warm["hits"]) == (None, None)
    (kept,) = Path("saved").glob("*test_it.*")
    with pytest.raises(LimitsMissed) as missed:
        load(kept).expect(max_compile_time={"cold": 0, "warm": 0})
    assert "Triton hits not known, 0 misses" in str(missed.value)

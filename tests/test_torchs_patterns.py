"""torch's own checks for patterns in a trace, run here beside ours: where they agree, and where not and why."""

from __future__ import annotations

import pytest
import torch
from builder import TraceBuilder
from torch.profiler import ProfilerActivity, profile

from pytest_torchprof import load

_pattern_matcher = pytest.importorskip("torch.profiler._pattern_matcher", reason="torch 2.14 removed its own checks")

HALF = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SINGLE = "ampere_sgemm_128x64_tn"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"


def torchs(pattern, step):
    """Return how often torch's pattern matches in a recording of the step made here.

    Where the build of torch switches the pattern off (that of TF32, in builds for GPUs before A100 too), the test is
    skipped.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as prof:
        step()
    check = getattr(_pattern_matcher, pattern)(prof)
    if check.skip:
        pytest.skip(f"this torch has its {pattern} switched off")
    return len(check.matched_events())


@pytest.fixture
def ours(tmp_path):
    return lambda builder: {finding.code for finding in load(builder.write(tmp_path / "t.json")).findings}


def product(rows, inner, columns, *, kernel=HALF, dtype="c10::BFloat16"):
    builder = TraceBuilder()
    operands = [([rows, inner], [inner, 1], dtype), ([inner, columns], [columns, 1], dtype)]
    builder.launched(kernel, 0, op="aten::mm", inputs=operands, dur=500)
    return builder


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "agree"),
    [
        (64, 64, 64, True),
        (64, 63, 64, True),
        (64, 64, 30522, True),
        # An odd number of rows is waste at the edge, not a matter of where rows begin.
        (63, 64, 64, False),
    ],
)
def test_sizes_that_are_not_aligned(rows, inner, columns, agree, ours):
    def step():
        torch.ones(rows, inner, dtype=torch.bfloat16) @ torch.ones(inner, columns, dtype=torch.bfloat16)

    matched = torchs("MatMulDimInFP16Pattern", step) > 0
    assert (matched == ("misaligned-gemm" in ours(product(rows, inner, columns)))) == agree


@pytest.mark.parametrize(
    ("dtype", "kernel", "agree"),
    [
        (torch.float32, SINGLE, True),
        # Whatever the operands are, torch's check looks at the flag alone; a product in bf16 has no use for TF32.
        (torch.bfloat16, HALF, False),
    ],
)
def test_products_in_fp32(dtype, kernel, agree, ours):
    matched = torchs("FP32MatMulPattern", lambda: torch.ones(8, 8, dtype=dtype) @ torch.ones(8, 8, dtype=dtype)) > 0
    words = {torch.float32: "float", torch.bfloat16: "c10::BFloat16"}
    assert (matched == ("fp32-gemm" in ours(product(64, 64, 64, kernel=kernel, dtype=words[dtype])))) == agree


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_that_takes_its_parameters_one_by_one(foreach, ours):
    parameters = [torch.ones(4, requires_grad=True) for _ in range(30)]
    for parameter in parameters:
        parameter.grad = torch.ones(4)
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=foreach)
    builder = TraceBuilder()
    builder.annotation("Optimizer.step#SGD.step", 0, 900)
    for number in range(1 if foreach else 30):
        name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<Metadata>(int)" if foreach else MUL
        builder.launched(name, number * 20, op="aten::add_", dur=2)
    assert (torchs("OptimizerSingleTensorPattern", optimizer.step) > 0) == (not foreach)
    assert ("single-tensor-optimizer" in ours(builder)) == (not foreach)


def test_data_that_is_loaded_without_workers_is_found_where_the_gpu_waits_for_it(ours):
    def step():
        for _ in torch.utils.data.DataLoader(torch.ones(4, 2)):
            pass

    assert torchs("SynchronizedDataLoaderPattern", step) > 0
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    waiting = TraceBuilder()
    waiting.launched(MUL, 0)
    waiting.annotation(name, 50, 400)
    waiting.launched(MUL, 500)
    assert "launch-gaps" in ours(waiting)
    # torch's check does not ask whether anybody waits ("TODO: We should also check if the loader is bottleneck").
    busy = TraceBuilder()
    busy.kernel(HALF, 10, 990, busy.launch(0))
    busy.annotation(name, 50, 400)
    assert "launch-gaps" not in ours(busy)

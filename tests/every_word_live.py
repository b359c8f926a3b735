"""Code that does something of everything, measured here and now: each limit that its device can answer holds and is missed."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
import torch.distributed as dist

from pytest_torchprof import LimitsMissed, gemm, mark, profile
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.limits.limit import MISSED

OF_ANY_DEVICE = [
    ({"max_kernels": 6}, {"max_kernels": 5}),
    ({"min_kernels": 6}, {"min_kernels": 7}),
    ({"max_gpu_time": 60}, {"max_gpu_time": "1ns"}),
    ({"kernels": {gemm(dtype="bf16", layout="tn"): 1}}, {"kernels": {gemm(): 2}}),
    ({"forbid_kernels": "conv"}, {"forbid_kernels": gemm()}),
    ({"only_kernels": "re:."}, {"only_kernels": gemm()}),
    ({"ops": {"aten::mm": 1}}, {"ops": {"aten::mm": 2}}),
    ({"forbid_ops": "aten::conv2d"}, {"forbid_ops": "aten::nonzero"}),
    ({"fused": ["gelu", "mul"]}, {"fused": ["gelu", "sin"]}),
    ({"not_fused": ["mm", "mul"]}, {"not_fused": ["gelu", "mul"]}),
    ({"collectives": {"all_reduce": 1}}, {"collectives": {"all_reduce": 2}}),
    ({"max_comm_bytes": 16}, {"max_comm_bytes": 15}),
    ({"ranges": {"block": {"max_kernels": 2}}}, {"ranges": {"block": {"max_kernels": 1}}}),
]
OF_COMPILING = [
    ({"max_graph_breaks": 1}, {"max_graph_breaks": 0}),
    ({"max_graph_breaks": 0, "own": "pytest_torchprof"}, {"max_graph_breaks": 0, "own": "every_word_live"}),
    ({"max_recompiles": 2}, {"max_recompiles": 0}),
    ({"max_fallbacks": 1}, {"max_fallbacks": 0}),
    ({"max_compile_time": 3600}, {"max_compile_time": 1e-6}),
]


@torch.library.custom_op("every_word::opaque", mutates_args=(), schema="(Tensor x) -> Tensor")
def opaque(x):
    return x + 1


opaque.register_fake(torch.empty_like)


def breaking(x):
    y = opaque(x).sin()
    torch._dynamo.graph_break()
    return y.cos()


@cache
def worked(device):
    """Return the profile of a product, a fused kernel, a collective, a search, a fill, a sum, a wait on a GPU."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    w, x = (torch.randn(64, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
    sent = torch.ones(4)

    @torch.compile
    def layer(x):
        return torch.nn.functional.gelu(x @ w.T) * 2

    def step():
        with mark("block"):
            y = layer(x)
        dist.all_reduce(sent)
        torch.nonzero(y)
        torch.empty(64, device=device).zero_()
        y.sum().item()

    try:
        return profile(step, device=device)
    finally:
        dist.destroy_process_group()


@cache
def compiled(device):
    """Return the profile of a function that breaks its graph, falls back, and is compiled for each size."""
    sizes = itertools.count(2)
    inputs = (torch.ones(size, device=device) for size in sizes)
    function = torch.compile(breaking, dynamic=False)
    return profile(lambda: function(next(inputs)), device=device, warmup=1, steps=1)


def answers(found, holds, missed):
    """Assert that a profile keeps the ones and misses the others, and says so of the first of them."""
    found.expect(**holds)
    with pytest.raises(LimitsMissed):
        found.expect(**missed)
    first = next(verdict for verdict in check_limits(found, read_limits(missed)) if verdict.status == MISSED)
    assert (first.range or first.limit) == ("block" if "ranges" in missed else next(iter(missed)))


def named(table):
    """Return the pairs of a table as parameters that are called by their words."""
    return {"argvalues": table, "ids": ["-".join(holds) for holds, _ in table]}

"""A matrix product and a sum: two kernels, unless something fuses them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_torchprof import Torchprof, gemm

# Measure the GPU if there is one, otherwise the CPU, where a "kernel" is an operator that computes.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE)

SIZES = [
    64,
    # On a CPU one call of this takes seconds: a single one after a single warm-up is enough to count kernels.
    pytest.param(4096, marks=pytest.mark.torchprof(warmup=1, steps=1 if DEVICE == "cpu" else 5)),
]


def matmul_add(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.matmul(x, w), b)


def inputs(size: int, device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(size, size, device=device) for _ in range(3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.torchprof(max_kernels=2, ops=["aten::mm", "aten::add"])
def test_eager_is_two_kernels(torchprof: Torchprof, size: int) -> None:
    profile = torchprof(matmul_add, *inputs(size, torchprof.device))
    if torchprof.device.type == "cuda":
        profile.expect(kernels={gemm(layout="nn"): 1}, max_syncs=0, max_memcpys=0)


@pytest.mark.torchprof(max_kernels=1, ops="aten::addmm", max_graph_breaks=0)
def test_compiled_the_sum_becomes_part_of_the_product(torchprof: Torchprof, compiled: Callable[..., Any]) -> None:
    # Inductor rewrites add(mm(x, w), b) to one addmm; on CUDA the sum may still be a copy of b before the product.
    torchprof(compiled(lambda x, w, b: torch.add(torch.matmul(x, w), b)), *inputs(64, torchprof.device))

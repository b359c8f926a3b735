"""nn.Linear: one GEMM, whose epilogue adds the bias; there is nothing left for a compiler to fuse."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_torchprof import Torchprof, gemm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE, max_kernels=1, ops="aten::addmm")


@pytest.fixture
def linear_and_input(torchprof: Torchprof) -> tuple[torch.nn.Linear, torch.Tensor]:
    linear = torch.nn.Linear(256, 512, device=torchprof.device, dtype=torch.bfloat16)
    return linear, torch.randn(128, 256, device=torchprof.device, dtype=torch.bfloat16)


def test_eager_is_one_gemm(torchprof: Torchprof, linear_and_input: tuple[torch.nn.Linear, torch.Tensor]) -> None:
    profile = torchprof(*linear_and_input)
    if torchprof.device.type == "cuda":
        # `x @ weight.t()`: the weight is read along its rows, which BLAS calls tn.
        profile.expect(kernels=gemm(layout="tn", dtype="bf16", tensor_core=True))


def test_compiled_is_the_same_gemm(
    torchprof: Torchprof, linear_and_input: tuple[torch.nn.Linear, torch.Tensor], compiled: Callable[..., Any]
) -> None:
    linear, x = linear_and_input
    eager = torchprof(linear, x)
    after = torchprof(compiled(linear), x)
    after.expect(max_graph_breaks=0)
    assert [kernel.family for kernel in after.kernels] == [kernel.family for kernel in eager.kernels]
    if torchprof.device.type == "cuda":
        after.expect(kernels=gemm(layout="tn", dtype="bf16"))

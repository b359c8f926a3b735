"""A GeGLU block: gate, up and down projection, one GELU, one product. Five kernels, and fewer when compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from pytest_torchprof import Torchprof, family, gemm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE)


class GeGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(functional.gelu(self.gate(x), approximate="tanh") * self.up(x))
        return y


@pytest.fixture
def block_and_input(torchprof: Torchprof) -> tuple[GeGLU, torch.Tensor]:
    torch.manual_seed(0)
    block = GeGLU(256, 512).to(torchprof.device, torch.bfloat16)
    return block, torch.randn(64, 256, device=torchprof.device, dtype=torch.bfloat16)


@pytest.mark.torchprof(kernels={"re:.": 5}, ops={"aten::mm": 3, "aten::gelu": 1, "aten::mul": 1})
def test_eager_is_exactly_five_kernels(torchprof: Torchprof, block_and_input: tuple[GeGLU, torch.Tensor]) -> None:
    block, x = block_and_input
    with torch.no_grad():
        profile = torchprof(block, x)
    if torchprof.device.type == "cuda":
        profile.expect(kernels={gemm(layout="tn", dtype="bf16"): 3, family("pointwise"): 2})


@pytest.mark.torchprof(max_kernels=4, fused=["gelu", "mul"], max_graph_breaks=0)
def test_compiled_the_two_pointwise_kernels_are_one(
    torchprof: Torchprof, block_and_input: tuple[GeGLU, torch.Tensor], compiled: Callable[..., Any]
) -> None:
    block, x = block_and_input
    with torch.no_grad():
        torchprof(compiled(block), x)

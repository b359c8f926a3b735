"""A GeGLU block: gate, up and down projection, one GELU, one product. Five kernels, and fewer when compiled."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pytest_torchprof import family, gemm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE)


class GeGLU(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(functional.gelu(self.gate(x), approximate="tanh") * self.up(x))


@pytest.fixture
def block_and_input(torchprof):
    torch.manual_seed(0)
    block = GeGLU(256, 512).to(torchprof.device, torch.bfloat16)
    return block, torch.randn(64, 256, device=torchprof.device, dtype=torch.bfloat16)


@pytest.mark.torchprof(kernels={"re:.": 5}, ops={"aten::mm": 3, "aten::gelu": 1, "aten::mul": 1})
def test_eager_is_exactly_five_kernels(torchprof, block_and_input):
    block, x = block_and_input
    with torch.no_grad():
        profile = torchprof(block, x)
    if torchprof.device.type == "cuda":
        profile.expect(kernels={gemm(layout="tn", dtype="bf16"): 3, family("pointwise"): 2})


@pytest.mark.torchprof(max_kernels=4, fused=["gelu", "mul"], max_graph_breaks=0)
def test_compiled_the_two_pointwise_kernels_are_one(torchprof, block_and_input, compiled):
    block, x = block_and_input
    with torch.no_grad():
        torchprof(compiled(block), x)

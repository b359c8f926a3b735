"""One attention kernel per layer, whatever arguments come with the queries (FlashAttention in miniature)."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pytest_torchprof import Torchprof, attention

LAYERS = 2


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


@pytest.mark.torchprof(device="cpu", kernels={attention(fused=True): LAYERS}, forbid_ops=["aten::softmax", "aten::bmm"])
def test_each_layer_has_one_attention_kernel(torchprof: Torchprof) -> None:
    model = nn.Sequential(*(SelfAttention(64, 4) for _ in range(LAYERS))).eval()
    with torch.no_grad():
        torchprof(model, torch.randn(2, 16, 64))

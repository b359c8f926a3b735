"""One training step of a small transformer, before and after two changes that every tutorial recommends."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pytest_torchprof import Torchprof, attention, gemm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE, warmup=2, steps=2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            mixed = scores.softmax(-1) @ v
        y: torch.Tensor = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return y


class Step:
    """A model with its optimizer; called, it does one training step."""

    def __init__(self, device: torch.device, *, fused: bool, autocast: bool) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Block(128, 4, fused=fused) for _ in range(2))).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=device.type == "cuda")
        self.device, self.autocast = device, autocast
        self.x = torch.randn(4, 64, 128, device=device)

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.model(self.x).float().pow(2).mean()
        loss.backward()
        self.optimizer.step()


@pytest.mark.torchprof(ops={"aten::softmax": 2, "aten::bmm": (4, 24)})
def test_before_attention_is_written_out(torchprof: Torchprof) -> None:
    torchprof(Step(torchprof.device, fused=False, autocast=False))


@pytest.mark.torchprof(ops={"aten::scaled_dot_product_attention": 2}, forbid_ops="aten::softmax")
def test_after_attention_is_one_operator(torchprof: Torchprof) -> None:
    profile = torchprof(Step(torchprof.device, fused=True, autocast=True))
    if torchprof.device.type == "cuda":
        profile.expect(kernels=[attention(fused=True), gemm(dtype="bf16", tensor_core=True)], max_syncs=0)


def test_after_fewer_kernels_run(torchprof: Torchprof) -> None:
    before = torchprof(Step(torchprof.device, fused=False, autocast=False))
    after = torchprof(Step(torchprof.device, fused=True, autocast=False))
    assert after.kernels.count < before.kernels.count
    print(before.diff(after))  # noqa: T201  (shown by pytest -rP: what became of which kernels)

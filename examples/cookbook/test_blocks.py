"""The same kernels in each block of a model, and which block has others (transformers and diffusers in miniature)."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pytest_torchprof import Torchprof, mark

WIDTH = 32
BLOCKS = 4
UPCAST: tuple[int, ...] = ()
"""The blocks that normalize in double precision."""


class Block(nn.Module):
    def __init__(self, *, upcast: bool) -> None:
        super().__init__()
        self.upcast = upcast
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    @mark("block")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = (
            functional.layer_norm(x.double(), [WIDTH]).float() if self.upcast else functional.layer_norm(x, [WIDTH])
        )
        y: torch.Tensor = x + self.down(functional.gelu(self.up(normed)))
        return y


@pytest.mark.torchprof(device="cpu", ranges={"block": {"max_kernels": 5, "ops": {"aten::addmm": 2}}})
def test_each_block_is_five_kernels(torchprof: Torchprof) -> None:
    model = nn.Sequential(*(Block(upcast=number in UPCAST) for number in range(BLOCKS)))
    with torch.no_grad():
        profile = torchprof(model, torch.randn(8, WIDTH))
    assert len(profile.ranges("block")) == BLOCKS * len(profile.steps)

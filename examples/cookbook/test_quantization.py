"""Quantization under torch.compile: scale, rounding, cast are one kernel beside the product (torchao in miniature)."""

import unittest

import pytest
import torch

from pytest_torchprof import Torchprof


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    values, scale = quantize(x)
    product: torch.Tensor = torch.ops.aten._int_mm(values, weight) * scale  # noqa: SLF001
    return product


@pytest.mark.usefixtures("torchprof", "compiled")
@pytest.mark.torchprof(device="cpu")
class TestQuantizedLinear(unittest.TestCase):
    torchprof: Torchprof

    def test_scale_and_cast_are_one_kernel(self) -> None:
        weight = torch.randint(-128, 127, (64, 64), dtype=torch.int8)
        for rows in (32, 256):
            with self.subTest(rows=rows):
                profile = self.torchprof(torch.compile(linear, dynamic=False), torch.randn(rows, 64), weight)
                profile.expect(fused=["abs", "amax", "clamp"], ops={"aten::_int_mm": 1}, max_graph_breaks=0)

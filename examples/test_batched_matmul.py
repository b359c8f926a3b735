"""A batched product: ask for the operator, and the test holds on every GPU generation."""

import pytest
import torch

from pytest_torchprof import Torchprof, gemm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.torchprof(device=DEVICE, max_kernels=1, ops={"aten::bmm": 1}, forbid_ops=["aten::copy_", "aten::mm"])
def test_a_batch_of_products_is_one_kernel(torchprof: Torchprof) -> None:
    a = torch.randn(8, 64, 32, device=torchprof.device)
    b = torch.randn(8, 32, 64, device=torchprof.device)
    profile = torchprof(torch.bmm, a, b)
    if torchprof.device.type == "cuda":
        profile.expect(kernels={gemm(op="bmm"): 1})

"""The same on two GPUs, where NCCL's kernels run beside those that compute; skipped if there are fewer."""

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pytest_torchprof import Torchprof, communication

pytestmark = [
    pytest.mark.torchprof(ranks=2, device="cuda"),
    pytest.mark.real_gpu("the simulated one has no NCCL, by which the ranks would meet"),
]
WIDTH, LAYERS = 2048, 8


def train_step(model: Any, x: torch.Tensor) -> None:
    model(x).sum().backward()


def test_each_bucket_of_gradients_is_one_kernel_of_nccl(torchprof: Torchprof) -> None:
    device = torchprof.ranks.device  # Rank N has the Nth GPU.
    layers = (torch.nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS))
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=64)
    profile = torchprof(train_step, model, torch.randn(1024, WIDTH, device=device))
    gradients = 4 * sum(parameter.numel() for parameter in model.parameters())
    profile.expect(kernels=communication("all_reduce"), max_comm_bytes=gradients)
    assert {one.name for one in profile.collectives} == {"all_reduce"}
    # A bucket is sent while the gradients of the layers before it are computed.
    assert any(one.overlap for one in profile.collectives)

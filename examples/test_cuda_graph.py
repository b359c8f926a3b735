"""A step captured into a CUDA graph: one launch runs all its kernels."""

import pytest
import torch
from torch import nn

from pytest_torchprof import Torchprof

pytestmark = [
    pytest.mark.torchprof(device="cuda"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU"),
]


@pytest.mark.torchprof(cuda_graph="all", max_launches=1, min_kernels=3)
def test_one_launch_replays_the_whole_step(torchprof: Torchprof) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).to(torchprof.device)
    x = torch.randn(16, 64, device=torchprof.device)
    with torch.no_grad():
        # Capture needs warm caches: cuBLAS sets up its workspace at its first call.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
    torchprof(graph.replay)

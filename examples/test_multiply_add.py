"""``A * B + C``: two kernels, one when compiled, and none at all when nobody looks at the result."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_torchprof import Torchprof, triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.torchprof(device=DEVICE)


@pytest.fixture
def abc(torchprof: Torchprof) -> list[torch.Tensor]:
    return [torch.randn(512, 512, device=torchprof.device) for _ in range(3)]


@pytest.mark.torchprof(max_kernels=2, min_kernels=2)
def test_eager_is_two_kernels(torchprof: Torchprof, abc: list[torch.Tensor]) -> None:
    torchprof(lambda a, b, c: a * b + c, *abc)


@pytest.mark.torchprof(max_kernels=1, fused=["add", "mul"], max_graph_breaks=0)
def test_compiled_is_one_kernel_that_carries_both(
    torchprof: Torchprof, abc: list[torch.Tensor], compiled: Callable[..., Any]
) -> None:
    profile = torchprof(compiled(lambda a, b, c: a * b + c), *abc)
    if torchprof.device.type == "cuda":
        profile.expect(kernels={triton("poi", ops=["add", "mul"]): 1})


@pytest.mark.torchprof(max_graph_breaks=0)
def test_nobody_returns_the_result_so_the_compiler_removes_the_work(
    torchprof: Torchprof, abc: list[torch.Tensor], compiled: Callable[..., Any]
) -> None:
    def returns_nothing(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        a * b + c

    profile = torchprof(compiled(returns_nothing), *abc)
    # "At most two kernels" would be true of nothing at all: not measured, unless nothing is what the test means.
    profile.expect(max_kernels=0, min_kernels=0)
    assert "no-gpu-work" in [finding.code for finding in profile.findings] or torchprof.device.type == "cpu"


@pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs need a GPU")
@pytest.mark.torchprof(warmup=5, cuda_graph=True, fused=["add", "mul"])
def test_with_max_autotune_a_graph_replays_the_kernel_after_copying_its_inputs(
    torchprof: Torchprof, abc: list[torch.Tensor]
) -> None:
    fused = torch.compile(lambda a, b, c: a * b + c, mode="max-autotune")
    profile = torchprof(fused, *abc)
    # A CUDA graph reads fixed addresses: new inputs are copied there first. The copies are kernels or DtoD copies.
    assert profile.graph_launches >= 1

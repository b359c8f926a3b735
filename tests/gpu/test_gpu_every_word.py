"""Every limit that one GPU can answer holds and is missed there; overlap and skew need several."""

from __future__ import annotations

import pytest
import torch
from every_word_live import OF_ANY_DEVICE, OF_COMPILING, answers, compiled, named, worked

from pytest_torchprof import LimitsMissed, profile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

OF_A_GPU = [
    ({"max_launches": 6}, {"max_launches": 5}),
    ({"max_memcpys": 2}, {"max_memcpys": 1}),
    ({"max_memcpys": 1, "allow_memcpys": "aten::nonzero"}, {"max_memcpys": 1, "allow_memcpys": "HtoD"}),
    ({"max_memsets": 1}, {"max_memsets": 0}),
    ({"max_syncs": 2}, {"max_syncs": 1}),
    ({"max_syncs": 1, "allow_syncs": "aten::item"}, {"max_syncs": 1, "allow_syncs": "aten::sort"}),
    ({"max_syncs": 2, "waits": "all"}, {"max_syncs": 1, "waits": "all"}),
    ({"max_cpu_gpu_ratio": 1e6}, {"max_cpu_gpu_ratio": 1e-6}),
    ({"min_gpu_utilization": 1e-9}, {"min_gpu_utilization": 1}),
    ({"min_sm_efficiency": 1e-12}, {"min_sm_efficiency": 1}),
    ({"max_peak_memory": "1 TB"}, {"max_peak_memory": "1 KB"}),
    ({"forbid": "no-gpu-work"}, {"forbid": ["implicit-sync", "launch-gaps"]}),
]


COUNTING_KERNELS = {"max_kernels", "min_kernels", "max_launches"}
OF_A_SEARCH = 3
"""So many kernels of `nonzero` are in the bounds; a real GPU's CUB takes four."""


@pytest.mark.parametrize(("holds", "missed"), **named([*OF_ANY_DEVICE, *OF_A_GPU]))
def test_it_holds_and_is_missed(holds, missed):
    found = worked("cuda")
    if "max_memsets" in holds and not found.memsets:
        pytest.skip("this torch fills with a kernel")
    more = kernels_of(found, "aten::nonzero") - OF_A_SEARCH + (not found.memsets)  # torch 2.11 fills with a kernel
    holds, missed = (
        {word: bound + more if word in COUNTING_KERNELS else bound for word, bound in of.items()}
        for of in (holds, missed)
    )
    answers(found, holds, missed)


def kernels_of(found, operator):
    return sum(kernel.op == operator for kernel in found.steps[0].kernels)


@pytest.mark.parametrize(("holds", "missed"), **named(OF_COMPILING))
def test_it_holds_and_is_missed_of_what_is_compiled(holds, missed):
    answers(compiled("cuda"), holds, missed)


def test_the_kernels_of_a_graph():
    x, graph = torch.ones(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.sin().cos()
    replayed = profile(graph.replay)
    answers(replayed, {"cuda_graph": "all"}, {"max_kernels": 1})
    with pytest.raises(LimitsMissed, match="cuda_graph"):
        profile(lambda: (graph.replay(), x.tan())).expect(cuda_graph="all")


def test_the_share_of_the_peak():
    x = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    assert profile(lambda: x @ x, min_mfu=1e-9).mfu > 0
    with pytest.raises(LimitsMissed, match="min_mfu"):
        profile(lambda: x @ x, min_mfu=1)

"""Measurements of scripts and notebooks on a GPU."""

from __future__ import annotations

import fresh
import pytest
import torch

from pytest_torchprof import LimitsMissed, measure, profile
from pytest_torchprof.limits.seen import CountSeen

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


@pytest.fixture
def x():
    return torch.ones(64, 64, device="cuda")


def two(x):
    y = x + 1
    return y * 2


def test_a_function_is_measured_on_the_gpu_that_there_is(x):
    found = profile(two, x, max_kernels=2, max_launches=2, max_memcpys=0, max_syncs=0)
    assert found.kernels.count == 2
    assert found.trace.device_kind.has_launches
    assert found.result.shape == x.shape
    assert found._repr_html_().count("<tr>") == 1 + len(set(found.kernels.names))


def test_a_missed_limit_tells_its_lines(x):
    seen = CountSeen(1, "blocking call")
    with pytest.raises(LimitsMissed, match=rf"max_syncs=0 .*{seen}(.|\n)*test_gpu_script\.py:\d+ in waits"):
        profile(waits, x, max_syncs=0)
    with pytest.raises(LimitsMissed, match=r"test_gpu_script\.py:\d+ in two"):
        profile(two, x).expect(max_kernels=1)


def waits(x):
    torch.cuda.synchronize()
    return x + 1


def test_a_block_is_measured_on_the_gpu(x):
    with measure("scaled", max_kernels=2) as m:
        for _ in m.steps():
            two(x)
    assert m.profile.launches == 2


SCRIPT = """
import torch
known = torch._C._profiler._ExperimentalConfig

def renamed(**options):
    if "trace_only" in options:
        raise TypeError("no option trace_only")
    return known(**options)

torch._C._profiler._ExperimentalConfig = {options}
from pytest_torchprof import profile
x = torch.ones(8, device="cuda")
for _ in range(2):
    assert profile(lambda: x + 1, max_kernels=1).kernels.count == 1
"""


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="has no trace_only")
def test_a_torch_that_cannot_be_asked_for_the_file_only_is_told_once_in_a_process():
    for options, times in (("renamed", 1), ("known", 0)):
        done = fresh.run_code(SCRIPT.format(options=options))
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("no longer knows trace_only") == times

"""A launch that the driver refuses has no kernel, and is no loss of the profiler's."""

from __future__ import annotations

import ctypes

import pytest
import torch

import pytest_torchprof
from pytest_torchprof import capture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
    pytest.mark.skipif(torch.version.hip is not None, reason="calls CUDA's runtime"),
]


class Dim3(ctypes.Structure):
    """CUDA's type of a grid and a block."""

    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def refused_launch():
    """Launch a block of more threads than any GPU runs; return the error's text, as a library asks for it."""
    runtime, nothing = ctypes.CDLL(None), ctypes.create_string_buffer(8)
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    error = runtime.cudaLaunchKernel(nothing, Dim3(1, 1, 1), Dim3(2048, 1, 1), None, ctypes.c_size_t(0), None)
    said = runtime.cudaGetErrorString(error)
    # Or torch would find the error at its next launch.
    runtime.cudaGetLastError()
    return error, said


def test_a_launch_that_the_driver_refuses_is_no_loss(tmp_path):
    plan = capture.Plan(device="cuda:0", warmup=1, steps=2, record=frozenset(), nodeid="t.py::t", label=None)
    x, path, attempts = torch.ones(8, device="cuda"), tmp_path / "t.json", 0
    for _ in capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).doubt):
        attempts += 1
        error, said = refused_launch()
        assert error, said
        x.add_(1)
    assert attempts == plan.warmup + plan.steps, "all of them in the first attempt"
    found = pytest_torchprof.load(path)
    assert [(step.kernels.count, step.launches) for step in found.steps] == [(1, 2)] * 2

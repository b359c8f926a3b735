"""When a run begins CUDA: not before a test does, or is measured; and never so late that something is missed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.simulated_gpu

FORKS = """
import multiprocessing

def use():
    return torch.ones(8, device="cuda").add_(1).numel()

def test_forks():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(use).get(60) == 8
"""
MEASURES = """
@pytest.mark.torchprof(max_kernels=2, min_kernels=2, max_launches=2)
def test_measures():
    torch.ones(8, device="cuda").add_(1)
"""
PROFILES = """
def test_profiles_the_cpu():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU]):
        torch.ones(8).add_(1)
"""
CAPTURES = """
@pytest.fixture(scope="module")
def graph():
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1).mul_(2)
    return graph

def test_captures(graph):
    graph.replay()

@pytest.mark.torchprof(max_kernels=2, min_kernels=2)
def test_replays(graph):
    graph.replay()
"""


@pytest.mark.parametrize("options", [(), ("--torchprof-require-gpu",), ("-n2", "--dist=loadfile")], ids=" ".join)
def test_tests_before_the_first_measured_one_may_fork_and_use_cuda_there(run_tests, options):
    result = run_tests(FORKS + MEASURES, *options, in_process=False)
    assert result.parseoutcomes() | {"warnings": 0} == {"passed": 2, "warnings": 0}


def test_a_profiler_of_the_cpu_alone_leaves_later_tests_their_kernels(run_tests):
    result = run_tests(PROFILES + MEASURES, in_process=False)
    assert result.parseoutcomes() | {"warnings": 0} == {"passed": 2, "warnings": 0}


def test_graphs_that_are_captured_before_the_first_measured_test_are_counted(run_tests):
    result = run_tests(CAPTURES, in_process=False)
    assert result.parseoutcomes() | {"warnings": 0} == {"passed": 2, "warnings": 0}

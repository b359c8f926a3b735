"""The peak of the allocator is the steps' own, whoever resets it."""

from __future__ import annotations

import pytest
import torch

from pytest_torchprof.reasons.capturing import PeakWasReset

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

CODE = """
y = torch.ones(64, device="cuda")
kept, calls = torch._C._cuda_resetPeakMemoryStats, []

def large():
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda").fill_(1)

@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    assert torch._C._cuda_resetPeakMemoryStats is kept
"""
RESETS = [
    "torch.cuda.reset_peak_memory_stats()",
    "torch.cuda.memory.reset_peak_memory_stats('cuda:0')",
    "torch.cuda.reset_max_memory_allocated()",
    "torch.accelerator.reset_peak_memory_stats()",
    "torch.accelerator.memory.reset_peak_memory_stats(0)",
]
TEST = """
@pytest.mark.filterwarnings("ignore:torch.cuda.reset_max")
@pytest.mark.torchprof(max_peak_memory="{most}MiB")
def test_{name}():
    {body}
"""


def test_a_reset_hides_no_peak(run_tests):
    resets = [
        reset for reset in RESETS if "accelerator" not in reset or hasattr(torch._C, "_accelerator_resetPeakStats")
    ]
    bodies = [f"large(); {reset}; y.add_(1)" for reset in resets]
    bodies += ["large(); torch.cuda.reset_peak_memory_stats(); large()", "large(); y.add_(1)"]
    tests = [TEST.format(most=32, name=f"missed_{i}", body=body) for i, body in enumerate(bodies)]
    tests += [TEST.format(most=128, name=f"holds_{i}", body=body) for i, body in enumerate(bodies)]
    # Where only a later step resets it, and the larger peak was an earlier step's.
    late = "calls.append(1); len(calls) == 5 and large(); len(calls) == 6 and torch.cuda.reset_peak_memory_stats(); y.add_(1)"
    tests.append(TEST.format(most=32, name="missed_late", body=late))
    result = run_tests(CODE + "".join(tests), in_process=False)
    result.assert_outcomes(failed=len(bodies) + 1, passed=len(bodies))
    result.stdout.fnmatch_lines([f"FAILED*test_missed_{i} *max_peak_memory*" for i in range(len(bodies))])
    result.stdout.no_fnmatch_line("*not measured*")


def test_a_reset_that_nobody_could_see_is_not_measured(run_tests):
    body = "calls.append(1); len(calls) == 5 and large(); len(calls) == 6 and kept(0); y.add_(1)"
    result = run_tests(CODE + TEST.format(most=32, name="it", body=body), in_process=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*not measured: {PeakWasReset().sentence}*"])

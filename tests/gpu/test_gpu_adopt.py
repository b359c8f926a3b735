"""Recordings that a child process makes of a GPU, adopted by a test."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
import torch
from facts import reasons_in, says
from simulated import gpu_is_simulated

from pytest_torchprof.reasons.adopting import NothingOfGpu, SignOfGpu
from pytest_torchprof.reasons.own_steps import NoGpuOperations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

SOURCE = """
import fresh

CHILD = '''
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
with profile(activities=[getattr(ProfilerActivity, name) for name in sys.argv[2:]]) as profiler:
    for _ in range(2):
        with record_function("decode"):
            (x + 1).mul(2)
    torch.cuda.synchronize()
profiler.export_chrome_trace(sys.argv[1])
'''

@pytest.mark.torchprof
def test_it(torchprof):
    def produce(folder):
        assert fresh.run_code(CHILD, str(folder / "trace.json.gz"), *ACTIVITIES).returncode == 0

    profile = torchprof.adopt(produce, "decode", step="decode", max_kernels=LIMIT, max_launches=2)
    assert profile.trace.device_kind.name == "cuda"
"""


def source(*activities: str, limit: int = 2) -> str:
    return SOURCE.replace("ACTIVITIES", repr(activities)).replace("LIMIT", str(limit))


def test_work_of_a_child_on_the_gpu_is_judged_kept_and_compared(run_tests):
    both = source("CPU", "CUDA")
    run_tests(both, "--torchprof-save=kept", "--torchprof-baseline=update").assert_outcomes(passed=1)
    run_tests(
        both.replace("fresh.run", "absent.run"), "--torchprof-replay=kept", "--torchprof-baseline=strict"
    ).assert_outcomes(passed=1)
    result = run_tests(source("CPU", "CUDA", limit=1))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=1*2 kernels*"])


@pytest.mark.parametrize("option", [(), ("--torchprof-require-gpu",)])
def test_a_child_that_recorded_nothing_of_the_gpu_that_there_is_is_not_measured(run_tests, pytester, option):
    result = run_tests(source("CPU"), "--torchprof-report=told.json", *option)
    result.assert_outcomes(failed=1)
    reasons = reasons_in(pytester.path / "told.json")
    # torch 2.11 records calls of the runtime all the same.
    assert any(says(why, NoGpuOperations) or says(why, NothingOfGpu) for why in reasons), reasons
    assert re.search(r"not measured: .*\[no-gpu-side\]", " ".join(result.stdout.str().split()))


def test_nor_is_one_that_saw_no_gpu_on_a_machine_that_has_one(run_tests, pytester):
    blind = (
        source("CPU")
        .replace(', device="cuda"', "")
        .replace("    torch.cuda.synchronize()\n", "")
        .replace("torch.cuda.synchronize()\n", "")
    )
    result = run_tests(blind.replace("*('CPU',)", "'CPU', CUDA_VISIBLE_DEVICES=''"), "--torchprof-report=told.json")
    result.assert_outcomes(failed=1)
    reasons = reasons_in(pytester.path / "told.json")
    assert any(says(why, NothingOfGpu, sign=SignOfGpu.HERE) for why in reasons), reasons
    result.stdout.fnmatch_lines(["*[[]no-gpu-side]*"])


MONITORED = """
import pytest, torch
from torch.profiler import CuspyConfig, ProfilerActivity, ProfilerActivityConfig, profile

@pytest.mark.torchprof
def test_it(torchprof):
    x = torch.ones(64, device="cuda")

    def produce(folder):
        monitored = {ProfilerActivity.CUDA: ProfilerActivityConfig(profiler_configs=[CuspyConfig()])}
        with profile(activities=[ProfilerActivity.CPU, monitored]) as profiler:
            x.add_(1)
            torch.cuda.synchronize()
        profiler.export_chrome_trace(str(folder / "trace.json"))

    torchprof.adopt(produce, timeout=0.1, max_kernels=1)
"""


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="has no CuspyConfig")
@pytest.mark.skipif(not gpu_is_simulated(), reason="needs a CUPTI that refuses torch's monitor: the simulated one")
@pytest.mark.skipif(not (find_spec("cupti") and find_spec("numpy")), reason="needs cupti-python and numpy")
def test_an_export_that_torch_skips_is_told_with_what_kept_its_monitor_from_cupti(pytester):
    """In a process of Python's own: cupti-python loads a real CUPTI, which does not survive a fork."""
    pytester.makepyfile(test_it=MONITORED)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "(CuspyConfig) could not register (cuptiGetVersion failed with rc=" in text
    assert "[no-recording-left]" in text

"""Times without the profiler on a real GPU: events, the cold cache, the lock of a GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import closing
from textwrap import dedent

import pytest
import torch

from pytest_torchprof import capture, load
from pytest_torchprof.capture.device import gpu_uuid
from pytest_torchprof.capture.nvml import disturbances
from pytest_torchprof.capture.samples import Samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]


def sampled_us(step, cache="hot"):
    samples = Samples(capture.pick_device("auto"), cache)
    for _ in samples.batch():
        step()
    (batch,) = samples.evidence["batches"]
    return statistics.median(batch["samples_us"])


def profiled_us(step, path):
    """Return the GPU's busy time of a step, as the profiler has it."""
    device = capture.pick_device("auto")
    capture.arm(device)
    plan = capture.Plan(device=device, warmup=3, steps=5, record=frozenset(), nodeid="t.py::t", label=None)
    with closing(capture.iterations(plan, path, lambda _: None)) as calls:
        for _ in calls:
            step()
    return statistics.median(step.gpu_busy_us for step in load(path).steps)


@pytest.mark.parametrize(("size", "claimed"), [(64, False), (1024, False), (8192, True)])
def test_events_tell_the_time_that_the_profiler_tells(size, claimed, fact, tmp_path):
    """Of a short step they also hold the gaps in which the GPU waits for the CPU: told, not claimed."""
    x = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    events_us, busy_us = sampled_us(lambda: x @ x), profiled_us(lambda: x @ x, tmp_path / "t.json")
    fact(f"product_of_{size}", f"events {events_us:.1f} us, profiler {busy_us:.1f} us")
    assert not claimed or events_us == pytest.approx(busy_us, rel=0.1)


@pytest.mark.real_gpu("the simulated one has no caches")
def test_with_a_cold_cache_what_would_fit_into_it_takes_longer(fact):
    x = torch.ones(4 << 20, device="cuda")  # 16 MiB: in the last cache of every GPU since A100.
    hot_us, cold_us = sampled_us(lambda: x.sum()), sampled_us(lambda: x.sum(), "cold")
    fact("sum_of_16_mib", f"hot {hot_us:.1f} us, cold {cold_us:.1f} us")
    assert cold_us > hot_us


def test_another_process_on_the_gpu_is_told():
    device = capture.pick_device("auto")
    torch.ones(1, device=device)
    other = """
        import sys, torch
        torch.ones(1, device="cuda")
        print("there", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(other)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "there\n"
        told = disturbances(gpu_uuid(device))
        process.stdin.close()
    assert any("used the GPU" in line for line in told), told


def test_two_processes_do_not_measure_on_one_gpu_at_once(tmp_path):
    """Each measures for a while and writes down when it began and ended."""
    body = """
        import sys, time
        from contextlib import closing
        from pathlib import Path
        import torch
        from pytest_torchprof import capture
        device = capture.pick_device("auto")
        capture.arm(device)
        plan = capture.Plan(device=device, warmup=0, steps=20, record=frozenset(), nodeid="t.py::t", label=None)
        x, moments = torch.ones(8, device=device), []
        with closing(capture.iterations(plan, Path(sys.argv[1]), lambda _: None)) as calls:
            for _ in calls:
                moments.append(time.monotonic())
                x.add_(1)
                time.sleep(0.05)
        print(moments[0], moments[-1])
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", dedent(body), str(tmp_path / f"{index}.json")], stdout=subprocess.PIPE, text=True
        )
        for index in range(2)
    ]
    (_, first_end), (second_start, _) = sorted(tuple(map(float, p.communicate()[0].split())) for p in processes)
    assert first_end < second_start

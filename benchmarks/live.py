"""How long a live measurement takes from the profiler's stop to a Profile, beside torch's own `key_averages()`.

Both sides run in this process, in turns, over the same work with shapes recorded; the medians are compared.

    python benchmarks/live.py [--calls 4000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

import pytest_torchprof
from pytest_torchprof import capture

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5


def work(calls: int) -> Callable[[], None]:
    """Return one step: `calls` rounds of a matrix product with a bias, an activation and a sum."""
    x, weight, bias = torch.ones(16, 16), torch.ones(16, 16), torch.ones(16)

    def step() -> None:
        for _ in range(calls // STEPS):
            torch.addmm(bias, x, weight).relu().sum()

    return step


def ours(step: Callable[[], None], path: Path) -> tuple[float, int]:
    """Return the seconds from the end of the last step to a Profile with its numbers, and the events in the file."""
    plan = capture.Plan(device="cpu", warmup=1, steps=STEPS, record=frozenset(), nodeid="live.py::work", label=None)
    seconds, events, stopped = 0.0, 0, 0.0

    def check(recording: Path) -> str | None:
        nonlocal seconds, events
        found = pytest_torchprof.load(recording)
        assert found.kernels
        assert found.steps
        seconds, events = time.perf_counter() - stopped, found.trace.events
        return found.why_not

    with closing(capture.iterations(plan, path, check)) as iterations:
        for _ in iterations:
            step()
            stopped = time.perf_counter()
    return seconds, events


def torchs(step: Callable[[], None]) -> float:
    """Return the seconds from the end of the last step to `key_averages()`."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(STEPS):
            step()
        stopped = time.perf_counter()
    profiler.key_averages()
    return time.perf_counter() - stopped


def loading(path: Path) -> float:
    """Return the seconds to read the recording of the last round once more, without the profiler."""
    started = time.perf_counter()
    pytest_torchprof.load(path)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000, help="rounds of three operators per measurement")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    step = work(asked.calls)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "live.json"
        rounds = [(*ours(step, path), torchs(step), loading(path)) for _ in range(asked.rounds)]
        megabytes = path.stat().st_size / 1e6
        compute = json.loads(path.read_text())["torchprof"]["environment"]["cpu"]
    events = rounds[0][1]
    live, averages, load = (statistics.median(one[i] for one in rounds) for i in (0, 2, 3))
    print(
        f"torch {torch.__version__}, {compute}, {events} events with shapes, {megabytes:.1f} MB, {asked.rounds} rounds"
    )
    print(f"stop to Profile   {live:7.3f} s  {live / events * 1e6:6.2f} us per event   (reading it: {load:.3f} s)")
    print(f"key_averages()    {averages:7.3f} s  {averages / events * 1e6:6.2f} us per event")
    print(f"ratio             {averages / live:7.1f} times faster than key_averages()")


if __name__ == "__main__":
    main()

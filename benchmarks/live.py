"""How long a live measurement takes from the profiler's stop to a verdict, beside torch's own `key_averages()`.

Both sides run in this process, in turns, over the same work with shapes recorded; the medians are compared.

    python benchmarks/live.py [--calls 4000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

import pytest_torchprof
from pytest_torchprof.capture.recording_file import write_recording
from pytest_torchprof.capture.session import Session
from pytest_torchprof.trace import SENTINEL

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


def ours(step: Callable[[], None], path: Path) -> tuple[float, float, int]:
    """Return the seconds of the stop, those from there to a verdict, and the events in the file."""
    key = {"schema": 1, "device": "cpu", "warmup": 0, "steps": STEPS, "sentinel": SENTINEL, "problems": []}
    with Session("cpu") as session:
        for index in range(STEPS):
            with session.step(index):
                step()
        started = time.perf_counter()
        session.finish()
        stopped = time.perf_counter()
        write_recording(session, path, key)
    found = pytest_torchprof.load(path)
    found.expect(max_kernels=found.trace.events, max_gpu_time="1s")
    assert len(found.steps) == STEPS
    return stopped - started, time.perf_counter() - stopped, found.trace.events


def torchs(step: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of the stop, and those from there to `key_averages()`."""
    profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    profiler.start()
    for _ in range(STEPS):
        step()
    started = time.perf_counter()
    profiler.stop()
    stopped = time.perf_counter()
    profiler.key_averages()
    return stopped - started, time.perf_counter() - stopped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000, help="rounds of three operators per measurement")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    step = work(asked.calls)
    with tempfile.TemporaryDirectory() as folder:
        path, rounds = Path(folder) / "live.json", []
        for _ in range(asked.rounds):
            # As in a test run: no file of that name yet, and not the other side's garbage to collect.
            path.unlink(missing_ok=True)
            gc.collect()
            our = ours(step, path)
            gc.collect()
            rounds.append((*our, *torchs(step)))
        megabytes = path.stat().st_size / 1e6
    events = rounds[0][2]
    our_stop, live, _, their_stop, averages = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"torch {torch.__version__}, {events} events with shapes, {megabytes:.1f} MB, medians of {asked.rounds} rounds"
    )
    print("                      stop()   from there to the verdict   us per event")
    for name, stop, rest in (("pytest-torchprof", our_stop, live), ("key_averages()", their_stop, averages)):
        print(f"{name:18} {stop:7.3f} s {rest:20.3f} s {rest / events * 1e6:20.2f}")
    print(f"from the stop on, {averages / live:.1f} times faster than key_averages()")


if __name__ == "__main__":
    main()

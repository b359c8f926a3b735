"""How long a live measurement takes from the profiler's stop to a verdict, beside torch's own `key_averages()`.

All sides run in this process, in turns, over the same work with shapes recorded; the medians are compared. One of ours
is a test, from the stop to pytest's report of it.

    python benchmarks/live.py [--calls 4000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import pytest_torchprof
from pytest_torchprof.capture import torch_profiler
from pytest_torchprof.capture.recording_file import write_recording
from pytest_torchprof.capture.session import Session
from pytest_torchprof.trace import SENTINEL
from pytest_torchprof.trace.metadata import Metadata

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
    key = Metadata(device="cpu", warmup=0, steps=STEPS, sentinel=SENTINEL, problems=())
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


TEST = """
import pytest
from live import STEPS, work

step = work({calls})

@pytest.mark.torchprof(device="cpu", steps=STEPS, max_kernels=1000000)
def test_work():
    step()
"""


class Watch:
    """A plugin of pytest's that notes when the profiler has stopped and when the test is reported."""

    def __init__(self) -> None:
        self.stopped = self.reported = 0.0
        self.original = torch_profiler.stop

    def stop(self, profiler: object) -> Exception | None:
        error = self.original(profiler)  # type: ignore[arg-type]
        self.stopped = time.perf_counter()
        return error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            assert report.passed
            self.reported = time.perf_counter()


def in_a_test(folder: Path) -> float:
    """Return the seconds from the stop to pytest's report."""
    watch = Watch()
    torch_profiler.stop = watch.stop
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([str(folder), "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"], plugins=[watch])
    finally:
        torch_profiler.stop = watch.original
    return watch.reported - watch.stopped


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
        (Path(folder) / "test_live.py").write_text(TEST.format(calls=asked.calls), encoding="utf-8")
        in_a_test(Path(folder))
        for _ in range(asked.rounds):
            # As in a test run: no file of that name yet, and not the other side's garbage to collect.
            path.unlink(missing_ok=True)
            gc.collect()
            our = ours(step, path)
            gc.collect()
            test = in_a_test(Path(folder))
            gc.collect()
            rounds.append((*our, test, *torchs(step)))
        megabytes = path.stat().st_size / 1e6
    events = rounds[0][2]
    our_stop, live, _, test, their_stop, averages = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"torch {torch.__version__}, {events} events with shapes, {megabytes:.1f} MB, medians of {asked.rounds} rounds"
    )
    print("                      stop()   from there to the verdict   us per event")
    for name, stop, rest in (("pytest-torchprof", our_stop, live), ("key_averages()", their_stop, averages)):
        print(f"{name:18} {stop:7.3f} s {rest:20.3f} s {rest / events * 1e6:20.2f}")
    print(f"from the stop on, {averages / live:.1f} times faster than key_averages()")
    print(f"to pytest's report of a test, {test:.3f} s, {averages / test:.1f} times faster")


if __name__ == "__main__":
    main()

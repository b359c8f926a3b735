"""Whether a process goes on measuring a GPU however many tests it has, where each session loses one kernel more.

CUPTI 12.6.2 to 13.0 does so after idle time (pytorch#192021). The simulated device loses it in every session
(`FAKEGPU_CUPTI_HEAD=0`), which is worse; beside it stands a run that loses none. A real GPU loses what it loses. Each
run is a process of its own; each test launches two kernels and allows no other number, so that one passes only if it
was measured.

    tests/fakegpu/fakegpu python benchmarks/sessions.py [--tests 2000]

What it found is in docs/how-it-works.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

PARTS = 4
TESTS = """
import pytest, torch

@pytest.mark.parametrize("number", range({tests}))
@pytest.mark.torchprof(device="cuda", max_kernels=2, min_kernels=2)
def test_two_kernels(number):
    torch.ones(8, device="cuda").add_(1)
"""
WATCH = """
import json, pathlib, time
seen = []

def pytest_runtest_logfinish():
    seen.append((time.process_time(), time.perf_counter()))

def pytest_sessionfinish():
    pathlib.Path("seen.json").write_text(json.dumps(seen))
"""
LOSSES = {"one kernel more with each session": "0", "none": "-1"}


def run(tests: int, **environment: str) -> tuple[Counter[str], list[tuple[float, float]]]:
    """Return how many tests came to what, and the CPU and wall seconds of this process when each had ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_sessions.py").write_text(TESTS.format(tests=tests), encoding="utf-8")
        (folder / "conftest.py").write_text(WATCH, encoding="utf-8")
        words = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", "--torchprof-report=found.json"]
        command = [sys.executable, "-m", "pytest", *words]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
        )
        assert (folder / "found.json").exists(), done.stdout + done.stderr
        found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        seen = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
        return Counter(result["outcome"] for result in found["results"]), seen


def per_test(seen: list[tuple[float, float]], part: int, parts: int = PARTS) -> tuple[float, float]:
    """Return CPU and wall milliseconds per test of one of so many parts of a run, without its first test."""
    first, last = part * (len(seen) - 1) // parts, (part + 1) * (len(seen) - 1) // parts
    cpu, wall = (1000 * (after - before) for before, after in zip(seen[first], seen[last], strict=True))
    return cpu / (last - first), wall / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=2000)
    tests = parser.parse_args().tests
    simulated = hasattr(ctypes.CDLL(None), "fakegpu_reload")
    device = f"{'a simulated ' if simulated else ''}{torch.cuda.get_device_name()}"
    print(f"{tests} tests in a process, {device}, torch {torch.__version__}, {os.cpu_count()} CPUs")
    for loses, head in LOSSES.items() if simulated else {"what it loses": ""}.items():
        outcomes, seen = run(tests, **({"FAKEGPU_CUPTI_HEAD": head} if head else {}))
        print(f"loses {loses}: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())}")
        cpu, wall = per_test(seen, 0, 1)
        print(f"  per test {cpu:6.1f} ms of CPU, {wall:6.1f} ms")
        for part in range(PARTS):
            cpu, wall = per_test(seen, part)
            print(f"  part {part + 1} of {PARTS}: {cpu:6.1f} ms of CPU, {wall:6.1f} ms")


if __name__ == "__main__":
    main()

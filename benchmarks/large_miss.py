"""What a missed limit costs beside one that holds: CPU seconds and peak memory of a test with a step of many operators.

Each runs in a process of its own, in turns, on the CPU as device; torch is imported before the clock starts.

    python benchmarks/large_miss.py [--operators 20000] [--steps 1] [--rounds 3]

2 cores of an AMD EPYC, torch 2.13.0 (CPU build): 1.5 to 1.7 times the time and 1.3 times the memory with one step, 1.4
to 1.6 and 1.05 times with five.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

TEST = """
import pytest, torch

x = torch.ones(4)
layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()) for _ in range(10)))

@pytest.mark.torchprof(device="cpu", steps={steps}, max_kernels={limit})
def test_many_operators():
    with torch.no_grad():
        for _ in range({operators} // 20):
            layers(x)
"""


def run(operators: int, steps: int, limit: int) -> int:
    """Run the test in this process; print its time and peak, return pytest's status."""
    import pytest  # noqa: PLC0415 - the parent needs none
    import torch._dynamo  # noqa: PLC0415, F401 - what every test with torch pays

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_large.py"
        file.write_text(TEST.format(steps=steps, limit=limit, operators=operators), encoding="utf-8")
        started = time.process_time()
        status = int(pytest.main([str(file), "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]))
        seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{seconds:.2f} s {peak:.0f} MB\n")
    return status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, help="run this one limit in this process")
    asked = parser.parse_args()
    if asked.limit is not None:
        sys.exit(run(asked.operators, asked.steps, asked.limit))
    print(f"{asked.operators} operators, {asked.steps} steps, medians of {asked.rounds} rounds")
    found: dict[str, list[tuple[float, float]]] = {"passes": [], "misses": []}
    for _ in range(asked.rounds):
        for name, runs in found.items():
            limit = asked.operators if name == "passes" else 5
            words = [__file__, f"--operators={asked.operators}", f"--steps={asked.steps}", f"--limit={limit}"]
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
            assert done.returncode == (0 if name == "passes" else 1), done.stdout + done.stderr
            seconds, _, megabytes, _ = done.stdout.splitlines()[-1].split()
            runs.append((float(seconds), float(megabytes)))
    medians = {name: tuple(map(median, zip(*runs, strict=True))) for name, runs in found.items()}
    for name, (seconds, megabytes) in medians.items():
        print(f"{name:8} {seconds:.2f} s {megabytes:.0f} MB")
    time_ratio, memory_ratio = (missed / passed for missed, passed in zip(*reversed(medians.values()), strict=True))
    print(f"misses / passes: {time_ratio:.2f} times the time, {memory_ratio:.2f} times the memory")


if __name__ == "__main__":
    main()

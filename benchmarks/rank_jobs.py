"""What tests of two ranks take in one job of their file, and in a job each: CPU time, of all processes.

    python benchmarks/rank_jobs.py [--tests 14]

What it found is in docs/ranks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = """
import pytest, torch
from torch import distributed

x = torch.ones(64, 64)

@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
@pytest.mark.parametrize("number", range({tests}))
def test_sum(torchprof, number):
    ranks = torchprof.ranks

    def step():
        distributed.all_reduce(x @ x)

    torchprof(step)
"""


def main() -> None:
    """Run the tests both ways, and print what each took."""
    import torch  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", type=int, default=14)
    tests = parser.parse_args().tests
    sys.stdout.write(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_sum.py").write_text(TESTS.format(tests=tests), encoding="utf-8")
        run(folder, "--collect-only")  # What compiles Python's files is not to be counted.
        for scope in ("file", "test"):
            seconds = run(folder, "-o", f"torchprof_ranks_scope={scope}")
            sys.stdout.write(f"{tests} tests, a job for each {scope}: {seconds:.0f} s of CPU time\n")
            sys.stdout.flush()


def run(folder: str, *words: str) -> float:
    """Run pytest, and return the seconds of CPU time that it took with all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words],
        cwd=folder,
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

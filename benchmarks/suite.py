"""What many marked tests cost in one run, beside the same bodies under a bare `torch.profiler.profile`.

The bare side makes as many calls, records shapes too and exports. Each side is a pytest run of its own, in turns; what
a test takes is measured from the first tenth of a run on, so that neither imports nor first calls count in it.

    python benchmarks/suite.py [--tests 2000] [--body small] [--rounds 3]
    python benchmarks/suite.py --tests 100 --body layer

Torch 2.13.0 (CPU build), 2 cores: 7.8 and 3.2 ms of CPU per small test, 13 and 8 kB (AMD EPYC); 59 and 42 ms per layer,
1.4 times (a busy Intel Xeon). What is added to a small test is spread over the session's start and end, the file,
reading, judging and pytest's hooks: no function takes a tenth of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BODIES = {
    "small": "    torch.relu(x @ x)\n",
    "layer": "    layer(batch).sum().backward()\n",
}
HEAD = """
import pytest, torch
from torch.profiler import ProfilerActivity, profile, record_function

x = torch.ones(16, 16)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
batch = torch.ones(4, 16, 64)
torch.set_num_threads(1)

def body():
"""
OURS = """
@pytest.mark.parametrize("number", range({tests}))
@pytest.mark.torchprof(device="cpu", max_kernels=500)
def test_body(number):
    body()
"""
BARE = """
@pytest.mark.parametrize("number", range({tests}))
def test_body(number, tmp_path_factory):
    for _ in range(3):
        body()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for step in range(5):
            with record_function(f"ProfilerStep#{{step}}"):
                body()
    profiler.export_chrome_trace(str(tmp_path_factory.getbasetemp() / "trace.json"))
"""
WATCH = """
import json, pathlib, time
done, first = 0, None

def now():
    resident = pathlib.Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]
    return time.process_time(), time.perf_counter(), int(resident) * 1024

def pytest_runtest_logfinish():
    global done, first
    done += 1
    if done == {tests} // 10:
        first = now()
    if done == {tests}:
        last, left = now(), done - {tests} // 10
        found = [(b - a) / left for a, b in zip(first, last)]
        pathlib.Path("found.json").write_text(json.dumps([*found, last[0]]))
"""


def run(side: str, body: str, tests: int) -> list[float]:
    """Return CPU and wall seconds per test, the bytes by which each let the process grow, and the run's CPU seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = HEAD + BODIES[body] + (OURS if side == "ours" else BARE).format(tests=tests)
        (folder / "test_bodies.py").write_text(source, encoding="utf-8")
        (folder / "conftest.py").write_text(WATCH.format(tests=tests), encoding="utf-8")
        words = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", f"--rootdir={folder}"]
        words += [] if side == "ours" else ["-p", "no:torchprof"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: list[float] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--body", choices=BODIES, default="small")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    found: dict[str, list[list[float]]] = {"ours": [], "bare": []}
    for _ in range(asked.rounds):
        for side, runs in found.items():
            runs.append(run(side, asked.body, asked.tests))
    print(f"{asked.tests} tests ({asked.body}), medians of {asked.rounds} runs")
    print("per test   CPU      wall      growth   whole run")
    for side, runs in found.items():
        cpu, wall, growth, whole = map(median, zip(*runs, strict=True))
        print(f"{side:6}{cpu * 1e3:6.2f} ms{wall * 1e3:7.2f} ms{growth / 1e3:8.2f} kB{whole:9.1f} s CPU")
    pairs = list(zip(found["ours"], found["bare"], strict=True))
    for name, which in (("CPU per test", 0), ("wall per test", 1), ("CPU of the whole run", 3)):
        print(f"ours / bare, {name}: {median(ours[which] / bare[which] for ours, bare in pairs):.2f}")


if __name__ == "__main__":
    main()

"""How often a time tolerance is wrong: false alarms on unchanged code, and slowdowns that it does not find.

Processes that run one after the other sample the same workloads with the plugin's own clock, as written and, in their
first round, with 10 % and 20 % more work. Each process's samples are then the baseline of the next one's, and the
plugin's own rules say how they compare: slower only if they still look so with a second batch. No sample is dropped.

    python benchmarks/false_alarms.py [--device cuda] [--processes 32] [--rounds 4] [--tolerance 0.10] [--keep FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pytest_torchprof.baseline.entry import times
from pytest_torchprof.capture import pick_device
from pytest_torchprof.capture.samples import Samples
from pytest_torchprof.compare.time_changes import time_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

UNCHANGED, *SLOWER = REPEATS = (10, 11, 12)
CLOCKS = {"cpu": "perf_counter", "cuda": "events"}


def workloads(device: str) -> dict[str, Callable[[], object]]:
    """Return what one repeat of each workload does."""
    torch.set_num_threads(1)
    side, numbers = (128, 1 << 19) if device == "cpu" else (2048, 1 << 26)
    small, square, large = (torch.ones(size, device=device) for size in ((256,), (side, side), (numbers,)))
    of_both: dict[str, Callable[[], object]] = {
        "small operators": lambda: small.add(1).mul(2).relu().sum(),
        "matrix product": lambda: square @ square,
        "memory": lambda: large.add(1),
    }
    return of_both | ({"Python": lambda: sum(i * i for i in range(2000))} if device == "cpu" else {})


def call(once: Callable[[], object], repeats: int) -> None:
    """Do so many repeats of a workload."""
    for _ in range(repeats):
        once()


def sample(device: str, rounds: int) -> None:
    """Print, as one line of JSON, two batches of samples per workload, amount of work and round."""
    found: list[str] = []
    for number in range(rounds):
        for name, once in workloads(device).items():
            # Slower ones in the first round only: what takes the most pairs is the rate that should be near zero.
            for repeats in REPEATS if number == 0 else (UNCHANGED,):
                samples = Samples(pick_device(device), "hot")
                for _ in samples.settle():
                    call(once, repeats)
                for _ in range(2):
                    for _ in samples.take(samples.wanted):
                        call(once, repeats)
                batches = [batch.samples_us for batch in samples.timing.batches]
                # As text: thousands of numbers on the heap would move the times of what is pure Python.
                found.append(json.dumps([name, number, repeats, batches]))
    print(f"[{', '.join(found)}]")


def measured(device: str, processes: int, rounds: int) -> list[dict[tuple[str, int, int], list[list[float]]]]:
    """Return the batches of each process by workload, round and repeats."""
    runs = []
    for index in range(processes):
        command = [sys.executable, __file__, "--device", device, "--sample", str(rounds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append({(name, number, repeats): batches for name, number, repeats, batches in json.loads(done.stdout)})
        print(f"\r{index + 1} of {processes} processes", end="", file=sys.stderr)
    print(file=sys.stderr)
    return runs


def judged(clock: str, baseline: list[list[float]], run: list[list[float]], tolerance: float) -> tuple[str, str]:
    """Return the verdict after the first batch, and the one that counts."""
    of_clock = {"clock": clock}
    old = times(of_clock, [*baseline[0], *baseline[1]])

    def held(samples: list[float], *, confirmed: bool) -> str:
        return time_verdict(old, times(of_clock, samples, confirmed=confirmed), tolerance)

    first = held(run[0], confirmed=False)
    return first, held([*run[0], *run[1]], confirmed=True) if first == "ambiguous" else first


def machine(device: str) -> str:
    """Return what this was run on, and how busy that was."""
    gpu = f"{torch.cuda.get_device_name()}, " if device == "cuda" else ""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{gpu}{model.partition(':')[2].strip() or platform.processor()}, {os.cpu_count()} CPUs, load {load}, "
        f"Python {platform.python_version()}, torch {torch.__version__}, {datetime.now().astimezone():%Y-%m-%d}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=CLOCKS, default="cpu")
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tolerance", type=float, default=0.10)
    parser.add_argument("--keep", type=Path, help="write the samples to this file as JSON")
    parser.add_argument("--sample", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.sample:
        sample(asked.device, asked.sample)
        return
    began = time.monotonic()
    runs = measured(asked.device, asked.processes, asked.rounds)
    if asked.keep:
        asked.keep.write_text(json.dumps([[[*key, batches] for key, batches in run.items()] for run in runs]))
    print(f"{machine(asked.device)}; {time.monotonic() - began:.0f} s, tolerance {asked.tolerance:.0%}")
    print(f"{'work':>6} {'workload':<16} {'pairs':>5} {'worse':>7} {'ambiguous':>10} {'measured again':>15}")
    for repeats in REPEATS:
        pairs = [
            (key[0], *judged(CLOCKS[asked.device], baseline[key[0], key[1], UNCHANGED], run[key], asked.tolerance))
            for baseline, run in zip(runs, [*runs[1:], runs[0]], strict=True)
            for key in run
            if key[2] == repeats
        ]
        for name in [*dict.fromkeys(pair[0] for pair in pairs), "all"]:
            of_name = [pair for pair in pairs if name in (pair[0], "all")]
            counts = Counter(final for _, _, final in of_name)
            worse, ambiguous = (counts[said] / len(of_name) for said in ("worse", "ambiguous"))
            doubted = sum(first == "ambiguous" for _, first, _ in of_name) / len(of_name)
            work = f"{repeats / UNCHANGED - 1:+.0%}" if repeats != UNCHANGED else "same"
            print(f"{work:>6} {name:<16} {len(of_name):>5} {worse:>7.1%} {ambiguous:>10.1%} {doubted:>15.1%}")


if __name__ == "__main__":
    main()

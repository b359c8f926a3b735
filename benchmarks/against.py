"""How often `--torchprof-against-time` is wrong: equal code called worse, and slower code not found.

Real processes, started one after the other as a comparison with a commit starts them, time each workload as it is and
with 20 % more of it. That is the pool. A comparison then takes processes from it in the order in which they ran, in
pairs in random order, until the plugin's own rules have decided: base and working tree either do the same, or the
working tree does 20 % more. So each figure is of a process of its own, as in a real run, and the processes of one
comparison ran one after the other; but comparisons share processes with others that begin a little earlier or later.
The pool is a ring: the last process is followed by the first.

    python benchmarks/against.py [--processes 120] [--tolerance 0.10] [--budget SECONDS] [--keep FILE] [--from FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_torchprof.against.launch import SideLaunch
from pytest_torchprof.against.pairs import PairCosts, PairedTiming, Reading, TimedMeasurement, TimedSide
from pytest_torchprof.against.side import Side
from pytest_torchprof.compare.pace import LEAST_PAIRS, TimedPairs
from pytest_torchprof.report import Reference

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_torchprof.against.pairs import Key, Readings

EQUAL, SLOWER = REPEATS = (10, 12)
ORDERS = 4
"""In how many random orders the pairs of a comparison are taken."""
WORKLOADS = {
    "small operators": "small.add(1).mul(2).relu().sum()",
    "matrix product": "square @ square",
    "memory": "large.add(1)",
    "Python": "sum(i * i for i in range(2000)); small.add(1)",
}
TESTS = """
import pytest, torch

torch.set_num_threads(1)
small, square, large = torch.ones(256), torch.ones(128, 128), torch.ones(1 << 19)
"""
TEST = """
@pytest.mark.torchprof(device="cpu")
@pytest.mark.parametrize("repeats", {repeats})
def test_{name}(repeats):
    for _ in range(repeats):
        {work}
"""


class Sample(NamedTuple):
    """What one process says of a workload, and how long it took with all of them."""

    median_us: float
    seconds: float


def plain(name: str) -> str:
    """Return a workload's name as a function may be called."""
    return name.replace(" ", "_")


def key(name: str, repeats: int) -> tuple[str, None]:
    """Return the test that times so much of a workload."""
    return f"test_work.py::test_{plain(name)}[{repeats}]", None


def measured(processes: int) -> list[dict[str, float]]:
    """Return what each process says, in the order in which they ran: by test, and how long it took beside what load."""
    keys = [key(name, repeats) for name in WORKLOADS for repeats in REPEATS]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        code, results = Path(folder, "code"), Path(folder, "results")
        code.mkdir()
        results.mkdir()
        tests = [
            TEST.format(name=name.replace(" ", "_"), work=work, repeats=REPEATS) for name, work in WORKLOADS.items()
        ]
        Path(code, "test_work.py").write_text(TESTS + "".join(tests))
        side = Side(
            is_base=True, reference=Reference(ref="pool", sha="0" * 40, dirty=False), tree=code, other=results,
            caches=results, roots=(code,), own_tests=False, results=results, starter=0, keeps_recordings=False,
        )  # fmt: skip
        package = str(Path(__file__).parents[1])
        words = ("-q", f"--rootdir={code}", "-p", "no:cacheprovider", "--torchprof-against=pool", "test_work.py")
        launch = SideLaunch(words=words, folder=str(code), environment={**os.environ, "PYTHONPATH": package})
        for index in range(processes):
            began = time.monotonic()
            read = TimedSide(side, launch).read(results / str(index), keys)
            failed = next((reason for reason in read.values() if isinstance(reason, str)), None)
            if failed is not None:
                sys.exit(failed)
            medians = {test: said.step_us for (test, _), said in read.items() if not isinstance(said, str)}
            beside = {"seconds": time.monotonic() - began, "load": os.getloadavg()[0]}
            runs.append(medians | beside)
            print(f"\r{index + 1} of {processes} processes", end="", file=sys.stderr)
    return runs


def compared(
    base: list[Sample], here: list[Sample], order: random.Random, tolerance: float, budget_s: float
) -> TimedPairs:
    """Return what a comparison comes to, by processes in the order in which they ran: their medians and durations."""
    spent_s, only = 0.0, ("test", None)
    timing = PairedTiming(
        measurements={only: TimedMeasurement(pace=TimedPairs(allowed=tolerance))},
        costs=PairCosts(start_s=statistics.mean(sample.seconds for sample in base), test_s={"test": 0.0}),
        budget_s=budget_s,
        clock=lambda: spent_s,
    )

    def take(_keys: Collection[Key]) -> tuple[Readings, Readings]:
        nonlocal spent_s
        turns = [2 * timing.taken, 2 * timing.taken + 1]
        order.shuffle(turns)
        pair = base[turns[0] % len(base)], here[turns[1] % len(here)]
        spent_s += sum(sample.seconds for sample in pair)
        there, now = (Reading(step_us=one.median_us, kernel_us=None, conditions={}, disturbed=()) for one in pair)
        return {only: there}, {only: now}

    while keys := timing.next_keys():
        timing.take(take, keys)
    return timing.measurements[only].pace


def comparisons(
    runs: list[dict[str, float]], name: str, repeats: int, tolerance: float, budget_s: float
) -> Iterator[TimedPairs]:
    """Yield what comparisons of a workload come to, where the working tree does so many repeats of it."""
    base, here = ([Sample(run[key(name, number)[0]], run["seconds"]) for run in runs] for number in (EQUAL, repeats))
    for start in range(len(runs)):
        for seed in range(ORDERS):
            in_turn = [side[start:] + side[:start] for side in (base, here)]
            order = random.Random(start * ORDERS + seed)
            yield compared(in_turn[0], in_turn[1], order, tolerance, budget_s)


def machine() -> str:
    """Return what this was run on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return (
        f"{model.partition(':')[2].strip() or platform.processor()}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, torch {torch.__version__}, {datetime.now().astimezone():%Y-%m-%d}"
    )


def print_table(runs: list[dict[str, float]], tolerance: float, budget_s: float) -> None:
    """Print how the comparisons came out."""
    print(
        f"{'work':>5} {'workload':<16} {'spread':>7} {'comparisons':>12} {'worse':>7} {'ambiguous':>10} {'too few':>8} "
        f"{'pairs':>6}"
    )
    for repeats in REPEATS:
        for name in [*WORKLOADS, "all"]:
            names = [name] if name in WORKLOADS else [*WORKLOADS]
            paces = [pace for one in names for pace in comparisons(runs, one, repeats, tolerance, budget_s)]
            # Fewer pairs are no verdict: such a test is not measured.
            counts = Counter("none" if len(pace.pairs) < LEAST_PAIRS else pace.verdict for pace in paces)
            worse, ambiguous, none = (counts[said] / len(paces) for said in ("worse", "ambiguous", "none"))
            pairs = statistics.mean(len(pace.all_pairs) for pace in paces)
            medians = [run[key(name, repeats)[0]] for run in runs] if name in WORKLOADS else []
            spread = f"{statistics.stdev(medians) / statistics.mean(medians):.1%}" if medians else ""
            work = "same" if repeats == EQUAL else f"{repeats / EQUAL - 1:+.0%}"
            shares = f"{worse:>7.1%} {ambiguous:>10.1%} {none:>8.1%}"
            print(f"{work:>5} {name:<16} {spread:>7} {len(paces):>12} {shares} {pairs:>6.1f}")


def main() -> None:
    """Measure a pool, or read one, and say how comparisons within it come out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=120)
    parser.add_argument("--tolerance", type=float, default=0.10)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for each comparison")
    parser.add_argument("--keep", type=Path, help="write the pool to this file as JSON")
    parser.add_argument("--from", type=Path, dest="kept", help="read the pool from such a file")
    asked = parser.parse_args()
    runs = measured(asked.processes) if asked.kept is None else json.loads(asked.kept.read_text())
    if asked.keep:
        asked.keep.write_text(json.dumps(runs))
    seconds, load = (statistics.median(run[name] for run in runs) for name in ("seconds", "load"))
    most = max(run["load"] for run in runs)
    print(machine())
    print(
        f"{len(runs)} processes of {seconds:.0f} s; load {load:.1f}, up to {most:.1f}; tolerance {asked.tolerance:.0%}"
        + (f"; budget {asked.budget:g} s" if asked.budget < math.inf else "")
    )
    print_table(runs, asked.tolerance, asked.budget)


if __name__ == "__main__":
    main()

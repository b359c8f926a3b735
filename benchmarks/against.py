"""How often `--torchprof-against-time` is wrong: equal code called worse, and slower code not found.

Real processes, started one after the other as a comparison with a commit starts them, time each workload as it is and
with 20 % more of it. That is the pool. A comparison then takes processes from it in the order in which they ran, in
pairs in random order, until the plugin's own rules have decided or the budget is spent: base and working tree either
do the same, or the working tree does 20 % more. So each figure is of a process of its own, as in a real run, and the
processes of one comparison ran one after the other; but comparisons share processes with others that begin a little
earlier or later. The pool is a ring: the last process is followed by the first.

    python benchmarks/against.py [--processes 120] [--tolerance 0.10] [--budget 240] [--keep FILE] [--from FILE]
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

from pytest_torchprof.against.pairs import PairCosts, PairedTiming, Reading, TimedMeasurement, TimedSide
from pytest_torchprof.against.side import Side
from pytest_torchprof.against.start import SideStart
from pytest_torchprof.compare.pace import LEAST_PAIRS, TimedPairs
from pytest_torchprof.reasons.reason import Reason
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


class Asked(NamedTuple):
    """What a comparison allows: a share of the time, and seconds for all workloads together."""

    tolerance: float
    budget_s: float


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
        start = SideStart(arguments=words, folder=str(code), environment={**os.environ, "PYTHONPATH": package})
        for index in range(processes):
            began = time.monotonic()
            read = TimedSide(side, start).read(results / str(index), keys)
            failed = next((reason for reason in read.values() if isinstance(reason, Reason)), None)
            if failed is not None:
                sys.exit(str(failed))
            medians = {test: said.step_us for (test, _), said in read.items() if not isinstance(said, Reason)}
            beside = {"seconds": time.monotonic() - began, "load": os.getloadavg()[0]}
            runs.append(medians | beside)
            print(f"\r{index + 1} of {processes} processes", end="", file=sys.stderr)
    return runs


def compared(runs: list[dict[str, float]], repeats: int, order: random.Random, asked: Asked) -> dict[str, TimedPairs]:
    """Return what a comparison of all workloads comes to, by the processes in the order in which they ran."""
    at, spent_s = 0, 0.0

    def take(keys: Collection[Key]) -> tuple[Readings, Readings]:
        nonlocal at, spent_s
        turns = [runs[at % len(runs)], runs[(at + 1) % len(runs)]]
        order.shuffle(turns)
        at += 2
        spent_s += sum(run["seconds"] for run in turns)
        base, here = (
            {measurement: Reading(run[key(measurement[0], number)[0]], None, {}, ()) for measurement in keys}
            for run, number in zip(turns, (EQUAL, repeats), strict=True)
        )
        return base, here

    timing = PairedTiming(
        measurements={(name, None): TimedMeasurement(pace=TimedPairs(allowed=asked.tolerance)) for name in WORKLOADS},
        costs=PairCosts(start_s=typical(runs, "seconds"), test_s=dict.fromkeys(WORKLOADS, 0.0)),
        budget_s=asked.budget_s,
        clock=lambda: spent_s,
    )
    while keys := timing.next_keys():
        timing.take(take, keys)
    return {name: measured.pace for (name, _), measured in timing.measurements.items()}


def comparisons(runs: list[dict[str, float]], repeats: int, asked: Asked) -> Iterator[dict[str, TimedPairs]]:
    """Yield what comparisons come to, where the working tree does so many repeats."""
    for start in range(len(runs)):
        for seed in range(ORDERS):
            yield compared(runs[start:] + runs[:start], repeats, random.Random(start * ORDERS + seed), asked)


def verdict(pace: TimedPairs) -> str:
    """Return what the plugin says of such pairs."""
    return pace.verdict if len(pace.pairs) >= LEAST_PAIRS else "not measured"


def typical(runs: list[dict[str, float]], name: str) -> float:
    """Return the median of what was noted beside the times."""
    return statistics.median(run[name] for run in runs)


def machine() -> str:
    """Return what this was run on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return (
        f"{model.partition(':')[2].strip() or platform.processor()}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, torch {torch.__version__}, {datetime.now().astimezone():%Y-%m-%d}"
    )


def print_table(runs: list[dict[str, float]], asked: Asked) -> None:
    """Print how the comparisons came out."""
    columns = ("worse", "ambiguous", "not measured")
    print(f"{'work':>5} {'workload':<16} {'spread':>7} {'comparisons':>12} {'worse':>7} {'ambiguous':>10} ", end="")
    print(f"{'not measured':>13} {'pairs':>6}")
    for repeats in REPEATS:
        found = list(comparisons(runs, repeats, asked))
        for name in [*WORKLOADS, "all"]:
            paces = [pace[one] for pace in found for one in ([name] if name in WORKLOADS else WORKLOADS)]
            counts = Counter(verdict(pace) for pace in paces)
            worse, ambiguous, unmeasured = (counts[said] / len(paces) for said in columns)
            pairs = statistics.mean(len(pace.all_pairs) for pace in paces)
            medians = [run[key(name, repeats)[0]] for run in runs] if name in WORKLOADS else []
            spread = f"{statistics.stdev(medians) / statistics.mean(medians):.1%}" if medians else ""
            work = "same" if repeats == EQUAL else f"{repeats / EQUAL - 1:+.0%}"
            print(f"{work:>5} {name:<16} {spread:>7} {len(paces):>12} {worse:>7.1%} {ambiguous:>10.1%} ", end="")
            print(f"{unmeasured:>13.1%} {pairs:>6.1f}")


def main() -> None:
    """Measure a pool, or read one, and say how comparisons within it come out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=120)
    parser.add_argument("--tolerance", type=float, default=0.10)
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS", help="for a comparison of all")
    parser.add_argument("--keep", type=Path, help="write the pool to this file as JSON")
    parser.add_argument("--from", type=Path, dest="kept", help="read the pool from such a file")
    words = parser.parse_args()
    runs = measured(words.processes) if words.kept is None else json.loads(words.kept.read_text())
    if words.keep:
        words.keep.write_text(json.dumps(runs))
    asked = Asked(tolerance=words.tolerance, budget_s=words.budget)
    most = max(run["load"] for run in runs)
    print(machine())
    seconds, load = typical(runs, "seconds"), typical(runs, "load")
    print(f"{len(runs)} processes of {seconds:.0f} s; load {load:.1f}, up to {most:.1f}; ", end="")
    budget = "no budget" if math.isinf(asked.budget_s) else f"a budget of {asked.budget_s:g} s for the four workloads"
    print(f"tolerance {asked.tolerance:.0%}; {budget}")
    print_table(runs, asked)


if __name__ == "__main__":
    main()

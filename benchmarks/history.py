"""Whether a long history is read in bearable time, and each change that was planted in it is found at its commit.

Each test's kernels change at up to two random commits, its times scatter by 1 % and every twentieth test becomes slower
by 10 % at a random commit, and one measurement in a thousand is missing. The same file is beside it read with ``json``,
as a reader that keeps nothing would.

    python benchmarks/history.py [--tests 2000] [--commits 2000] [--folder DIR] [--store runs.db]

With --folder the records stay there, and are not made again where they are. With --store the records are merged into
that store first, where it does not have them, and read out of it.

What it found is in docs/history.md.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pytest_torchprof.history.branch_baseline import branch_baseline
from pytest_torchprof.history.record import (
    SUFFIX,
    CommitRecord,
    Event,
    KernelCount,
    MachineRecord,
    MeasurementRecord,
    RunRecord,
    StructureRecord,
    VaryingRecord,
    encode,
)
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of
from pytest_torchprof.report.outcome import Outcome
from pytest_torchprof.trace.metadata import Environment

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
TIMES = (
    "kernel_time_us",
    "gpu_time_us",
    "gpu_busy_us",
    "gpu_span_us",
    "cpu_time_us",
    "cpu_gpu_ratio",
    "gpu_utilization",
)
ROUNDS = 5
H100 = Environment(gpu="NVIDIA H100 80GB HBM3", torch="2.14.0", cuda="13.0", python="3.12.4")


def sha(commit: int) -> str:
    """Return the hash of the commit of this number."""
    return hashlib.sha1(str(commit).encode()).hexdigest()


def measured(test: int, softmaxes: int) -> tuple[MeasurementRecord, StructureRecord]:
    """Return a measurement and what it launches."""
    kernels = {"gemm bf16 tn": 10 + test % 7, "softmax fp32": softmaxes, f"triton_poi_fused_{test}": 2}
    rows = tuple(KernelCount(name, count) for name, count in kernels.items())
    name = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    total = float(sum(kernels.values()))
    counts = {"kernels": total, "launches": total, "memcpys": 0.0, "memsets": 0.0, "syncs": 1.0, "graph_breaks": 0.0}
    record = MeasurementRecord(
        test=f"tests/models/test_{test % 50}.py::test_block[{test}]",
        outcome=Outcome.PASSED,
        source=f"{test:016x}",
        environment=0,
        structure=name,
        counts=counts,
    )
    return record, StructureRecord(name, rows)


class Planted(NamedTuple):
    """What changes in each test, and at which commits."""

    counts: dict[str, list[str]]
    times: dict[str, int]
    """The commit's number: what is found are ranges."""


def generate(folder: Path, tests: int, commits: int) -> Planted:
    """Write the records of a history where they are not there yet, and return what changes in it."""
    chosen = random.Random(1)
    planted = [sorted(chosen.sample(range(1, commits), chosen.randrange(3))) for _ in range(tests)]
    slower = {test: chosen.randrange(commits // 5, commits * 4 // 5) for test in range(0, tests, 20)}
    there = len([*folder.glob(f"*{SUFFIX}")])
    if there not in (0, commits):
        sys.exit(f"{folder} has {there} records, which are none of {commits} commits")
    for commit in range(commits if not there else 0):
        rows = [(test, *measured(test, 3 + sum(step <= commit for step in planted[test]))) for test in range(tests)]
        kept = [row for row in rows if chosen.random() > 0.001]
        late = [1.1 if commit >= slower.get(test, commits) else 1.0 for test, _, _ in kept]
        line = tuple(sha(number) for number in range(commit - 1, max(commit - 201, -1), -1))
        at = BEGAN + timedelta(hours=commit)
        record = RunRecord(
            uuid=hashlib.md5(str(commit).encode()).hexdigest(),
            version="1.0",
            began=at,
            ended=at,
            complete=True,
            event=Event.PUSH,
            commit=CommitRecord(
                project="example.org/team/model",
                folder="",
                sha=sha(commit),
                parents=line[:1],
                date=at,
                ancestors=line,
                shallow=False,
                branch="main",
                dirty=False,
            ),
            machine=MachineRecord(digest="0" * 16, gpu=H100.gpu),
            environments=(H100,),
            measurements=tuple(record for _, record, _ in kept),
            structures=tuple({structure.name: structure for _, _, structure in kept}.values()),
            varying=tuple(
                VaryingRecord(
                    numbers=dict.fromkeys(TIMES, round(1e3 * longer * math.exp(chosen.gauss(0, 0.01)), 3)),
                    findings=("launch-gaps",),
                )
                for longer in late
            ),
        )
        (folder / f"{record.uuid}{SUFFIX}").write_bytes(encode(record))
    return Planted(
        {measured(test, 3)[0].test: [sha(step) for step in steps] for test, steps in enumerate(planted)},
        {measured(test, 3)[0].test: commit for test, commit in slower.items()},
    )


class Cost(NamedTuple):
    """What a command took, with the processes that it started."""

    wall_s: float
    cpu_s: float
    memory_bytes: int
    """Of the command and of as many other processes as there are cores, each as large as the largest."""

    def __str__(self) -> str:
        return f"{self.wall_s:.2f} s, {self.cpu_s:.2f} s of the CPU's cores, {self.memory_bytes / 1e6:.0f} MB"


def command(*words: str) -> tuple[Cost, bytes]:
    """Run a command of torchprof history; return what it took, and its output."""
    code = (
        "import os, resource, sys; from pytest_torchprof.cli import main; status = main();"
        "used, beside = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN));"
        "cpu = used.ru_utime + used.ru_stime + beside.ru_utime + beside.ru_stime;"
        "memory = (used.ru_maxrss + beside.ru_maxrss * os.cpu_count()) * 1024;"
        "print(cpu, memory, file=sys.stderr); sys.exit(status)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, "history", *words], capture_output=True, check=True)
    wall_s = time.perf_counter() - began
    cpu_s, memory = done.stderr.split()[-2:]
    return Cost(wall_s, float(cpu_s), int(memory)), done.stdout


def of_one_test(*words: str) -> str:
    """Return what a command took that asks for one test, with its parts: Python's start, and the answer alone.

    Each is the median of as many, by turns, after a first round that fetches the file from the disk.
    """
    start = "import pytest_torchprof.cli.history, pytest_torchprof.history.sql.database"
    answer = (
        "import contextlib, io, sys, time; from pytest_torchprof.cli import main\n"
        "for _ in range(2):\n"
        "    began = time.perf_counter()\n"
        "    with contextlib.redirect_stdout(io.StringIO()): main()\n"
        "    took = time.perf_counter() - began\n"
        "print(took)"
    )
    wholes, starts, answers = [], [], []
    for _ in range(ROUNDS + 1):
        wholes.append(command(*words)[0].wall_s)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", start], check=True)
        starts.append(time.perf_counter() - began)
        asked = [sys.executable, "-c", answer, "history", *words]
        answers.append(float(subprocess.run(asked, capture_output=True, check=True).stdout))
    whole_s, start_s, answer_s = (median(times[1:]) for times in (wholes, starts, answers))
    return (
        f"{whole_s:.2f} s, of which {start_s:.2f} s ({start_s / whole_s:.0%}) the start of Python with the libraries; "
        f"the answer alone, in a process that has given it once: {answer_s:.3f} s ({answer_s / whole_s:.0%})"
    )


def main() -> None:
    """Generate a history, read it, and print what that took and what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--folder", type=Path, metavar="DIR")
    parser.add_argument("--store", metavar="WHERE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        planted = generate(folder, options.tests, options.commits)
        files = sorted(folder.iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"{options.tests:,} tests x {options.commits:,} commits: {len(files):,} records, {size / 1e6:.0f} MB")
        store = options.store or str(folder)
        if options.store:
            merged, _ = command("merge", store, str(folder))
            print(f"torchprof history merge: {merged}")
        taken, out = command("changes", store, "--json")
        answer = json.loads(out)
        number = {sha(commit): commit for commit in range(options.commits)}
        found: dict[str, list[list[str]]] = {test: [] for test in planted.counts}
        for event in answer["events"]:
            for changed in event["tests"]:
                enclosing = range(number[changed["before"]] + 1, number[changed["after"]] + 1)
                found[changed["test"]].append([sha(commit) for commit in enclosing])
        # Where the commit of a change lacks a measurement, the change is one of a range.
        right = sum(
            [[sha for sha in commits if sha in steps] for commits in found[test]] == [[step] for step in steps]
            for test, steps in planted.counts.items()
        )
        print(f"torchprof history changes: {taken}", flush=True)
        print(
            f"{sum(map(len, planted.counts.values())):,} changes planted: {right:,} of {len(planted.counts):,} tests "
            "have just theirs"
        )
        steps = [
            (step["test"], number[step["before"]], number[step["after"]])
            for event in answer["time_events"]
            for step in event["tests"]
        ]
        hits = {test for test, before, after in steps if before < planted.times.get(test, -1) <= after}
        print(f"{len(planted.times)} steps of times planted: {len(hits)} found, {len(steps) - len(hits)} others called")
        asked = next(test for test, changes in planted.counts.items() if changes)
        for words in (("log", store, asked), ("when", store, asked, "kernels >= 1")):
            print(f"torchprof history {words[0]} of one test: {of_one_test(*words)}", flush=True)
        page = Path(name, "history.html")
        drawn, _ = command("page", store, "-o", str(page))
        print(f"torchprof history page: {drawn}, a file of {page.stat().st_size / 1e6:.1f} MB", flush=True)
        began = time.perf_counter()
        known = branch_baseline(store_at(where_of(store, Path())), "main", "")
        print(f"the newest run of a branch: {time.perf_counter() - began:.2f} s, of {len(known.known):,} tests")
        some = files[:: max(1, len(files) // 20)]
        began = time.perf_counter()
        for file in some:
            json.loads(gzip.decompress(file.read_bytes()))
        plain_s = (time.perf_counter() - began) / len(some) * len(files)
        beside = f"{plain_s:.1f} s, {plain_s / taken.wall_s:.1f} times as long"
        print(f"gzip and json alone, of {len(some)} records taken to all: {beside}")


if __name__ == "__main__":
    main()

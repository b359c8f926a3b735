"""Whether a long history is read in bearable time, and each change that was planted in it is found at its commit.

Each test's kernels change at up to two random commits; what else differs from run to run are times, and one measurement
in a thousand is missing. The same file is beside it read with ``json``, as a reader that keeps nothing would.

    python benchmarks/history.py [--tests 2000] [--commits 2000] [--store runs.db]

With --store the records are merged into that store first, and read out of it; it is to be empty.

What it found is in docs/history.md.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
from pytest_torchprof.report.result import Outcome
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


def generate(folder: Path, tests: int, commits: int) -> dict[str, list[str]]:
    """Write the records of a history, and return at which commits each test changes."""
    chosen = random.Random(1)
    planted = [sorted(chosen.sample(range(1, commits), chosen.randrange(3))) for _ in range(tests)]
    for commit in range(commits):
        rows = [measured(test, 3 + sum(step <= commit for step in planted[test])) for test in range(tests)]
        kept = [row for row in rows if chosen.random() > 0.001]
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
            measurements=tuple(record for record, _ in kept),
            structures=tuple({structure.name: structure for _, structure in kept}.values()),
            varying=tuple(
                VaryingRecord(
                    numbers={name: round(chosen.random() * 1e4, 3) for name in TIMES}, findings=("launch-gaps",)
                )
                for _ in kept
            ),
        )
        (folder / f"{record.uuid}{SUFFIX}").write_bytes(encode(record))
    return {measured(test, 3)[0].test: [sha(step) for step in steps] for test, steps in enumerate(planted)}


def command(*words: str) -> tuple[float, bytes, int]:
    """Run a command of torchprof history; return its seconds, its output, and its memory in bytes."""
    code = (
        "import resource, sys; from pytest_torchprof.cli import main; status = main();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr); sys.exit(status)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, "history", *words], capture_output=True, check=True)
    return time.perf_counter() - began, done.stdout, int(done.stderr.split()[-1])


def main() -> None:
    """Generate a history, read it, and print what that took and what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--store", metavar="WHERE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planted = generate(folder, options.tests, options.commits)
        files = sorted(folder.iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"{options.tests:,} tests x {options.commits:,} commits: {len(files):,} records, {size / 1e6:.0f} MB")
        store = options.store or name
        if options.store:
            merged_s, _, memory = command("merge", store, name)
            print(f"torchprof history merge: {merged_s:.1f} s, {memory / 1e6:.0f} MB")
        taken_s, out, memory = command("changes", store, "--json")
        found: dict[str, list[list[str]]] = {test: [] for test in planted}
        for event in json.loads(out)["events"]:
            for changed in event["tests"]:
                found[changed["test"]].append(event["commits"])
        # Where the commit of a change lacks a measurement, the change is one of a range.
        right = sum(
            [[sha for sha in commits if sha in steps] for commits in found[test]] == [[step] for step in steps]
            for test, steps in planted.items()
        )
        print(f"torchprof history changes: {taken_s:.1f} s, {memory / 1e6:.0f} MB")
        print(
            f"{sum(map(len, planted.values())):,} changes planted: {right:,} of {len(planted):,} tests have just theirs"
        )
        some = files[:: max(1, len(files) // 20)]
        began = time.perf_counter()
        for file in some:
            json.loads(gzip.decompress(file.read_bytes()))
        plain_s = (time.perf_counter() - began) / len(some) * len(files)
        beside = f"{plain_s:.1f} s, {plain_s / taken_s:.1f} times as long"
        print(f"gzip and json alone, of {len(some)} records taken to all: {beside}")


if __name__ == "__main__":
    main()

"""How fast a fleet judges: files and bytes per second, two jobs beside one, HTA, a plain loop; the driver's memory.

    python benchmarks/fleet.py RECORDING... [--copies 10] [--rounds 3] [--hta PYTHON]
    python benchmarks/fleet.py --records 100000

The files are copies of the recordings with other time stamps. Sides take turns, so that a machine whose speed drifts
treats them alike; of each the median is told, and of pairs the ratios. What two jobs can gain at most on this machine
is what two shards gain that run at once with a job each: they share nothing, but each core is slower while the other
one works. HTA reads the same files in one process, in the
interpreter given with --hta (``pip install HolisticTraceAnalysis==0.5.0`` in an environment of its own): kernel
breakdown, launch statistics and idle time of each; recordings that it cannot read are counted, and left out for both.
Both sides include their start. CPU time is of all processes, and in the column `driver` of the command's own. The loop
starts the command ``torchprof analyze --json`` once for each file. With --records so many small recordings are judged,
and the driver's memory is told. Prints ratios, asserts nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import NamedTuple

OURS = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
HTA = """
import logging, os, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
for path in sys.argv[1:]:
    try:
        analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
        analysis.get_gpu_kernel_breakdown(visualize=False)
        analysis.get_cuda_kernel_launch_stats(visualize=False)
        analysis.get_idle_time_breakdown(visualize=False)
    except Exception:
        continue
    print(path)
"""
# Both sides run compiled modules, as whoever installed them does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
TIME_STAMP = re.compile(rb'("ts": ?)(\d+)')


class Used(NamedTuple):
    """What a command took with all its processes; of its first one the CPU time alone, and the most memory."""

    wall_s: float
    cpu_s: float
    first_s: float
    peak_bytes: int
    output: str


def used(command: list[str]) -> Used:
    """Run a command; whatever limits were missed, it has to come to an end."""
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT, text=True)
    peak_bytes, first_s = 0, 0.0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
            user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            continue
        first_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        if high := re.search(r"VmHWM:\s+(\d+) kB", status):
            peak_bytes = max(peak_bytes, int(high[1]) * 1024)
        time.sleep(0.02)
    after = os.times()
    output = process.stdout.read() if process.stdout is not None else ""
    if process.returncode not in (0, 1, 3):
        raise SystemExit(f"failed with exit status {process.returncode}: {' '.join(command[:8])}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Used(time.perf_counter() - began, cpu_s, first_s, peak_bytes, output)


def copied(recordings: list[str], copies: int, folder: Path) -> list[Path]:
    """Write copies of recordings, each with the time stamps of another day."""
    files = []
    for recording in map(Path, recordings):
        packed = recording.read_bytes()
        text = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
        for number in range(copies):

            def later(match: re.Match[bytes], days: int = number) -> bytes:
                return match[1] + str(int(match[2]) + days * 86_400_000_000).encode()

            file = folder / f"day{number}" / f"{recording.name.removesuffix('.gz')}.gz"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(gzip.compress(TIME_STAMP.sub(later, text), 6))
            files.append(file)
    return files


class Fleet:
    """Runs of the same files, each into a folder of its own."""

    def __init__(self, script: Path, sources: list[str]) -> None:
        self._script, self._sources = script, sources

    def run(self, jobs: int) -> Used:
        return used([*self._command(), "--jobs", str(jobs)])

    def two_at_once(self) -> Used:
        """Judge each half of the files in a run of its own, both at the same time."""
        shards = [[*self._command(), "--jobs", "1", "--shard", f"{number}/2"] for number in (1, 2)]
        with ThreadPoolExecutor() as threads:
            # The CPU time of both is in that of the one that ended last.
            return max(threads.map(used, shards), key=attrgetter("wall_s"))

    def _command(self) -> list[str]:
        into = tempfile.mkdtemp(dir=self._script.parent)
        return [sys.executable, str(self._script), "fleet", "run", *self._sources, "--into", into]


def judge(recordings: list[str], copies: int, rounds: int, hta: str | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "ours.py"
        script.write_text(OURS, encoding="utf-8")
        (folder / "files").mkdir()
        files = copied(recordings, copies, folder / "files")
        size = sum(file.stat().st_size for file in files)
        fleet = Fleet(script, [str(folder / "files")])
        fleet.run(2)
        sides = [(fleet.run(1), fleet.run(2), fleet.two_at_once()) for _ in range(rounds)]
        alone, both, shards = (list(side) for side in zip(*sides, strict=True))
        print(f"{len(files)} files, {size / 1e6:.1f} MB")
        print(f"{'':30}{'wall':>10}{'CPU':>10}{'driver':>10}{'files/s':>10}{'MB/s':>10}")
        for title, own in (("1 job", alone), ("2 jobs", both), ("2 shards at once, 1 job each", shards)):
            show(title, own, len(files), size)
        print(f"two jobs are faster by {ratio(alone, both)}; two shards at once by {ratio(alone, shards)}")
        beside_loop(script, files, folder, rounds)
        if hta is not None:
            beside_hta(script, hta, files, copies, rounds)


def show(title: str, runs: list[Used], files: int, size: int) -> None:
    wall_s = median(run.wall_s for run in runs)
    cpu_s = median(run.cpu_s for run in runs)
    first_s = median(run.first_s for run in runs)
    print(f"{title:30}{wall_s:8.2f} s{cpu_s:8.2f} s{first_s:8.2f} s{files / wall_s:10.1f}{size / 1e6 / wall_s:10.2f}")


def ratio(slower: list[Used], faster: list[Used]) -> str:
    """Return by how much one side is faster, by wall time and by CPU time."""
    pairs = list(zip(slower, faster, strict=True))
    wall, cpu = (median(getattr(a, of) / getattr(b, of) for a, b in pairs) for of in ("wall_s", "cpu_s"))
    return f"{wall:.2f} (wall), {cpu:.2f} (CPU)"


def beside_loop(script: Path, files: list[Path], folder: Path, rounds: int) -> None:
    """Compare with a process for each file, one after the other; a part of them is enough."""
    some = folder / "some"
    some.mkdir()
    for number, file in enumerate(files[:: max(1, len(files) // 100)]):
        (some / f"{number}-{file.name}").hardlink_to(file)
    names = sorted(map(str, some.iterdir()))
    size = sum(Path(name).stat().st_size for name in names)
    loop_file = folder / "loop.sh"
    lines = [f'"{sys.executable}" "{script}" analyze "{name}" --json > "{folder}/analysis.json"' for name in names]
    loop_file.write_text("\n".join([*lines, "true"]), encoding="utf-8")
    fleet = Fleet(script, [str(some)])
    sides = [(used(["bash", str(loop_file)]), fleet.run(1), fleet.run(2)) for _ in range(rounds)]
    loops, alone, both = (list(side) for side in zip(*sides, strict=True))
    show("a loop of analyze --json", loops, len(names), size)
    for jobs, own in ((1, alone), (2, both)):
        show(f"{counted(jobs)} over the same", own, len(names), size)
        print(f"{counted(jobs)}: faster than the loop by {ratio(loops, own)}")


def counted(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def beside_hta(script: Path, hta: str, files: list[Path], copies: int, rounds: int) -> None:
    """Compare one process with one process, over the files that HTA reads: all copies of a recording, or none."""
    first = files[::copies]
    read = used([hta, "-c", HTA, *map(str, first)]).output.split()
    if not read:
        raise SystemExit(f"{hta}: HTA reads none of {len(first)} recordings: is it installed there?")
    legible = {file for number, file in enumerate(files) if str(first[number // copies]) in read}
    some = [str(file) for file in files if file in legible]
    print(f"HTA reads {len(read)} of {len(first)} recordings; over the {len(some)} copies of these:")
    size = sum(Path(name).stat().st_size for name in some)
    manifest = script.parent / "read.jsonl"
    manifest.write_text("".join(f"{json.dumps({'url': name})}\n" for name in some), encoding="utf-8")
    fleet = Fleet(script, [str(manifest)])
    sides = [(used([hta, "-c", HTA, *some]), fleet.run(1)) for _ in range(rounds)]
    theirs, ours = (list(side) for side in zip(*sides, strict=True))
    show(f"HTA, {len(some)} files", theirs, len(some), size)
    show("1 job over the same", ours, len(some), size)
    print(f"1 job is faster than HTA by {ratio(theirs, ours)}")


def remember(records: int) -> None:
    """Print the driver's memory for so many small recordings, and for a tenth of them."""
    print(f"{'records':>10}{'wall':>10}{'files/s':>10}{'driver':>12}")
    peaks = []
    for count in (records // 10, records):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            script, one = folder / "ours.py", folder / "one.json"
            script.write_text(OURS, encoding="utf-8")
            kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 3, "args": {}}
            one.write_text(json.dumps({"traceEvents": [kernel]}), encoding="utf-8")
            for number in range(count):
                file = folder / "files" / str(number % 100) / f"{number}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                # The same content under another name; a file system has only so many names for a file.
                if number % 10_000 == 0:
                    one = folder / f"one{number}.json"
                    one.write_bytes((folder / "one.json").read_bytes())
                file.hardlink_to(one)
            run = Fleet(script, [str(folder / "files")]).run(2)
            print(f"{count:10,}{run.wall_s:8.1f} s{count / run.wall_s:10.1f}{run.peak_bytes / 1e6:9.0f} MB")
            peaks.append((count, run.peak_bytes))
    (few, less), (many, more) = peaks
    print(f"{(more - less) / (many - few):.0f} bytes for each further record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--records", type=int, help="judge so many small recordings, for the driver's memory")
    asked = parser.parse_args()
    if asked.recordings:
        judge(asked.recordings, asked.copies, asked.rounds, asked.hta)
    if asked.records:
        remember(asked.records)


if __name__ == "__main__":
    main()

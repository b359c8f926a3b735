"""How fast a recording is read: ours against HolisticTraceAnalysis, and growth to a million events.

    python benchmarks/reader.py TRACE [--rounds 5] [--hta PYTHON] [--grow EVENTS]

Both sides run as whole processes, in turns, so that a machine whose speed drifts treats them alike. HTA runs in the
interpreter given with --hta (``pip install HolisticTraceAnalysis==0.5.0`` in an environment of its own), else in this
one if it is installed here. It loads the trace and computes kernel breakdown, launch statistics and idle time; ours
prints ``torchprof analyze --json``, once with and once without findings. Prints ratios, asserts nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

OURS = "import sys; from pytest_torchprof.cli import main; sys.exit(main())"
HTA = """
import logging, os, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_cuda_kernel_launch_stats(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
"""
MILLION = 1_000_000
# Both sides run compiled modules, as whoever installed them does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str]) -> tuple[float, float, int]:
    """Return wall and CPU seconds and the peak memory in bytes of a process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed with exit status {process.returncode}: {' '.join(command[:1] + command[3:])}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def ours(trace: str, *options: str) -> list[str]:
    return [sys.executable, "-c", OURS, "analyze", trace, "--json", *options]


def compare(trace: str, rounds: int, hta: str | None) -> None:
    sides = {"ours": ours(trace), "ours, no findings": ours(trace, "--no-findings")}
    if hta is None:
        print("HolisticTraceAnalysis is not installed here; name another interpreter with --hta")
    else:
        sides["HTA"] = [hta, "-c", HTA, trace]
    found: dict[str, list[tuple[float, float, int]]] = {side: [] for side in sides}
    for command in sides.values():
        run(command)
    for _ in range(rounds):
        for side, command in sides.items():
            found[side].append(run(command))
    print(f"{'':20}{'wall, median':>14}{'wall, best':>14}{'CPU, median':>14}{'peak memory':>14}")
    for side, runs in found.items():
        wall, cpu, peak = zip(*runs, strict=True)
        print(f"{side:20}{median(wall):12.3f} s{min(wall):12.3f} s{median(cpu):12.3f} s{max(peak) / 1e6:11.0f} MB")
    if "HTA" in found:
        for side in ("ours", "ours, no findings"):
            of_medians = median(wall for wall, _, _ in found["HTA"]) / median(wall for wall, _, _ in found[side])
            of_best = min(wall for wall, _, _ in found["HTA"]) / min(wall for wall, _, _ in found[side])
            print(f"HTA / {side}: {of_medians:.1f} (medians), {of_best:.1f} (best)")


def repeated(document: dict[str, Any], times: int) -> dict[str, Any]:
    """Return the trace with its events so many times one after the other, each time with launches of its own."""
    events = document["traceEvents"]
    whole = [event for event in events if event.get("ph") == "X" and isinstance(event.get("ts"), int | float)]
    length = max(event["ts"] + event["dur"] for event in whole) - min(event["ts"] for event in whole) + 1000
    last = max((event.get("args", {}).get("correlation", 0) for event in whole), default=0) + 1
    grown = []
    for number in range(times):
        for event in events:
            copy = dict(event)
            if isinstance(copy.get("ts"), int | float):
                copy["ts"] += number * length
            if "correlation" in copy.get("args", {}):
                copy["args"] = {**copy["args"], "correlation": copy["args"]["correlation"] + number * last}
            grown.append(copy)
    return {**document, "traceEvents": grown}


def document_of(trace: str) -> dict[str, Any]:
    text = Path(trace).read_bytes()
    document = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    return {"traceEvents": document} if isinstance(document, list) else document


def write_grown(trace: str, times: int, file: str) -> None:
    # As torch writes it; json.dumps puts all in one line, which is read as well.
    Path(file).write_text(json.dumps(repeated(document_of(trace), times), indent=1))


def grow(trace: str, count: int) -> None:
    """Print time and memory per event as the trace grows to a million events."""
    print(f"\n{'events':>10}{'wall':>10}{'CPU':>10}{'peak':>10}   per further event: wall, CPU, peak")
    before: tuple[float, float, float, float] | None = None
    for times in sorted({max(1, round(share * MILLION / 4 / count)) for share in (1, 2, 3, 4)}):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "grown.json")
            # In a process of its own: a child's peak memory begins at what its parent has.
            writer = get_context("spawn").Process(target=write_grown, args=(trace, times, file))
            writer.start()
            writer.join()
            runs = [run(ours(file, "--no-findings")) for _ in range(3)]
        events = times * count
        wall, cpu, peak = (min(column) for column in zip(*runs, strict=True))
        further = ""
        if before is not None:
            more = events - before[0]
            slower_us, busier_us = (wall - before[1]) / more * 1e6, (cpu - before[2]) / more * 1e6
            further = f"{slower_us:15.2f} us{busier_us:8.2f} us{(peak - before[3]) / more:8.0f} bytes"
        print(f"{events:10,}{wall:8.2f} s{cpu:8.2f} s{peak / 1e6:7.0f} MB{further}")
        before = (events, wall, cpu, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta", default=sys.executable if find_spec("hta") else None)
    parser.add_argument("--grow", type=int, metavar="EVENTS", help="how many events TRACE has: grow it to a million")
    arguments = parser.parse_args()
    trace = str(Path(arguments.trace).resolve())
    compare(trace, arguments.rounds, arguments.hta)
    if arguments.grow:
        grow(trace, arguments.grow)


if __name__ == "__main__":
    main()

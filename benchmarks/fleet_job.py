"""How long a fleet takes to judge the ranks of one large job together, and how much memory.

Makes a recording for each rank from a recorded one, whose collectives become those of all ranks: the last rank but one
comes late to each, and of the last one there is no recording. `torchprof fleet run` judges the files, and is then
started again in a process of its own, which finds all records and has only the job to judge: that one is measured.
Memory is the most that it held at once.

    python benchmarks/fleet_job.py TRACE [--ranks 64,128,256,512]

What it found is in docs/fleet.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUN = """
import json, resource, sys, time
from pytest_torchprof.cli import main
if __name__ == "__main__":
    begun = time.process_time()
    status = main(["fleet", "run", *sys.argv[1:], "--limit", "max_rank_skew=1s"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"status": status, "cpu_s": time.process_time() - begun, "most_kib": used.ru_maxrss}
    print(json.dumps(told), file=sys.stderr)
"""
LATE = 0.5
"""By which share of a collective's time the slow rank comes late to it."""


def as_rank(document: dict[str, Any], rank: int, ranks: int, *, slow: bool) -> bytes:
    """Return a recording as that of another rank of a job of so many, packed."""
    events = []
    for event in document["traceEvents"]:
        args = event.get("args", {})
        changed = event
        if event.get("name") == "record_param_comms" and args.get("Concrete Inputs"):
            changed = {**event, "args": {**args, "Concrete Inputs": [*args["Concrete Inputs"][:-1], str(ranks)]}}
        elif slow and event.get("cat") == "kernel" and "nccl" in event["name"].lower():
            late = round(event["dur"] * LATE)
            changed = {**event, "ts": event["ts"] + late, "dur": event["dur"] - late}
        events.append(changed)
    told = {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "host_name": f"host{rank // 8}",
        "traceEvents": events,
    }
    return gzip.compress(json.dumps({**document, **told}).encode(), 1)


def main() -> None:
    """Judge jobs of more and more ranks."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("trace", type=Path)
    words.add_argument("--ranks", default="64,128,256,512")
    asked = words.parse_args()
    packed = asked.trace.read_bytes()
    document = json.loads(gzip.decompress(packed) if asked.trace.suffix == ".gz" else packed)
    sys.stdout.write("ranks   CPU time       memory   records    missing   late\n")
    for ranks in map(int, asked.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            traces, out, program = (Path(folder, name) for name in ("traces", "out", "run.py"))
            traces.mkdir()
            program.write_text(RUN)
            for rank in range(ranks - 1):
                content = as_rank(document, rank, ranks, slow=rank == ranks - 2)
                (traces / f"rank{rank}.json.gz").write_bytes(content)
            command = [sys.executable, str(program), str(traces), "--into", str(out)]
            for _ in range(2):
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            told = json.loads(done.stderr.splitlines()[-1])
            (job,) = map(json.loads, (out / "jobs.jsonl").read_text().splitlines())
            size = (out / "records.jsonl").stat().st_size
            used = f"{told['cpu_s']:6.1f} s   {told['most_kib'] / 1024:6.0f} MiB   {size / 1e6:4.0f} MB"
            sys.stdout.write(f"{ranks:5}   {used}   {job.get('missing')}   {job.get('late')}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

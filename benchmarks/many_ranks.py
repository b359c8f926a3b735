"""How long the recordings of a large job take to be read together, and how much memory: `torchprof analyze --ranks`.

Writes a recording for each rank as torch.profiler does with NCCL, where each event of a collective lists all ranks,
and has fresh processes read folders of 64 ranks and more. Memory is the most that such a process held at once.

    python benchmarks/many_ranks.py [--ranks 64,128,256,512] [--steps 5] [--collectives 20] [--kernels 60]

What it found is in docs/ranks.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMPUTE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, 3>(int, float*)"
STEP_US = 100_000
READ = """
import json, resource, sys, time
from pytest_torchprof.cli import main
begun = time.process_time()
status = main(["analyze", sys.argv[1], "--ranks", "--json"])
used = resource.getrusage(resource.RUSAGE_SELF)
told = {"status": status, "cpu_s": time.process_time() - begun, "most_kib": used.ru_maxrss}
print(json.dumps(told), file=sys.stderr)
"""


def events(rank: int, ranks: int, steps: int, collectives: int, kernels: int) -> Iterator[dict[str, Any]]:
    """Yield what one rank records: in each step kernels, and between them all_reduces of all ranks."""
    group = {"Process Group Name": "0", "Process Group Ranks": json.dumps(list(range(ranks))), "Group size": ranks}
    sent = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000}
    correlation = 0

    def event(kind: str, name: str, start: float, dur: float, thread: int, **told: Any) -> dict[str, Any]:
        of_gpu = kind == "kernel"
        place = {"pid": 0 if of_gpu else 1000, "tid": thread}
        return {"ph": "X", "cat": kind, "name": name, **place, "ts": start, "dur": dur, "args": told}

    for step in range(steps):
        begin = step * STEP_US
        yield event("user_annotation", f"ProfilerStep#{step}", begin, STEP_US - 1, 1000)
        for number in range(collectives + kernels):
            correlation += 1
            at = begin + 100 + number * (STEP_US - 1000) / (collectives + kernels)
            is_sent = number < collectives
            told = {**sent, **group, "Seq": step * collectives + number} if is_sent else {}
            yield event("cpu_op", "c10d::allreduce_" if is_sent else "aten::add", at, 30, 1000, **{"Ev Idx": number})
            if is_sent:
                yield event("cpu_op", "record_param_comms", at + 1, 25, 1000, **told)
            yield event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, 1000, correlation=correlation)
            # Each rank comes a little later than the one before.
            start, name, stream = (at + 40 + rank / 100, REDUCE, 20) if is_sent else (at + 40, COMPUTE, 7)
            until = at + 60 + ranks / 100 if is_sent else at + 50
            yield event("kernel", name, start, until - start, stream, correlation=correlation, stream=stream, **told)


def write(folder: Path, ranks: int, steps: int, collectives: int, kernels: int) -> int:
    """Write the recordings of a job; return how many bytes one has, unpacked."""
    size = 0
    listed = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}]
    for rank in range(ranks):
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Test GPU", "numSms": 100}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_config": listed},
            "host_name": f"host{rank // 8}",
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
            "traceEvents": list(events(rank, ranks, steps, collectives, kernels)),
        }
        text = json.dumps(document).encode()
        size = len(text)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, 1))
    return size


def main() -> None:
    """Measure folders of more and more ranks."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--ranks", default="64,128,256,512")
    words.add_argument("--steps", type=int, default=5)
    words.add_argument("--collectives", type=int, default=20)
    words.add_argument("--kernels", type=int, default=60)
    asked = words.parse_args()
    sys.stdout.write("ranks   one recording   CPU time       memory\n")
    for ranks in map(int, asked.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            size = write(Path(folder), ranks, asked.steps, asked.collectives, asked.kernels)
            done = subprocess.run(
                [sys.executable, "-c", READ, folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
            )
        told = json.loads(done.stderr.splitlines()[-1])
        if told["status"]:
            sys.exit(os.fsdecode(done.stderr))
        used = f"{told['cpu_s']:6.1f} s   {told['most_kib'] / 1024:6.0f} MiB"
        sys.stdout.write(f"{ranks:5}   {size / 1e6:10.2f} MB   {used}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Jobs of several ranks: gloo on this machine's CPU, over loopback, recorded by torch.profiler; and NCCL, built."""

from __future__ import annotations

import socket
from contextlib import chdir
from textwrap import dedent
from typing import TYPE_CHECKING

import fresh
from builder import TraceBuilder

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_S = 300
"""A rank that waits for another gives up after 120 s; to start takes the rest."""
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTS = 1_000_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
TENSOR = {"Input Dims": [[[250]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}

_PROGRAM = """
import os, time, torch
from datetime import timedelta
from torch import distributed
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
rank, size = distributed.get_rank(), distributed.get_world_size()
{code}

step()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for number in range({steps}):
        with record_function(f"ProfilerStep#{{number}}"):
            step()
profiler.export_chrome_trace(f"rank{{rank}}.json")
distributed.destroy_process_group()
"""


def environment(ranks: int) -> list[dict[str, str]]:
    """Return what a launcher tells each rank of a job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    return [{**told, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def record(folder: Path, code: str, *, ranks: int = 2, steps: int = 1) -> list[Path]:
    """Run code that defines ``step()`` in each rank; return the recordings of its steps, one for each rank."""
    program = _PROGRAM.format(code=dedent(code), steps=steps)
    with chdir(folder):
        started = [fresh.start_code(program, **told) for told in environment(ranks)]
        done = [rank.done(LONGEST_S) for rank in started]
    assert [one.returncode for one in done] == [0] * ranks, "\n".join(one.stderr for one in done)
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def recording(rank, starts, *, size=2, end=None, host="one", more=(), base=0, **header):
    """Build a rank's recording: all_reduces that start at these times and end together 100 us after the last rank's."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": size, **header}
    builder.metadata["baseTimeNanoseconds"] = base
    if host is not None:
        builder.metadata["host_name"] = host
    told = {"Collective name": "allreduce", "dtype": "Float", "Group size": size, "Process Group Name": "0"}
    told |= {"In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "Process Group Ranks": str(list(range(size)))}
    builder.annotation("ProfilerStep#0", 0, 100_000)
    for number, (start, until) in enumerate(zip(starts, end or [one + 100 for one in starts], strict=True)):
        builder.event("cpu_op", "c10d::allreduce_", start - 60, 20, **{"Ev Idx": number})
        builder.event("cpu_op", "record_param_comms", start - 59, 18, **told, Seq=number)
        builder.kernel(REDUCE, start, until - start, builder.launch(start - 50), stream=20, **told)
    for name in more:
        builder.kernel(name, 50_000, 10, builder.launch(49_000))
    return builder


def rank_of(number, *calls, size=2, host="one", steps=1, base=0, **header):
    """Build a rank's recording of calls: when each kernel starts and ends, its operator, and what NCCL says of it."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": number, "world_size": size, **header}
    builder.metadata["baseTimeNanoseconds"] = base
    if host is not None:
        builder.metadata["host_name"] = host
    for step in range(steps):
        builder.annotation(f"ProfilerStep#{step}", 10_000 * step, 10_000)
    for start, until, operator, told in calls:
        given = {"Concrete Inputs": ["", "", str(told.get("place", "")), "0"]} if "place" in told else {}
        said = {"Collective name": "any", "dtype": "Float", "In msg nelems": 250, "Out msg nelems": 250}
        said |= {"Group size": size, "Process Group Name": "0", "Process Group Ranks": str(list(range(size)))}
        said = {key: value for key, value in {**said, **told}.items() if value is not None and key != "place"}
        builder.event("cpu_op", f"c10d::{operator}", start - 60, 20, **(TENSOR | given))
        builder.event("cpu_op", "record_param_comms", start - 59, 18, **said)
        if until is not None:
            kernel = SEND_RECV if operator in ("send", "recv_") else REDUCE
            builder.kernel(kernel, start, until - start, builder.launch(start - 50), stream=20, **said)
    return builder


def reduce(start, until, **told):
    """Return a call of all_reduce for ``rank_of``."""
    return start, until, "allreduce_", told

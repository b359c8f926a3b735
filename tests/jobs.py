"""Jobs of several ranks on this machine: gloo on the CPU, over loopback, recorded by torch.profiler."""

from __future__ import annotations

import socket
from contextlib import chdir
from textwrap import dedent
from typing import TYPE_CHECKING

import fresh

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_S = 60
"""A rank that waits for another gives up after 20 s; to start takes the rest."""

_PROGRAM = """
import os, time, torch
from datetime import timedelta
from torch import distributed
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
distributed.init_process_group("gloo", timeout=timedelta(seconds=20))
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

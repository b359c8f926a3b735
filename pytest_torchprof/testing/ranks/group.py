"""The process group that a run has for all of its tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torch import distributed

from pytest_torchprof.capture.rank import Rank, this_rank
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.other_ranks import NoJobOfRanks, NowhereToMeet
from pytest_torchprof.reasons.ranks_started import GroupNotStarted
from pytest_torchprof.testing.ranks.place import Ranks
from pytest_torchprof.text import first_line

if TYPE_CHECKING:
    import torch

    from pytest_torchprof.testing.session import RunState


def join(device: torch.device, run: RunState, *, replays: bool) -> Ranks:
    """Return this process's place among the ranks; initialize the process group if nobody has.

    The group is destroyed at the end of the run; in a job that the plugin has started, before the next test.
    Raises TorchprofError where this process is in no job.

    In a replay the ranks have nothing to do with each other. Other code of the test, such as building a sharded model,
    finds a group in which nothing is sent.
    """
    rank, joined = this_rank(), distributed.is_available() and distributed.is_initialized()
    if not joined:
        if replays and not rank.alone:
            _pretend(rank)
        else:
            _refuse_alone(rank)
            _begin(_backend(device), rank)
        run.join_group(distributed.group.WORLD, _leave)
    local = rank.number if rank.local is None else rank.local
    return Ranks(rank=rank.number, world_size=rank.world, local_rank=local, device=device)


def _begin(backend: str, rank: Rank) -> None:
    try:
        distributed.init_process_group(backend, rank=rank.number, world_size=rank.world)
    except RuntimeError as problem:
        why = GroupNotStarted(backend, str(rank), first_line(str(problem)))
        raise TorchprofError.because(why) from problem


def _refuse_alone(rank: Rank) -> None:
    if all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT")):
        return
    raise TorchprofError.because(NoJobOfRanks() if rank.alone else NowhereToMeet(str(rank)))


def _backend(device: torch.device) -> str:
    if device.type == "cuda" and distributed.is_nccl_available():
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def _pretend(rank: Rank) -> None:
    """Initialize torch's process group for tests, whose collectives do nothing (run with torch 2.13.0 and 2.15.0)."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - it registers the backend

    distributed.init_process_group("fake", store=FakeStore(), rank=rank.number, world_size=rank.world)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()

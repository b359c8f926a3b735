"""The other processes of this machine: ranks of the same job, and those that measure on the same GPU.

Where the measured code has collectives, a rank that made one call more than the others would wait for them for ever. So
nothing that a rank finds out by itself may decide how often the code is called.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.codes import Code, coded
from pytest_torchprof.errors import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Iterator


# Rank and number of ranks, as launchers tell them: torchrun, Open MPI, MPICH and Intel MPI, MVAPICH, srun. Slurm's own
# SLURM_NTASKS is that of the allocation, in which a script may well start pytest once; the number of the step's tasks
# is known in the step only.
_TOLD = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# The steps that Slurm makes by itself, for a batch script or an interactive shell, have one task and such a number.
_SLURMS_OWN_STEPS = 0xFFFFFFF0

_IN_NAME = re.compile(r"\.rank(\d+)of(\d+)(?:\.stacks)?\.json(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Rank:
    """One of ``world`` processes, counted from 0."""

    number: int = 0
    world: int = 1

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.world == 1

    @property
    def writes(self) -> bool:
        """Whether this is the one that writes what a run has one of, such as baselines and reports."""
        return self.number == 0

    @property
    def suffix(self) -> str:
        """What the names of its files end with, before ``.json``."""
        return "" if self.alone else f".rank{self.number}of{self.world}"

    def __str__(self) -> str:
        """Return it in words."""
        return f"rank {self.number} of {self.world}"


def this_rank() -> Rank:
    """Return which rank this process is: as torch.distributed has it where that is in use, else as it was launched."""
    # Where nobody has imported torch, nobody has initialized it.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    return next((rank for rank in map(_launched, *zip(*_TOLD, strict=True)) if rank is not None), Rank())


def _launched(rank: str, world: str) -> Rank | None:
    numbers = [os.environ.get(name, "") for name in (rank, world)]
    if not all(text.isascii() and text.isdecimal() for text in numbers):
        return None
    if rank.startswith("SLURM") and _whole_number(os.environ.get("SLURM_STEP_ID")) >= _SLURMS_OWN_STEPS:
        return None
    found = Rank(*map(int, numbers))
    return found if found.number < found.world else None


def _whole_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


def rank_in(name: str) -> Rank:
    """Return whose recording a file of this name is; of a process alone where it does not tell."""
    found = _IN_NAME.search(name)
    return Rank(int(found[1]), int(found[2])) if found else Rank()


# Long enough for many workers' turns, each with its compilation.
_WAIT_S = 3600.0


@contextmanager
def only_measurement(device: str) -> Iterator[None]:
    """Hold the lock of the GPU that `device` is, if it is one; NotMeasured where it cannot be had.

    The operating system frees it when its holder ends, however that ends. Ranks of one job measure together, and wait
    for each other in what they measure: the first one holds the locks, those of all GPUs that it sees, for all of them.
    If each held its own, two jobs could wait for each other for ever.
    """
    rank = this_rank()
    names = live_device(device).lock_names(with_others=not rank.alone) if rank.writes else []
    with ExitStack() as locks:
        # In one order, so that no two processes wait for each other.
        for name in sorted(names):
            locks.enter_context(holding(name))
        yield


@contextmanager
def holding(uuid: str, *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Hold the lock of the GPU with this UUID; a second time in the same thread at once."""
    lock = _lock(lock_file(uuid))
    try:
        lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise NotMeasured(
            coded(
                f"another process has measured on this GPU for {wait_s:.0f} s and holds {lock.lock_file}: "
                "end it, then try again",
                Code.GPU_IN_USE,
            )
        ) from None
    except OSError as error:
        said = f"the lock of this GPU, {lock.lock_file}, cannot be opened: {error.strerror or error}"
        raise NotMeasured(coded(said, Code.GPU_IN_USE)) from None
    try:
        yield
    finally:
        lock.release()


def lock_file(uuid: str) -> Path:
    """Return the file at which all processes that measure on the GPU with this UUID meet."""
    return Path(tempfile.gettempdir(), f"torchprof-{uuid}.lock")


@cache
def _lock(path: Path) -> filelock.FileLock:
    # Every user of the machine meets at it, so every user must be able to open it.
    return filelock.FileLock(path, mode=0o666)

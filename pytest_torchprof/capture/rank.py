"""Which rank of which job this process is, according to torch.distributed or the launcher."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pytest_torchprof.text import MOST_DIGITS


@dataclass(frozen=True, slots=True)
class Rank:
    """One of ``world`` processes, counted from 0; the other fields do not distinguish ranks."""

    number: int = 0
    world: int = 1
    local: int | None = field(default=None, compare=False)
    """Its number among the ranks on this host; None if it is not known."""
    run_id: str | None = field(default=None, compare=False)
    """The launcher's name of this run of the job, the same for all ranks; None if it has none."""

    @property
    def host(self) -> str:
        """The name of this host."""
        return socket.gethostname()

    @property
    def clock(self) -> str | None:
        """The clock of this process: a digest that ranks of a run on one host share; None for a process alone."""
        if self.alone:
            return None
        # Containers of one host have names of their own, and one clock.
        booted = Path("/proc/sys/kernel/random/boot_id")
        host = booted.read_text() if booted.exists() else self.host
        return hashlib.sha256(f"{self.run_id} {host}".encode()).hexdigest()[:16]

    @property
    def alone(self) -> bool:
        """Whether it is the only process."""
        return self.world == 1

    @property
    def writes(self) -> bool:
        """Whether this rank writes the files of which a run has one set, such as baselines and reports."""
        return self.number == 0

    @property
    def suffix(self) -> str:
        """The end of its files' names, before ``.json``."""
        return "" if self.alone else f".rank{self.number}of{self.world}"

    def __str__(self) -> str:
        """Return the rank and how many there are: "rank 1 of 4"."""
        return f"rank {self.number} of {self.world}"


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables in which a launcher tells each process its rank."""

    rank: str
    world: str
    local: str
    run_id: tuple[str, ...] = ()
    """The variables that name the run together."""


# SLURM_NTASKS counts the tasks of the allocation, in which a script may well start pytest once; the number of the
# step's tasks is known only in the step.
_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ("PMIX_NAMESPACE",)),
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    _Launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
# The steps that Slurm makes by itself, for a batch script or an interactive shell, have one task and such a number.
_SLURMS_OWN_STEPS = 0xFFFFFFF0

_ALONE = Rank()
_IN_NAME = re.compile(r"\.rank(\d+)of(\d+)(?:\.stacks)?\.json(?:\.gz)?$")


def this_rank() -> Rank:
    """Return which rank this process is: by torch.distributed if that is in use, else by the launcher."""
    # Every test asks several times, most often in a process that no launcher has started.
    known = [by for by in _LAUNCHERS if by.rank in os.environ]
    launched = next((rank for rank in map(_launched, known) if rank is not None), _ALONE)
    # If torch has not been imported, nobody has initialized it.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return launched
    initialized = Rank(distributed.get_rank(), distributed.get_world_size())
    return launched if launched == initialized else initialized


def rank_in(name: str) -> Rank:
    """Return the rank whose recording a file of this name is; that of a process alone if the name has none."""
    match = _IN_NAME.search(name)
    return Rank(int(match[1]), int(match[2])) if match else Rank()


def _launched(by: _Launcher) -> Rank | None:
    number = _whole_number(os.environ.get(by.rank))
    world = None if number is None else _whole_number(os.environ.get(by.world))
    if number is None or world is None or number >= world:
        return None
    if by.rank.startswith("SLURM") and (_whole_number(os.environ.get("SLURM_STEP_ID")) or 0) >= _SLURMS_OWN_STEPS:
        return None
    named = [value for name in by.run_id if (value := os.environ.get(name)) not in (None, "", "none")]
    return Rank(number, world, _whole_number(os.environ.get(by.local)), ":".join(named) or None)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None

"""Who makes a range on the CPU, by how its name begins."""

from __future__ import annotations

import re
from typing import Final

STEP: Final = "ProfilerStep#"
"""The profiler's steps."""
EACH_STEP: Final = "ProfilerStep*"
"""The row of all of them together, called as in the profiler's table."""
PLUGIN: Final = "torchprof::"
"""This plugin."""
COMPILER: Final = "## "
COMMUNICATION: Final = ("nccl:", "gloo:", "mpi:", "ucc:")
"""Backends of torch.distributed."""
LOADING_DATA: Final = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
"""The fetching of a batch."""
_MARKS: Final = (STEP, PLUGIN)
_NOT_THE_USERS: Final = (*_MARKS, COMPILER, *COMMUNICATION)
_STEP: Final = re.compile(rf"{STEP}\d+")


def step_name(number: int) -> str:
    """Return the name of the profiler's step of a number."""
    return f"{STEP}{number}"


def is_step(name: str) -> bool:
    """Return whether a name is that of one of the profiler's steps."""
    return _STEP.fullmatch(name) is not None


def is_programs(name: str) -> bool:
    """Return whether the program that was recorded made a range of this name: the user, the compiler, a backend."""
    return not name.startswith(_MARKS)


def is_users(name: str) -> bool:
    """Return whether the user made a range of this name."""
    return not name.startswith(_NOT_THE_USERS)

"""A rank's knowledge of itself; in a module apart from the process group's, which needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Ranks:
    """The job that a test runs in, and which of its ranks this process is."""

    rank: int
    """From 0."""
    world_size: int
    local_rank: int
    """Its number among the ranks on this host."""
    device: torch.device
    """The device on which this rank is measured: with GPUs, one of its own."""

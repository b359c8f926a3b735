"""The recordings of a job's ranks, which the commands read one after the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import part_of
from pytest_torchprof.cli import UsageError
from pytest_torchprof.kernels.own_kernels import NOTHING_DECLARED
from pytest_torchprof.profiles import load_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_torchprof.analysis.ranks import Job, RankPart
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.profiles import Profile


def job_in(
    folder: str,
    device: str | None,
    look: Callable[[Profile, RankPart], None] | None = None,
    *,
    own_kernels: OwnKernels = NOTHING_DECLARED,
) -> Job:
    """Return the job whose recordings are in the folder; ``look`` is called with each while it is in memory."""
    return joined(_parts(folder, device, look, own_kernels))


def _parts(
    folder: str, device: str | None, look: Callable[[Profile, RankPart], None] | None, own_kernels: OwnKernels
) -> Iterator[RankPart]:
    if not os.path.isdir(folder):  # noqa: PTH112 - see recording
        from pytest_torchprof.reasons.files_asked import RanksOfNoFolder  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(RanksOfNoFolder(folder))
    for read in load_each(folder, device=device):
        profile = read.with_own_kernels(own_kernels)
        part = part_of(profile)
        if look is not None:
            look(profile, part)
        # The next recording needs as much memory again.
        del read, profile
        yield part

"""What the ranks of a job tell each other of what they recorded, so that each of them can judge it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import from_plain, part_of, plain, rank_told
from pytest_torchprof.analysis.ranks import InJob
from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.profiles import Profile


def with_other_recordings(profile: Profile, exchange: Callable[[Any], list[Any]]) -> Profile:
    """Return the profile as that of one of the ranks, each of which calls this; alone where one of them tells nothing.

    ``exchange`` returns the JSON values that all of them have given to it.
    """
    own = part_of(profile) if rank_told(profile.trace) is not None else None
    told = exchange(None if own is None else plain(own))
    if own is None or len(told) < 2 or None in told:
        return profile
    try:
        job = joined(map(from_plain, told))
    except TorchprofError:
        # What ranks of one run cannot be held against each other by is told by the limits that ask for it.
        return profile
    return profile.with_ranks(InJob(job=job, rank=own.rank))

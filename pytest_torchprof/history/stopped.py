"""What is measured no more while the branch goes on: a GPU model on which nothing runs is a gap, and no green gate."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.digest import digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.runs import BranchRuns


class StoppedHardware(Struct, frozen=True, kw_only=True):
    """A GPU, or a CPU, on which the newest runs of a project have measured nothing."""

    folder: str
    """The project's, as in series."""
    hardware: str
    until: str
    """The last commit that was measured on it."""
    date: datetime
    """When that was committed."""
    runs: int
    """How many of the project's runs came after it."""

    @property
    def id(self) -> str:
        """What it is accepted under: another one where it is measured again, and stops again."""
        return digest_of(["stopped", self.folder, self.hardware, self.until])

    def accepted_because(self, notes: Notes) -> str | None:
        """Return why it is accepted; None if it is not."""
        return notes.accepted.get(self.id)


def stopped_hardware(
    branch: BranchRuns, folder: str, hardware: str, on: Sequence[int], of_folder: Sequence[int]
) -> StoppedHardware | None:
    """Return what hardware is no longer measured on, whose runs stand there; None as long as it goes on.

    ``of_folder``: where the runs of its project stand. It has stopped if it lacks more commits than ever between two of
    its own. What measured one commit alone has no pace, and is never missed.
    """
    rank = {place: at for at, place in enumerate(dict.fromkeys(branch.places[index] for index in of_folder))}
    turns = [*dict.fromkeys(rank[branch.places[index]] for index in on)]
    if not lacks_more_than_ever(turns, len(rank)):
        return None
    last = branch.runs[on[-1]].commit
    if last is None:
        return None
    later = sum(branch.places[index] > branch.places[on[-1]] for index in of_folder)
    return StoppedHardware(folder=folder, hardware=hardware, until=last.sha, date=last.date, runs=later)


def lacks_more_than_ever(turns: Sequence[int], count: int) -> bool:
    """Whether more commits are missing at the end of so many than ever between two of those at which it was there."""
    pauses = [later - earlier for earlier, later in pairwise(turns)]
    return bool(pauses) and count - 1 - turns[-1] > max(pauses)

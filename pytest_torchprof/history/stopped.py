"""The hardware that is measured no more while the branch goes on: a GPU model without runs is a gap, no green gate.

What somebody has at home is not expected of anybody, and machines that CI services lend have one CPU or another.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.history.digest import digest_of
from pytest_torchprof.history.pauses import A_DAY, longest_usual
from pytest_torchprof.history.record import Event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.history.record import RunHead
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.trace.metadata import Environment


class StoppedHardware(Struct, frozen=True, kw_only=True):
    """A GPU model, or all CPUs, on which the newest runs of a project have measured nothing."""

    folder: str
    """The project's, as in series."""
    hardware: str | None
    """The GPU's product name; None for CPUs, whichever they are."""
    until: str
    """The last commit that was measured on it."""
    date: datetime
    """When that was committed."""
    missed_from: str
    """The commit at which it was away for longer than is usual."""
    missed_date: datetime
    """When that was committed."""
    runs: int
    """How many of the project's runs came after the last commit that was measured on it."""

    @property
    def id(self) -> str:
        """The id to accept it under: another one where it is measured again, and stops again."""
        return digest_of(["stopped", self.folder, self.hardware, self.until])


def folder_of(run: RunHead) -> str:
    """Return where the project of a run lies in its repository."""
    return "" if run.commit is None else run.commit.folder


def hardware_of(environment: Environment) -> str:
    """Return the GPU of an environment, or its CPU."""
    return environment.gpu or environment.cpu or ""


def stopped_hardware(branch: BranchRuns) -> Mapping[tuple[str, str], StoppedHardware]:
    """Return the hardware no longer measured on, by the project's folder and the hardware's name in series."""
    of_folder: dict[str, list[int]] = {}
    on: dict[tuple[str, str | None], list[int]] = {}
    names: dict[tuple[str, str], str | None] = {}
    for index, run in enumerate(branch.runs):
        folder = folder_of(run)
        of_folder.setdefault(folder, []).append(index)
        names |= {(folder, hardware_of(environment)): environment.gpu for environment in run.environments}
        for gpu in {environment.gpu for environment in run.environments}:
            on.setdefault((folder, gpu), []).append(index)
    stopped = {own: _stopped(branch, *own, indices, of_folder[own[0]]) for own, indices in on.items()}
    by_name = {(folder, name): stopped[folder, gpu] for (folder, name), gpu in names.items()}
    return {own: loss for own, loss in by_name.items() if loss is not None}


def _stopped(
    branch: BranchRuns, folder: str, hardware: str | None, on: Sequence[int], of_folder: Sequence[int]
) -> StoppedHardware | None:
    """Return that nothing is measured any more on a hardware whose runs stand there; None as long as it goes on.

    ``of_folder``: where the runs of its project stand. It has stopped if it lacks more commits and more time than in
    its pauses of late: a nightly GPU lacks many commits on a busy day, and what runs for each commit waits for the next
    one. What measured one commit alone has no pace, and is never missed.
    """
    rank = {commit: at for at, commit in enumerate(dict.fromkeys(branch.commit_of[index] for index in of_folder))}
    turns: dict[int, datetime] = {}
    for index in on:
        if branch.runs[index].event is not Event.LOCAL:
            turns.setdefault(rank[branch.commit_of[index]], branch.runs[index].began)
    if len(turns) < 2:
        return None
    commits = longest_usual([later - earlier for earlier, later in pairwise(turns)], 0)
    time = longest_usual([later - earlier for earlier, later in pairwise(sorted(turns.values()))], A_DAY)
    newest = branch.commit_of[on[-1]]
    last = max(branch.runs[index].began for index in on if branch.commit_of[index] == newest)
    missed = next(
        (
            branch.runs[index].commit
            for index in of_folder
            if rank[branch.commit_of[index]] - rank[newest] > commits and branch.runs[index].began - last > time
        ),
        None,
    )
    until = branch.runs[on[-1]].commit
    if missed is None or until is None:
        return None
    return StoppedHardware(
        folder=folder,
        hardware=hardware,
        until=until.sha,
        date=until.date,
        missed_from=missed.sha,
        missed_date=missed.date,
        runs=sum(branch.commit_of[index] > newest for index in of_folder),
    )

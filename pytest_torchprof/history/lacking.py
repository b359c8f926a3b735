"""A series that the newest run was to measure and did not: nobody knows what the newest code launches there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from pytest_torchprof.history.digest import digest_of
from pytest_torchprof.history.stopped import folder_of

if TYPE_CHECKING:
    from pytest_torchprof.history.points import Point, SeriesKey
    from pytest_torchprof.history.runs import BranchRuns


class LackingSeries(Struct, frozen=True, kw_only=True):
    """A series without a point of the newest run that was to measure it."""

    key: SeriesKey
    last: Point | None
    """The newest that it has; None if it was never judged."""

    @property
    def id(self) -> str:
        """The id to accept it under: another one where it is measured again, and lacks again."""
        return digest_of(["lacking", asdict(self.key), None if self.last is None else self.last.commit])


class ProjectBehind(Struct, frozen=True, kw_only=True):
    """One of several projects of a repository, which the newest measured commit was not measured of."""

    folder: str
    """Where it lies in the repository."""
    last: str
    """The newest commit that was measured of it."""


def projects_behind(branch: BranchRuns) -> list[ProjectBehind]:
    """Return the projects of which the newest measured commit was not measured, by their folders.

    CI may have lost them, or may measure a project only where a commit has changed it: both look alike.
    """
    last = {folder_of(run): run.commit.sha for run in branch.runs if run.commit is not None}
    newest = branch.runs[-1].commit if branch.runs else None
    return [
        ProjectBehind(folder=folder, last=sha)
        for folder, sha in sorted(last.items())
        if newest is not None and sha != newest.sha
    ]

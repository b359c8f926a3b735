"""Where the list of a run comes from: when it was made, and which commit was checked out there."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof.fleet.names import fixed_part
from pytest_torchprof.history.ci_job import ci_job
from pytest_torchprof.history.commit_record import commit_record
from pytest_torchprof.history.record import CiJob, CommitRecord, Event  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable


class ListOrigin(Struct, frozen=True, kw_only=True):
    """When and where a list was made: what a history has to know of the run."""

    began: datetime
    event: Event
    ci: CiJob | None = None
    commit: CommitRecord | None = None
    """The commit of the working tree in which the command was called; None outside one."""


def origin_here(into: Path, sources: Iterable[str]) -> ListOrigin:
    """Return the origin of a list that is made now, from the current folder.

    The recordings and the folder of the run may lie in the working tree: that they are new is no change of the code.
    """
    event, job = ci_job(os.environ)
    here = Path.cwd()
    apart = [into, *(Path(fixed_part(source)) for source in sources if "://" not in source)]
    below = [path for path in apart if not here.is_relative_to(path.resolve())]
    commit = commit_record(here, os.environ, apart=below)
    return ListOrigin(began=datetime.now(UTC), event=event, ci=job, commit=commit)

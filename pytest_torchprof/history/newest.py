"""The runs after the newest measured commit of a branch, and whether the CI job that asks was to measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.history.ci_job import ci_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.history.runs import BranchRuns


def newest_was_due(branch: BranchRuns, head: str | None, variables: Mapping[str, str]) -> bool:
    """Whether a job of CI asks that has checked out the newest commit, which no run has measured, though it was to.

    It was to where the same event of the same CI service has left the newest run of CI: a nightly run and one of
    another service measure at another time, and whoever asks from a clone of their own is ahead of CI.

    ``head``: the commit that is checked out. ``variables``: the environment variables of whoever asks.
    """
    event, job = ci_job(variables)
    if job is None or not branch.ahead or branch.ahead[-1] != head:
        return False
    newest = next((run for run in reversed(branch.runs) if run.ci is not None), None)
    return newest is not None and newest.ci is not None and (newest.event, newest.ci.provider) == (event, job.provider)

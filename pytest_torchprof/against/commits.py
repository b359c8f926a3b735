"""The runs of a test at one commit after another, whose measurements a search asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_torchprof.against.base import log_end, not_started, obtain_results
from pytest_torchprof.against.measured import read_measured
from pytest_torchprof.against.outcomes import write_outcomes
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_torchprof.against.measured import CommitMeasurements
    from pytest_torchprof.against.request import Request


class Commits(Protocol):
    """Measures the tests that are asked for at commits."""

    def measure(self, sha: str, *, again: bool = False) -> CommitMeasurements:
        """Return the measurements at a commit; ``again``: of another run there, after the first."""

    def output(self, sha: str) -> Sequence[str]:
        """Return the last lines that pytest wrote at a commit that was measured."""


@dataclass(frozen=True, slots=True)
class CommitRuns:
    """Runs pytest at each commit, in a folder with its files."""

    request: Request

    def measure(self, sha: str, *, again: bool = False) -> CommitMeasurements:
        """Run the tests at a commit, and return their measurements; nothing where its files cannot be had."""
        results = self.request.results / (f"{sha}-again" if again else sha)
        results.mkdir()
        reference = Reference(ref=sha, sha=sha, dirty=False)
        is_fresh = again or self.request.is_fresh
        try:
            obtain_results(replace(self.request, reference=reference, results=results, is_fresh=is_fresh))
        except TorchprofError as problem:  # Its files are missing, which does not concern other commits.
            write_outcomes(results, not_started(problem))
        return read_measured(results)

    def output(self, sha: str) -> Sequence[str]:
        """Return the end of the log of the run there."""
        return log_end(self.request.results / sha)

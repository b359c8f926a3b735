"""The measurements of records, for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.history.results import figures_in
from pytest_torchprof.report.exported import exported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.history.notes import Notes
    from pytest_torchprof.history.record import RunRecord
    from pytest_torchprof.report import RunResults
    from pytest_torchprof.report.exported import Exported


def exported_figures(records: Iterable[RunRecord], notes: Notes) -> Iterator[Exported]:
    """Yield the measurements of records, those of each rank, under the names that their tests have now."""
    return (row for record in records for row in exported(with_names_now(figures_in(record), notes)))


def with_names_now(run: RunResults, notes: Notes) -> RunResults:
    """Return a run in which tests have their names of now; those that it measured under both keep theirs."""
    tests = {result.nodeid for result in run.results}
    now = {test: later for test in tests if (later := notes.name_now(test)) not in tests}
    named = (replace(result, nodeid=now.get(result.nodeid, result.nodeid)) for result in run.results)
    return replace(run, results=tuple(named)) if now else run

"""``torchprof history export``: the measurements or the report of runs that are past, in the forms of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from pytest_torchprof.cli import UsageError
from pytest_torchprof.cli.history_read import believed, read_branch, run_named, store_that_is_there
from pytest_torchprof.history.notes import notes_by_subject
from pytest_torchprof.history.results import exported_figures, figures_in, results_in, with_names_now
from pytest_torchprof.history.store import records_of
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_asked import NoReportKept, NoSuchForm, OnlyStoppedRuns, RecordUnread
from pytest_torchprof.report import reporters
from pytest_torchprof.report.history import OF_MANY_RUNS, OF_ONE_RUN

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from pytest_torchprof.history.record import RunRecord
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.store import Store
    from pytest_torchprof.report import RunResults

_TABLES: Final = {**OF_MANY_RUNS, **OF_ONE_RUN}


def export(arguments: Namespace) -> Iterable[str]:
    """Return the parts of the file that is asked for; TorchprofError if it cannot be made."""
    if arguments.form not in _TABLES and arguments.form not in reporters():
        raise UsageError.because(NoSuchForm(arguments.form, tuple(reporters())))
    store = store_that_is_there(arguments.store)
    if arguments.run is None and arguments.form in OF_MANY_RUNS:
        notes = notes_by_subject(believed(store.notes()))
        rows = exported_figures(believed(records_of(store)), notes)
        return OF_MANY_RUNS[arguments.form](rows)
    uuid = _newest(read_branch(arguments)[0]) if arguments.run is None else run_named(store, arguments.run)
    for record in believed(records_of(store, {uuid})):
        return [reporters()[arguments.form](_results(record, arguments.form, store))]
    raise TorchprofError.because(RecordUnread(store.shown, uuid))


def _results(record: RunRecord, form: str, store: Store) -> RunResults:
    """Return the results of a run for a form; in a table tests have the names that they have now."""
    has_figures_alone = record.reported is UNSET
    if form in _TABLES:
        notes = notes_by_subject(believed(store.notes()))
        return with_names_now(figures_in(record) if has_figures_alone else results_in(record), notes)
    if has_figures_alone:
        raise TorchprofError.because(NoReportKept(store.shown, record.uuid, record.version, tuple(_TABLES)))
    return results_in(record)


def _newest(branch: BranchRuns) -> str:
    complete = [run for run in branch.runs if run.complete]
    if not complete:
        raise TorchprofError.because(OnlyStoppedRuns(branch.branch))
    return complete[-1].uuid

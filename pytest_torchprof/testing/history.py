"""The record of a run: made at its end, and added to its history."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import pytest

from pytest_torchprof.history.belonging import HistoryProject
from pytest_torchprof.history.ci_job import ci_job
from pytest_torchprof.history.commit_record import commit_record
from pytest_torchprof.history.folder import OUTBOX, HistoryFolder
from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.record import AllTests, BadRecord, RunRecord, as_written
from pytest_torchprof.history.results import with_results
from pytest_torchprof.history.run_record import environments_of, measurements_of, structures_of, varying_of
from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.reasons.stores import StoreSilent
from pytest_torchprof.reasons.whole_runs import RecordNotKept
from pytest_torchprof.recording.files import hide
from pytest_torchprof.system.waiting import within
from pytest_torchprof.testing.figures import figures_folder
from pytest_torchprof.testing.records_left import (
    RecordLost,
    RecordNotTaken,
    RecordSeenByGit,
    RecordWaits,
    SentBy,
    Whereabouts,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_torchprof.history.store import Store
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.session import RunState

PATIENCE_S: Final = 60
"""How long the end of a run waits for a store: libraries keep trying for minutes where a server does not answer."""


def leave_record(state: RunState, run: RunRecord) -> None:
    """Add the record of a run to its history, if it has one, and to the folder of what it keeps.

    If it cannot be written it waits in the outbox, and the end of the run says so.
    """
    where, figures = state.options.history, figures_folder(state.options)
    store = None if where is None else store_at(where)
    if store is None and figures is None:
        return
    record = as_written(run)
    if figures is not None:
        try:
            figures.add(record)
        except StoreUnusable as problem:
            state.note_problem(RecordNotKept(figures.shown, problem.cause))
    if where is None or store is None:
        return
    try:
        within(PATIENCE_S, lambda: _add(store, record))
    except TimeoutError:
        _leave_behind(state, record, where.shown, StoreSilent(PATIENCE_S), SentBy.PUSH)
    except StoreUnusable as problem:
        _leave_behind(state, record, where.shown, problem.cause, SentBy.PUSH)
    except BadRecord as problem:
        sent_by = SentBy.PUSH_ANYWAY if problem.taken_anyway else SentBy.PUSH_TO_ITS_OWN
        _leave_behind(state, record, where.shown, problem.reason, sent_by)


def _add(store: Store, record: RunRecord) -> None:
    HistoryProject(store).refuse_other(record)
    store.add(record)


def _leave_behind(state: RunState, record: RunRecord, history: str, why: Reason, sent_by: SentBy) -> None:
    """Put a record that its history has not taken where it waits, and take note of both."""
    state.note_left_behind(RecordNotTaken(history, why, _kept_back(state, record, sent_by)))


def _kept_back(state: RunState, record: RunRecord, sent_by: SentBy) -> Whereabouts:
    outbox = state.options.rootdir / OUTBOX
    try:
        HistoryFolder(outbox).add(record)
        hide(outbox.parent)
    except StoreUnusable as problem:
        return RecordLost(OUTBOX, problem.cause)
    except OSError as error:
        return RecordSeenByGit(OUTBOX, str(error.strerror or error))
    return RecordWaits(OUTBOX, sent_by)


def run_record(state: RunState, session: pytest.Session) -> RunRecord:
    """Return the record of a run whose tests have all run, or that was stopped."""
    results = state.recorded
    environments = environments_of(results)
    event, job = ci_job(os.environ)
    varying, launched = varying_of(results)
    stopped = session.shouldfail or session.shouldstop
    record = RunRecord(
        uuid=uuid.uuid4().hex,
        version=version("pytest-torchprof"),
        began=state.began,
        # A clock may be set back meanwhile.
        ended=max(datetime.now(UTC), state.began),
        complete=not stopped and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        all_tests=_all_tests(state),
        suite=state.options.suite is not None,
        event=event,
        ci=job,
        commit=commit_record(state.options.rootdir, os.environ, apart=_own_files(state.options)),
        machine=machine_of(environments),
        environments=environments,
        measurements=measurements_of(results, environments),
        structures=structures_of(results),
        varying=varying,
        launched=launched,
    )
    return with_results(record, state.run_results)


def _all_tests(state: RunState) -> AllTests | None:
    if state.selection is None:
        return None
    measured = {result.nodeid for result in state.recorded}
    unmeasured = tuple(test for test in state.selection.tests if test not in measured)
    return AllTests(below=state.selection.below, unmeasured=unmeasured)


def _own_files(options: RunOptions) -> tuple[Path, ...]:
    """Return the files of the history and of what is kept, whose being new is no change of the code."""
    figures = figures_folder(options)
    history = () if options.history is None else store_at(options.history).files
    return history if figures is None else (*history, *figures.files)

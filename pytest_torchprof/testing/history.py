"""The record that a run adds to its history at its end."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.history.ci_job import ci_job
from pytest_torchprof.history.commit_record import commit_record
from pytest_torchprof.history.folder import OUTBOX, HistoryFolder
from pytest_torchprof.history.record import BadRecord, RunRecord
from pytest_torchprof.history.run_record import environments_of, machine_of, measurements_of, structures_of, varying_of
from pytest_torchprof.recording.files import hide

if TYPE_CHECKING:
    from pytest_torchprof.testing.session import RunState


def leave_record(state: RunState, session: pytest.Session) -> None:
    """Add the record of a run to its history, if it has one.

    Where it cannot be written it waits in the outbox, which the end of the run says.
    """
    if (folder := state.options.history) is None:
        return
    record = _record(state, session)
    try:
        HistoryFolder(folder).add(record)
    except (OSError, BadRecord) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        state.note_left_behind(f"--torchprof-history={folder}: cannot be written: {why}. {_sent_later(state, record)}")


def _sent_later(state: RunState, record: RunRecord) -> str:
    outbox = state.options.rootdir / OUTBOX
    try:
        HistoryFolder(outbox).add(record)
        hide(outbox.parent)
    except OSError as error:
        return f"Nor can {OUTBOX}: {error.strerror or error}. The record of this run is lost"
    return f"The record of this run waits in {OUTBOX}: torchprof history push DIR sends it"


def _record(state: RunState, session: pytest.Session) -> RunRecord:
    results = tuple(state.results.values())
    environments = environments_of(results)
    event, job = ci_job(os.environ)
    stopped = session.shouldfail or session.shouldstop
    return RunRecord(
        uuid=uuid.uuid4().hex,
        version=version("pytest-torchprof"),
        began=state.began,
        ended=datetime.now(UTC),
        complete=not stopped and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        event=event,
        ci=job,
        commit=commit_record(state.options.rootdir, os.environ, apart=state.options.history),
        machine=machine_of(environments),
        environments=environments,
        measurements=measurements_of(results, environments),
        structures=structures_of(results),
        varying=varying_of(results),
    )

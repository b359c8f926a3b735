"""The reading of histories for commands: records and notes; those not to be believed are named."""

from __future__ import annotations

import os
import sys
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from pytest_torchprof.cli import UsageError
from pytest_torchprof.history.ci_job import ci_job
from pytest_torchprof.history.notes import notes_by_subject
from pytest_torchprof.history.reading import RunReader
from pytest_torchprof.history.reading_beside import read_many
from pytest_torchprof.history.record import BadRecord
from pytest_torchprof.history.runs import branch_runs
from pytest_torchprof.history.series import series_of
from pytest_torchprof.history.store import heads_of
from pytest_torchprof.history.stores import database_at, has_tables, store_at
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.history_asked import NoDate, NoHistory, NoSuchRun, NoSuchTest, SeveralRuns, TooFewDigits
from pytest_torchprof.text import more_text, printable
from pytest_torchprof.text.suggestions import choices_like

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.against.git import Repository
    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.record import RunHead
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.sql.of_tests import TestTables
    from pytest_torchprof.history.store import Store
    from pytest_torchprof.history.where import Where

Read = TypeVar("Read")
_MOST_SHOWN: Final = 5
"""How many records that cannot be believed are named beside an answer."""
_SHORTEST: Final = 4
"""How many digits name a run at least."""


def add_choice_of_runs(parser: Parser) -> None:
    """Declare which runs are points of the branch that is asked for."""
    parser.add_argument("--branch", metavar="NAME", help="the branch (main, else master, else the only one)")
    parser.add_argument(
        "--git", type=Path, metavar="DIR", help="a clone that knows the order of commits, where the records do not"
    )


def day(text: str) -> datetime:
    """Return the beginning of a day that is written as 2026-05-01."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise UsageError.because(NoDate(text)) from None


def read_branch(arguments: Namespace) -> tuple[BranchRuns, list[Series]]:
    """Return the runs of the branch that is asked for, and their series; refused records are named."""
    store = store_that_is_there(arguments.store)
    repository = _repository(arguments)
    reader = RunReader()
    refused: list[BadRecord] = []
    runs = believed(read_many(reader, store.packed()), refused)
    notes = notes_by_subject(believed(store.notes()))
    branch = _due(branch_runs(runs, reader.kernels, arguments.branch, repository, notes), repository)
    return replace(branch, refused=len(refused)), series_of(branch)


def _repository(arguments: Namespace) -> Repository | None:
    """Return the clone that is to order the commits."""
    if arguments.git is None:
        return None
    from pytest_torchprof.against.git import Repository  # noqa: PLC0415 - slow to import, and asked for now and then

    return Repository.around(arguments.git)


def _due(branch: BranchRuns, repository: Repository | None) -> BranchRuns:
    """Return a branch that says whether whoever asks was to measure its newest commit."""
    if repository is None or not branch.ahead:
        return branch
    return replace(branch, newest_was_due=_newest_was_due(branch, repository.head, os.environ))


def _newest_was_due(branch: BranchRuns, head: str | None, variables: Mapping[str, str]) -> bool:
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


def read_test(arguments: Namespace) -> tuple[BranchRuns, list[Series]]:
    """Return the branch and its series of the test that is asked for, with each label and on each hardware.

    Raises TorchprofError if there is none.
    """
    if has_tables(arguments.store):
        store_that_is_there(arguments.store)
        with database_at(arguments.store).asked() as tables:
            if (read := _asked(arguments, tables)) is not None:
                return read
    branch, all_series = read_branch(arguments)
    if not (own := _series_of_test(branch, all_series, arguments.test)):
        raise no_such_test(arguments.test, {series.key.test for series in all_series})
    return branch, own


def _asked(arguments: Namespace, tables: TestTables) -> tuple[BranchRuns, list[Series]] | None:
    """Return the branch and the series of the test from the tables; None where all records are to be read.

    That is so for a test that nobody has.
    """
    notes = notes_by_subject(believed(store_at(arguments.store).notes()))
    repository = _repository(arguments)
    ids = tables.tests()
    now, asked = {name: notes.name_now(name) for name in ids}, notes.name_now(arguments.test)
    # A name may have a label and a rank behind the test's.
    names = {name for name in ids if now[name] == asked or arguments.test.startswith(name)}
    families = {now[name] for name in names}
    runs = tables.runs_of({name: ids[name] for name in ids if now[name] in families})
    if runs is None or not names:
        return None
    branch = _due(branch_runs(runs.runs, runs.kernels, arguments.branch, repository, notes), repository)
    own = _series_of_test(branch, series_of(branch), arguments.test)
    return (branch, own) if own else None


def _series_of_test(branch: BranchRuns, all_series: Sequence[Series], test: str) -> list[Series]:
    """Return the series of one test."""
    name = branch.notes.name_now(test)
    return [series for series in all_series if series.key.test == name or series.key.name == test]


def no_such_test(test: str, known: Collection[str]) -> TorchprofError:
    """Return the error for a name that no test of a history has, with the nearest one, or some where none is near."""
    return TorchprofError.because(NoSuchTest(test, *choices_like(test, known)))


def store_that_is_there(where: Where) -> Store:
    """Return a store that somebody has made; TorchprofError for another."""
    store = store_at(where)
    if not store.is_there:
        raise TorchprofError.because(NoHistory(store.shown))
    return store


def believed(records: Iterable[Read | BadRecord], refused: list[BadRecord] | None = None) -> Iterator[Read]:
    """Yield the records that can be believed; name the others on standard error, and add them to ``refused``."""
    bad = [] if refused is None else refused
    for record in records:
        if isinstance(record, BadRecord):
            bad.append(record)
        else:
            yield record
    for problem in bad[:_MOST_SHOWN]:
        sys.stderr.write(f"torchprof history: left out: {printable(str(problem))}\n")
    if len(bad) > _MOST_SHOWN:
        more = more_text(len(bad) - _MOST_SHOWN)
        sys.stderr.write(f"torchprof history: left out: {more}; torchprof history verify names them all\n")


def run_named(store: Store, beginning: str) -> str:
    """Return the id of the run whose id or commit begins so; TorchprofError for none and for several."""
    if len(beginning) < _SHORTEST:
        raise TorchprofError.because(TooFewDigits(beginning, _SHORTEST, of_run=True))
    heads = [head for head in believed(heads_of(store)) if any(id_.startswith(beginning.lower()) for id_ in _ids(head))]
    if not heads:
        raise TorchprofError.because(NoSuchRun(store.shown, beginning))
    if len(heads) > 1:
        ids = tuple(head.uuid for head in sorted(heads, key=lambda head: head.began))
        raise TorchprofError.because(SeveralRuns(beginning, ids))
    return heads[0].uuid


def _ids(head: RunHead) -> tuple[str, ...]:
    return (head.uuid,) if head.commit is None else (head.uuid, head.commit.sha)

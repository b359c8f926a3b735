"""What the commands of a history read: its records and notes, of which those not to be believed are named."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_torchprof.against.git import Repository
from pytest_torchprof.cli import UsageError
from pytest_torchprof.history.notes import notes_by_subject
from pytest_torchprof.history.reading import RunReader
from pytest_torchprof.history.record import BadRecord
from pytest_torchprof.history.runs import branch_runs
from pytest_torchprof.history.series import series_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.text import and_more, printable, quoted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.series import Series
    from pytest_torchprof.history.store import Store
    from pytest_torchprof.history.where import Where

Read = TypeVar("Read")
_MOST_SHOWN: Final = 5
"""How many records that cannot be believed are named beside an answer."""


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
        raise UsageError(f"{text!r} is no date; expected one such as 2026-05-01") from None


def read_branch(arguments: Namespace) -> tuple[BranchRuns, list[Series]]:
    """Return the runs of the branch that is asked for, and their series; what is refused is named."""
    store = store_that_is_there(arguments.store)
    repository = None if arguments.git is None else Repository.around(arguments.git)
    reader = RunReader()
    runs = believed(reader.read(store.packed()))
    notes = notes_by_subject(believed(store.notes()))
    branch = branch_runs(runs, reader.kernels, arguments.branch, repository, notes)
    return branch, series_of(branch)


def store_that_is_there(where: Where) -> Store:
    """Return a store that somebody has made; TorchprofError for another."""
    store = store_at(where)
    if not store.is_there:
        problem = f"{store.shown}: there is no history; pytest --torchprof-history={quoted(store.shown)} makes it"
        raise TorchprofError(problem, Code.NO_HISTORY)
    return store


def believed(records: Iterable[Read | BadRecord]) -> Iterator[Read]:
    """Yield what can be believed, and name on standard error what cannot."""
    bad: list[BadRecord] = []
    for record in records:
        if isinstance(record, BadRecord):
            bad.append(record)
        else:
            yield record
    for problem in bad[:_MOST_SHOWN]:
        sys.stderr.write(f"torchprof history: left out: {printable(str(problem))}\n")
    if len(bad) > _MOST_SHOWN:
        more = and_more(len(bad) - _MOST_SHOWN).strip()
        sys.stderr.write(f"torchprof history: left out: {more}; torchprof history verify names them all\n")

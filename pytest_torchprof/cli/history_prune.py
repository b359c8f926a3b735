"""``torchprof history prune``: old records, or a single one, leave a history, each whole."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_torchprof.cli import UsageError
from pytest_torchprof.cli.history_read import believed, day, run_named, store_that_is_there
from pytest_torchprof.history.reading import RunReader
from pytest_torchprof.history.reading_beside import read_many
from pytest_torchprof.reasons.command_line import Needed, NotGiven, OptionTakes, WrongOption
from pytest_torchprof.text import counted
from pytest_torchprof.text.tables import on_screen

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from datetime import datetime

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.store import Store


_ID: Final = re.compile("[0-9a-f]{32}")
_CHOICES: Final = 3
"""In how many ways it is said which records go."""


class _Dated(Struct, frozen=True, order=True):
    began: datetime
    uuid: str


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the command."""
    prune = add("prune", _prune, "remove old records, or one; without --yes it says which it would remove")
    prune.add_argument("--before", type=day, metavar="DATE", help="records of runs before this day: 2026-05-01")
    prune.add_argument("--keep", type=_number, metavar="N", help="all records but those of the newest N runs")
    prune.add_argument(
        "--run", metavar="RUN", help="the record of this run alone: its id or its commit, or their beginning"
    )
    prune.add_argument("--yes", action="store_true", help="remove them")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise UsageError.because(WrongOption("--keep", text, OptionTakes.RUNS_KEPT))
    return int(text)


def _id_of(store: Store, beginning: str) -> str:
    """Return the id of the record that is meant: of one that cannot be read its store knows the id alone."""
    if _ID.fullmatch(beginning):
        with closing(store.packed({beginning}, most_bytes=1)) as kept:
            if next(kept, None) is not None:
                return beginning
    return run_named(store, beginning)


def _prune(arguments: Namespace) -> int:
    if [arguments.before, arguments.keep, arguments.run].count(None) != _CHOICES - 1:
        raise UsageError.because(NotGiven(Needed.RUNS_TO_PRUNE))
    store = store_that_is_there(arguments.store)
    runs = sorted(_Dated(run.began, run.uuid) for run in believed(read_many(RunReader(), store.packed())))
    if arguments.before is not None:
        old = [run for run in runs if run.began < arguments.before]
    elif arguments.run is not None:
        uuid = _id_of(store, arguments.run)
        if (damaged := all(run.uuid != uuid for run in runs)) and arguments.yes:
            store.remove([uuid])
            sys.stdout.write(f"1 damaged record removed, {len(runs)} stay\n")
            return 0
        if damaged:
            sys.stdout.write(f"1 damaged record would be removed, {len(runs)} stay; nothing is removed without --yes\n")
            return 0
        old = [run for run in runs if run.uuid == uuid]
    else:
        old = runs[: max(0, len(runs) - arguments.keep)]
    days = dict.fromkeys(run.began.date().isoformat() for run in (*old[:1], *old[-1:]))
    which = f" of {' to '.join(days)}" if old else ""
    stay = f"{len(runs) - len(old)} stay"
    if arguments.yes and old:
        removed = store.remove(run.uuid for run in old)
        sys.stdout.write(f"{counted(removed, 'record')}{which} removed, {stay}\n")
        return 0
    more = "; nothing is removed without --yes" if old else ""
    sys.stdout.write(on_screen(f"{counted(len(old), 'record')}{which} would be removed, {stay}{more}\n"))
    return 0

"""``torchprof history verify|upgrade|rebuild``: whether records can be believed, and a database's tables of them."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Final

from pytest_torchprof.cli import UNUSABLE
from pytest_torchprof.cli.history_read import store_that_is_there
from pytest_torchprof.history.record import BadRecord, NewerRecord, RunRecord
from pytest_torchprof.history.rows_differ import RowsDiffer
from pytest_torchprof.history.store import records_of
from pytest_torchprof.history.stores import has_tables, tables_at
from pytest_torchprof.history.texts import differing_lines
from pytest_torchprof.text import counted, printable, quoted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from pytest_torchprof.cli import Parser

_DIFFERENT: Final = 1


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    add(
        "verify",
        _verify,
        "read every record of the history, name those that cannot be believed, and of a database the rows that say "
        "something else than their record",
    )
    add("upgrade", _upgrade, "give a database the schema of this version, or make it; no run does so")
    add("rebuild", _rebuild, "make all tables of a database anew from the records in it")


def _verify(arguments: Namespace) -> int:
    good = 0
    bad: list[BadRecord] = []
    differing: list[RowsDiffer] = []
    store = store_that_is_there(arguments.store)
    records = tables_at(arguments.store).compared() if has_tables(arguments.store) else records_of(store)
    for record in chain(records, store.notes()):
        if isinstance(record, BadRecord):
            bad.append(record)
        elif isinstance(record, RowsDiffer):
            differing.append(record)
        elif isinstance(record, RunRecord):
            good += 1
    counts = f"{counted(good + len(differing), 'record')} read, {len(bad)} cannot be believed"
    rebuild = f"; torchprof history rebuild {quoted(store.shown)} makes all tables anew"
    tables = f", {counted(len(differing), 'record')} with other rows in the tables{rebuild}" if differing else ""
    sys.stdout.write(f"{counts}{tables}\n")
    sys.stderr.writelines(f"{printable(line)}\n" for own in differing for line in differing_lines(own))
    return _named(bad, store.shown) or (_DIFFERENT if differing else 0)


def _upgrade(arguments: Namespace) -> int:
    tables = tables_at(arguments.store)
    had, has = tables.upgrade()
    change = f"has schema {has}, as before" if had == has else f"has schema {has}; before: {had or 'none'}"
    sys.stdout.write(f"{tables.shown}: {change}\n")
    return 0


def _rebuild(arguments: Namespace) -> int:
    tables = tables_at(arguments.store)
    good, bad = tables.rebuild()
    sys.stdout.write(f"tables made anew from {counted(good, 'record')}, {len(bad)} cannot be believed\n")
    return _named(bad, tables.shown)


def _named(bad: Iterable[BadRecord], shown: str) -> int:
    """Name records of a store that cannot be believed, and how to remove them; return the exit status."""
    lines = [f"{printable(str(problem))}{_remedy(problem, shown)}\n" for problem in bad]
    sys.stderr.writelines(lines)
    return UNUSABLE if lines else 0


def _remedy(problem: BadRecord, shown: str) -> str:
    # What a newer version has written is whole, and a file is there to be seen.
    if problem.uuid is None or isinstance(problem, NewerRecord):
        return ""
    return f"; torchprof history prune {quoted(shown)} --run {problem.uuid} --yes removes it"

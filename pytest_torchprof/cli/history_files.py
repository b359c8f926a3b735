"""``torchprof history export|page``: a history as a file, for other tools and for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.cli.history_read import add_choice_of_runs, believed, read_branch, store_that_is_there
from pytest_torchprof.history.changes import events_of
from pytest_torchprof.history.exporting import exported_record
from pytest_torchprof.history.notes import notes_by_subject
from pytest_torchprof.history.store import records_of
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.history import OF_MANY_RUNS, OF_ONE_RUN
from pytest_torchprof.system.replacing import replacing

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.runs import BranchRuns

_FORMS = {**OF_MANY_RUNS, **OF_ONE_RUN}


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    export = add("export", _export, "write the measurements for other tools")
    export.add_argument(
        "--as",
        dest="form",
        required=True,
        choices=tuple(_FORMS),
        metavar="FORM",
        help=f"of all runs: {' '.join(OF_MANY_RUNS)}; of the branch's newest complete run: {' '.join(OF_ONE_RUN)}",
    )
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="the file (standard output)")
    page = add("page", _page, "write a page with each test from commit to commit, what changed last first")
    page.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    for own in (export, page):
        add_choice_of_runs(own)


def _export(arguments: Namespace) -> int:
    store = store_that_is_there(arguments.store)
    only = None
    if arguments.form in OF_ONE_RUN:
        branch, _ = read_branch(arguments)
        only = _newest(branch)
    notes = notes_by_subject(believed(store.notes()))
    records = (record for record in believed(records_of(store)) if only in (None, record.uuid))
    rows = (row for record in records for row in exported_record(record, notes))
    _write(arguments.output, _FORMS[arguments.form](rows))
    return 0


def _page(arguments: Namespace) -> int:
    from pytest_torchprof.history.page import history_page  # noqa: PLC0415 - only this command draws

    branch, all_series = read_branch(arguments)
    text = history_page(branch, all_series, events_of(branch, all_series))
    _write(arguments.output, [text])
    sys.stdout.write(f"{arguments.output}: {len(text.encode(errors='backslashreplace')) / 1e6:.1f} MB\n")
    return 0


def _newest(branch: BranchRuns) -> str:
    complete = [run for run in branch.runs if run.complete]
    if not complete:
        raise TorchprofError(f"{branch.branch} has no run that was not stopped", Code.NO_HISTORY)
    return complete[-1].uuid


def _write(path: Path | None, parts: Iterable[str]) -> None:
    if path is None:
        sys.stdout.writelines(parts)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(parts)
    except OSError as error:
        problem = f"{path}: cannot be written: {error.strerror or error}"
        raise TorchprofError(problem, Code.REPORT_NOT_WRITTEN) from None

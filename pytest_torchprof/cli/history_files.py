"""``torchprof history export|page``: a history as a file, for other tools and for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from pytest_torchprof.cli import UsageError
from pytest_torchprof.cli.history_read import add_choice_of_runs, believed, read_branch, store_that_is_there
from pytest_torchprof.history.changes import events_of
from pytest_torchprof.history.exporting import exported_figures, with_names_now
from pytest_torchprof.history.notes import notes_by_subject
from pytest_torchprof.history.results import figures_in, results_in
from pytest_torchprof.history.store import heads_of, records_of
from pytest_torchprof.history.times import judged_times, time_events
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report import reporters
from pytest_torchprof.report.history import OF_MANY_RUNS, OF_ONE_RUN
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.history.record import RunHead, RunRecord
    from pytest_torchprof.history.runs import BranchRuns
    from pytest_torchprof.history.store import Store
    from pytest_torchprof.report import RunResults

_TABLES: Final = {**OF_MANY_RUNS, **OF_ONE_RUN}
_SHORTEST: Final = 4
"""How many digits name a run at least."""


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    export = add("export", _export, "write the measurements for other tools")
    export.add_argument(
        "--as",
        dest="form",
        required=True,
        metavar="FORM",
        help=f"of all runs, or that of --run: {' '.join(OF_MANY_RUNS)}; of that of --run, or the branch's newest "
        f"complete one: {' '.join(OF_ONE_RUN)}, and the reports .json .html .md",
    )
    export.add_argument("--run", metavar="RUN", help="the run: its id or its commit's hash, or their beginning")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="the file (standard output)")
    page = add("page", _page, "write a page with each test from commit to commit, what changed last first")
    page.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    for own in (export, page):
        add_choice_of_runs(own)


def _export(arguments: Namespace) -> int:
    if arguments.form not in _TABLES and arguments.form not in reporters():
        raise UsageError(f"--as {arguments.form}: expected one of {' '.join(reporters())}")
    store = store_that_is_there(arguments.store)
    if arguments.run is None and arguments.form in OF_MANY_RUNS:
        notes = notes_by_subject(believed(store.notes()))
        rows = exported_figures(believed(records_of(store)), notes)
        _write(arguments.output, OF_MANY_RUNS[arguments.form](rows))
        return 0
    uuid = _newest(read_branch(arguments)[0]) if arguments.run is None else _named(store, arguments.run)
    for record in believed(records_of(store, {uuid})):
        _write(arguments.output, [reporters()[arguments.form](_results(record, arguments.form, store))])
        return 0
    raise TorchprofError(f"{store.shown}: no record is called {uuid}, or it cannot be read", Code.NO_HISTORY)


def _results(record: RunRecord, form: str, store: Store) -> RunResults:
    """Return the results of a run for a form; in a table tests have the names that they have now."""
    has_figures_alone = record.reported is UNSET
    if form in _TABLES:
        notes = notes_by_subject(believed(store.notes()))
        return with_names_now(figures_in(record) if has_figures_alone else results_in(record), notes)
    if has_figures_alone:
        can = f"{' '.join(_TABLES)} can be made of it"
        why = f"its record, by pytest-torchprof {record.version}, holds figures alone: {can}"
        raise TorchprofError(f"{store.shown}: {record.uuid}: no report: {why}", Code.NO_HISTORY)
    return results_in(record)


def _named(store: Store, beginning: str) -> str:
    """Return the id of the run whose id or commit begins so; TorchprofError for none and for several."""
    if len(beginning) < _SHORTEST:
        problem = f"--run {beginning}: too short: give at least {_SHORTEST} digits of its id or its commit"
        raise TorchprofError(problem, Code.BAD_USAGE)
    heads = [head for head in believed(heads_of(store)) if any(id_.startswith(beginning.lower()) for id_ in _ids(head))]
    if not heads:
        problem = f"{store.shown} has no run whose id or commit begins with {beginning}"
        raise TorchprofError(problem, Code.NO_HISTORY)
    if len(heads) > 1:
        ids = first_of([head.uuid for head in sorted(heads, key=lambda head: head.began)])
        problem = f"--run {beginning}: {len(heads)} runs have it in their id or commit; give the id of one: {ids}"
        raise TorchprofError(problem, Code.BAD_USAGE)
    return heads[0].uuid


def _ids(head: RunHead) -> tuple[str, ...]:
    return (head.uuid,) if head.commit is None else (head.uuid, head.commit.sha)


def _page(arguments: Namespace) -> int:
    from pytest_torchprof.history.page import history_page  # noqa: PLC0415 - only this command draws

    branch, all_series = read_branch(arguments)
    judged = judged_times(branch, all_series)
    text = history_page(branch, all_series, events_of(branch, all_series), judged, time_events(branch, judged))
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

"""``torchprof history export|page``: a history as a file, for other tools and for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.cli.history_read import add_choice_of_runs, read_branch
from pytest_torchprof.history.changes import events_of
from pytest_torchprof.history.times import judged_times, time_events
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.reports import FileNotWritten
from pytest_torchprof.system.replacing import replacing

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from pytest_torchprof.cli import Parser


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    export = add("export", _export, "write the measurements for other tools")
    export.add_argument(
        "--as",
        dest="form",
        required=True,
        metavar="FORM",
        help="of all runs, or that of --run: .jsonl .csv; of that of --run, or the branch's newest complete one: "
        ".benchmark.json .bmf.json .pytorch.json, and the reports .json .html .md",
    )
    export.add_argument("--run", metavar="RUN", help="the run: its id or its commit's hash, or their beginning")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="the file (standard output)")
    page = add("page", _page, "write a page with each test from commit to commit, what changed last first")
    page.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    for own in (export, page):
        add_choice_of_runs(own)


def _export(arguments: Namespace) -> int:
    from pytest_torchprof.cli.history_export import export  # noqa: PLC0415 - reports are slow to import

    _write_parts(arguments.output, export(arguments))
    return 0


def _page(arguments: Namespace) -> int:
    from pytest_torchprof.history.page import history_page  # noqa: PLC0415 - only this command draws

    branch, all_series = read_branch(arguments)
    judged = judged_times(branch, all_series)
    text = history_page(branch, all_series, events_of(branch, all_series), judged, time_events(branch, judged))
    _write_parts(arguments.output, [text])
    sys.stdout.write(f"{arguments.output}: {len(text.encode(errors='backslashreplace')) / 1e6:.1f} MB\n")
    return 0


def _write_parts(path: Path | None, parts: Iterable[str]) -> None:
    if path is None:
        sys.stdout.writelines(parts)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(parts)
    except OSError as error:
        raise TorchprofError.because(FileNotWritten.of(path, error)) from None

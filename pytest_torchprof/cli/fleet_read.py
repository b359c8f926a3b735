"""``torchprof fleet status|report``: how far a run is, and what all of its records tell."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pytest_torchprof.cli import UsageError, whole
from pytest_torchprof.cli.check import HOLDS, MISSED, UNKNOWN
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.text import json_text, printable_line
from pytest_torchprof.text.suggestions import choices_like
from pytest_torchprof.text.tables import terminal_width
from pytest_torchprof.text.units import show_bytes

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from pytest_torchprof.cli import Parser
    from pytest_torchprof.fleet.folder import FrozenList
    from pytest_torchprof.fleet.summary import FleetSummary

_PAGE: Final = ".html"
_ROWS: Final = ".jsonl"
_EPILOG: Final = """\
exit status: 0 all limits hold, 1 one was missed, otherwise 3 while more than --max-bad files are left or were not
judged, 2 cannot read or write, or bad usage"""
_RETRIES: Final = 3
"""How often a store is asked again that does not answer."""
_TOP: Final = 20
"""How many rows of each table are shown."""


def add_commands(add: Callable[[str, Callable[[Namespace], int], str], Parser]) -> None:
    """Declare the commands."""
    status = add("status", _status, "say how far a run is, shard by shard")
    report = add("report", _report, "say what all records of a run tell: groups, findings, the worst files")
    for own in (status, report):
        own.add_argument("folder", metavar="DIR", help="the folder of a run, or its address")
        own.add_argument("--json", action="store_true", help="one JSON object")
        add_max_bad(own, "not measured, quarantined or left")
        own.epilog = _EPILOG
    report.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="FILE",
        help=f"write it instead: *{_PAGE}, a page; *{_ROWS}, a row for each file, for DuckDB, Polars and the like",
    )
    report.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="what files are grouped by: model, gpu, torch (all three, if none is named), rule, or what a manifest "
        "says of them (repeatable)",
    )
    report.add_argument(
        "--top",
        type=whole(1),
        default=_TOP,
        metavar="N",
        help=f"how many rows of each table, and of the worst ({_TOP})",
    )


def add_max_bad(parser: Parser, bad: str = "not measured or quarantined") -> None:
    """Declare ``--max-bad``: how many files may be ``bad``."""
    parser.add_argument(
        "--max-bad",
        type=whole(0),
        default=0,
        metavar="N",
        help=f"how many files may be {bad} before the exit status is 3 (0)",
    )


def _exit_status(missed: int, not_judged: int, max_bad: int) -> int:
    """Return the exit status of so many files that missed a limit and that were not judged."""
    if missed:
        return MISSED
    return UNKNOWN if not_judged > max_bad else HOLDS


def exit_status_of(summary: FleetSummary, max_bad: int, left: int = 0) -> int:
    """Return the exit status of a run, of whose files so many have no record."""
    bad = summary.not_measured + summary.quarantined + summary.jobs.not_measured + left
    return _exit_status(summary.missed + summary.jobs.missed, bad, max_bad)


def note(line: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"torchprof fleet: {printable_line(line, _LONGEST)}\n")


_LONGEST: Final = 500


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (_PAGE, _ROWS):
        from pytest_torchprof.reasons.command_line import OptionTakes, WrongOption  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(WrongOption("-o", text, OptionTakes.PAGE_OR_ROWS))
    return path


def _status(arguments: Namespace) -> int:
    from pytest_torchprof.fleet.folder import folder_of_run  # noqa: PLC0415 - help and usage errors do without
    from pytest_torchprof.fleet.status import status_of  # noqa: PLC0415
    from pytest_torchprof.fleet.texts import status_lines  # noqa: PLC0415

    with folder_of_run(arguments.folder, _RETRIES) as folder:
        status = status_of(folder, tuple(folder.frozen().tasks()), folder.known(note))
    if arguments.json:
        sys.stdout.write(json_text(msgspec.to_builtins(status)))
    else:
        sys.stdout.writelines(f"{line}\n" for line in status_lines(status, terminal_width()))
    files, jobs = status.files, status.jobs
    bad = files.not_measured + files.quarantined + files.left + jobs.not_measured
    return _exit_status(files.missed + jobs.missed, bad, arguments.max_bad)


def _report(arguments: Namespace) -> int:
    from pytest_torchprof.fleet.folder import folder_of_run  # noqa: PLC0415
    from pytest_torchprof.fleet.overview import Overview  # noqa: PLC0415
    from pytest_torchprof.fleet.page import fleet_page  # noqa: PLC0415
    from pytest_torchprof.fleet.rows import row_of  # noqa: PLC0415
    from pytest_torchprof.fleet.texts import report_lines  # noqa: PLC0415

    output, written = arguments.output, ""
    with folder_of_run(arguments.folder, _RETRIES) as folder:
        frozen = folder.frozen()
        overview = Overview(frozen, _keys(arguments.by, frozen), arguments.top)
        rows = (
            msgspec.json.encode(row_of(record, name)) + b"\n" for record, name in overview.through(folder.known(note))
        )
        if output is not None and output.suffix == _ROWS:
            written = _write(output, rows)
        else:
            deque(rows, maxlen=0)
        report = overview.report()
    if output is not None and output.suffix == _PAGE:
        written = _write(output, [fleet_page(report, folder.shown).encode(errors="backslashreplace")])
    if arguments.json:
        sys.stdout.write(json_text(msgspec.to_builtins(report)))
    elif output is not None:
        sys.stdout.write(written)
    else:
        sys.stdout.writelines(f"{line}\n" for line in report_lines(report, arguments.top, terminal_width()))
    return exit_status_of(report.summary, arguments.max_bad, report.left)


def _keys(asked: Iterable[str], frozen: FrozenList) -> tuple[str, ...]:
    """Return the keys that files are grouped by; UsageError for a key that none of them can have."""
    from pytest_torchprof.fleet.rows import RULE, USUAL  # noqa: PLC0415

    keys = tuple(dict.fromkeys(asked)) or USUAL
    known = {*USUAL, RULE, *(name for file in frozen.files for name in file.metadata)}
    for key in keys:
        if key not in known:
            from pytest_torchprof.reasons.command_line_fleet import UnknownGrouping  # noqa: PLC0415 - only a mistake needs it

            raise UsageError.because(UnknownGrouping(key, *choices_like(key, known)))
    return keys


def _write(path: Path, parts: Iterable[bytes]) -> str:
    """Write a file; return the line that says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            file.writelines(parts)
        size = path.stat().st_size
    except OSError as error:
        from pytest_torchprof.reasons.reports import FileNotWritten  # noqa: PLC0415 - only a failure needs it

        raise TorchprofError.because(FileNotWritten.of(path, error)) from None
    return f"{path}: {show_bytes(size)}\n"

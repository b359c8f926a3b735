"""The baseline files that the commands of ``torchprof baseline`` work on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.baseline import find_files, read
from pytest_torchprof.cli import UsageError
from pytest_torchprof.reasons.files_asked import NoBaselineBelow
from pytest_torchprof.text import printable
from pytest_torchprof.text.tables import on_screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.baseline import BaselineFile
    from pytest_torchprof.cli import Parser


def add_paths(parser: Parser) -> None:
    """Declare the baseline files and folders that a command works on."""
    parser.add_argument(
        "path",
        nargs="*",
        type=Path,
        default=[Path()],
        metavar="PATH",
        help="a baseline file or a folder (default: the current one): the files in the __torchprof__ folders below it, "
        "or, where there is none, a folder that was given as --torchprof-baseline-dir",
    )


def add_rootdir(parser: Parser) -> None:
    """Declare ``--rootdir``."""
    parser.add_argument(
        "--rootdir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="pytest's root directory, for the paths in a --torchprof-baseline-dir (the current one)",
    )


def read_files(paths: list[Path]) -> Iterator[BaselineFile]:
    """Yield the baselines of files and folders; UsageError if a folder has none, UnreadableBaseline."""
    for path in paths:
        if not path.is_dir():
            yield read(path)
            continue
        files = sorted(find_files(path))
        if not files:
            raise UsageError.because(NoBaselineBelow(str(path)))
        yield from map(read, files)


def write_line(line: str) -> None:
    """Write one or more lines, as wide as the screen, without the control characters that a terminal obeys."""
    sys.stdout.write(on_screen("\n".join(printable(part) for part in line.split("\n"))) + "\n")

"""``torchprof baseline rename OLD NEW``: a test that was renamed or moved to another file keeps its entries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof import baseline
from pytest_torchprof.cli import UsageError
from pytest_torchprof.cli.baseline_files import add_rootdir, write_line
from pytest_torchprof.reasons.files_asked import NeitherTestNorFile, NoTestFileYet, RenamedToItself, RenamedUnlike
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser


def add_rename_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "old",
        metavar="OLD",
        help="a test id (without parameters: the function with all of them; a class: all that it holds) or a test file",
    )
    parser.add_argument("new", metavar="NEW", help="its new name")
    parser.add_argument("--baseline-dir", type=Path, metavar="DIR", help="pytest's --torchprof-baseline-dir")
    add_rootdir(parser)


def rename(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    old, new = _test_of(arguments.old), _test_of(arguments.new)
    if (old[1] is None) != (new[1] is None):
        raise UsageError.because(RenamedUnlike())
    if old == new:
        raise UsageError.because(RenamedToItself())
    if not new[0].is_file():
        raise UsageError.because(NoTestFileYet(str(new[0])))
    baseline_dir = arguments.baseline_dir
    moves = baseline.rename(
        old,
        new,
        Path(os.path.abspath(arguments.rootdir)),  # noqa: PTH100 (links stay, as in `baseline_path`)
        Path(os.path.abspath(baseline_dir)) if baseline_dir else None,  # noqa: PTH100
    )
    for move in moves:
        there = "" if move.to_file == move.file else f"{_shown(move.to_file)}: "
        write_line(f"{_shown(move.file)}: {move.key} -> {there}{move.to_key}")
    write_line(f"{counted(len(moves), 'entry')} renamed")
    return 0


def _test_of(test_id: str) -> tuple[Path, str | None]:
    """Return the file and the test in it that a test id names."""
    file, colons, test = test_id.partition("::")
    if not file or (colons and not test):
        raise UsageError.because(NeitherTestNorFile(test_id))
    return Path(os.path.abspath(file)), test or None  # noqa: PTH100


def _shown(file: Path) -> str:
    return os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)

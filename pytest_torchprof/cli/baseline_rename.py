"""``torchprof baseline rename OLD NEW``: a test that has another name, or another file, keeps its entries."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_torchprof import baseline
from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.cli.baseline_files import write_line
from pytest_torchprof.text import counted


def rename(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, options={"--baseline-dir": "a folder", "--rootdir": "a folder"})
    if len(arguments.files) != 2:
        raise UsageError("rename takes two test ids, or two test files: the old name and the new one")
    old, new = map(_test_of, arguments.files)
    if (old[1] is None) != (new[1] is None):
        raise UsageError("rename takes two tests or two files, not one of each")
    if old == new:
        raise UsageError("rename takes two names, and these are the same")
    if not new[0].is_file():
        raise UsageError(f"there is no test file {new[0]}: rename it first")
    baseline_dir = arguments.last("--baseline-dir")
    moves = baseline.rename(
        old,
        new,
        Path(os.path.abspath(arguments.last("--rootdir") or "")),  # noqa: PTH100 (links stay, as in `place`)
        Path(os.path.abspath(baseline_dir)) if baseline_dir else None,  # noqa: PTH100
    )
    for move in moves:
        there = "" if move.to_file == move.file else f"{_shown(move.to_file)}: "
        write_line(f"{_shown(move.file)}: {move.key} -> {there}{move.to_key}")
    write_line(f"{counted(len(moves), 'entry')} renamed")
    return 0


def _test_of(word: str) -> tuple[Path, str | None]:
    """Return the file and the test in it that a test id names."""
    file, colons, test = word.partition("::")
    if not file or (colons and not test):
        raise UsageError(f"{word!r} is neither a test id nor a test file")
    return Path(os.path.abspath(file)), test or None  # noqa: PTH100


def _shown(file: Path) -> str:
    return os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)

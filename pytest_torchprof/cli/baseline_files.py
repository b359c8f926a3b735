"""The baseline files that the commands of ``torchprof baseline`` look at."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.baseline import find_files, read
from pytest_torchprof.cli import UsageError
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.baseline import BaselineFile


def paths_or_here(files: list[str]) -> list[Path]:
    """Return the paths that were given, the current folder without any."""
    return [Path(file) for file in files] or [Path()]


def read_files(paths: list[Path]) -> Iterator[BaselineFile]:
    """Yield the baselines of files and folders; UsageError where a folder has none, UnreadableBaseline."""
    for path in paths:
        if not path.is_dir():
            yield read(path)
            continue
        found = sorted(find_files(path))
        if not found:
            raise UsageError(f"{path}: no baseline below it; record some with pytest --torchprof-baseline=update")
        yield from map(read, found)


def write_line(line: str) -> None:
    """Write a line, or several, with nothing in it that a terminal obeys."""
    sys.stdout.write("\n".join(printable(part) for part in line.split("\n")) + "\n")

"""Whether the files that a side has opened are its own, and whether the other side can have them."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.imports import environment_folders, lies_in
from pytest_torchprof.against.overlay import TestFiles
from pytest_torchprof.reasons.comparing import IgnoredFileRead, OtherSidesFile, SharedModule

if TYPE_CHECKING:
    from pytest_torchprof.against.reads import SideFiles
    from pytest_torchprof.against.side import Side
    from pytest_torchprof.reasons.reason import Reason

_OF_TOOLS: Final = re.compile(
    r"(^|/)(\.git|\.torchprof|\.pytest_cache|\.hypothesis|\.benchmarks|\.coverage[^/]*|[^/]+\.(egg|dist)-info|_?version\.py)(/|$)"
)
"""The files that tools keep in a working tree, and the version that a build writes: no code that is measured."""


def foreign_file(side: Side, files: SideFiles) -> Reason | None:
    """Return why this process has opened a file that is not the side's own; None if it has not."""
    return _foreign_read(side, files) or _shared_module(side, files) or _ignored_read(side, files)


def _foreign_read(side: Side, files: SideFiles) -> Reason | None:
    """Return the reason if a file that differs was read from the other side; else None."""
    own = set(files.read.values())
    for name, file in files.read_of_other.items():
        if file not in own and name in _as_set(side.differing):
            return OtherSidesFile(side.title, name, file)
    return None


def _shared_module(side: Side, files: SideFiles) -> Reason | None:
    """Return the reason if both sides have run one module that differs, a test only for its folder; else None."""
    name = next((name for name in side.doubtful if name in files.run_or_read), None)
    return None if name is None else SharedModule(side.title, name)


def _ignored_read(side: Side, files: SideFiles) -> Reason | None:
    """Return the reason if the working tree's side has read a file that the commit lacks, being ignored; else None."""
    if side.is_base or not side.ignored:
        return None
    inside = [folder for folder in environment_folders() if lies_in(folder, os.path.realpath(side.tree))]
    tests = TestFiles(patterns=side.patterns, folders=())
    for name, file in files.run_or_read.items():
        if not _is_ignored(name, side.ignored) or _OF_TOOLS.search(name) or lies_in(file, *inside):
            continue
        if tests.collected(name):
            continue  # Its own tests are those that the commit has not measured.
        if side.installed is not None and (side.other / name).exists():
            continue  # The command that installed the commit has made it there.
        if name not in files.read_there:
            return IgnoredFileRead(name, side.reference.shown)
    return None


@cache
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


def _is_ignored(name: str, ignored: tuple[str, ...]) -> bool:
    if name in _as_set(ignored):
        return True
    parts = name.split("/")
    return any("/".join(parts[:end]) + "/" in _as_set(ignored) for end in range(1, len(parts)))

"""The files of the two sides that a process has opened, by Python's audit events.

Files that libraries open without Python, or that processes started by the tests open, are not seen here.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_torchprof.against.side import Side

_FOLDER: Final = "reads"
_BYTECODE: Final = "__pycache__"


class Reads:
    """The files below some folders that were opened for reading, by real path, while this is an audit hook."""

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self.files: dict[str, None] = {}
        self.is_paused = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an audit event."""
        if event != "open" or self.is_paused:
            return
        path, _, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or (isinstance(flags, int) and flags & os.O_ACCMODE == os.O_WRONLY):
            return
        try:
            real = resolved(path if os.path.isabs(path) else f"{os.getcwd()}{os.sep}{path}")  # noqa: PTH109, PTH117
        except (OSError, ValueError):  # The open itself will raise it.
            return
        if real.startswith(self._folders):
            self.files[source_of(real)] = None


def resolved(file: str) -> str:
    """Return the real path of a file; its folder is resolved only once."""
    folder, _, name = file.rpartition(os.sep)
    real = f"{_resolved_folder(folder or os.sep).rstrip(os.sep)}{os.sep}{name}"
    return os.path.realpath(real) if os.path.islink(real) or name in ("..", ".") else real  # noqa: PTH114


_resolved_folder = cache(os.path.realpath)


def source_of(file: str) -> str:
    """Return the source of a bytecode file; any other file itself."""
    folder, _, name = file.rpartition(os.sep)
    if name.endswith(".pyc") and folder.endswith(f"{os.sep}{_BYTECODE}"):
        return f"{folder.removesuffix(_BYTECODE)}{name.partition('.')[0]}.py"
    return file


_WATCHED: Final[list[Reads]] = []
"""The reads of this process: an audit hook stays until it ends."""


def watch(side: Side) -> None:
    """Note the files that this process opens below either side from now on."""
    if not _WATCHED:
        _WATCHED.append(Reads(side.tree, side.other))
        sys.addaudithook(_WATCHED[0])


@contextmanager
def unwatched() -> Iterator[None]:
    """Note no files that are opened in this block: they are read to be compared, and not run."""
    for reads in _WATCHED:
        reads.is_paused = True
    try:
        yield
    finally:
        for reads in _WATCHED:
            reads.is_paused = False


def files_read() -> tuple[str, ...]:
    """Return the files that were read so far, by real path."""
    return tuple(file for reads in _WATCHED for file in tuple(reads.files))


def names_below(folder: Path, files: tuple[str, ...]) -> dict[str, str]:
    """Return the files that lie below a folder, by their path below it."""
    real = os.path.realpath(folder) + os.sep
    return {file.removeprefix(real): file for file in files if file.startswith(real)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFiles:
    """The files that a process of a side has opened or run, by their path below the root that they lie in."""

    read: Mapping[str, str]
    read_of_other: Mapping[str, str]
    """The files of the other side that it has read."""
    run_or_read: Mapping[str, str]
    """Its own files, with those of modules and libraries, which Python itself may not open."""
    read_there: frozenset[str]
    """The working tree's files that the other commit's side, which has ended, has read; empty if git ignores none."""


def files_of(side: Side, loaded: Iterable[str]) -> SideFiles:
    """Return the files that this process of a side has opened or run; ``loaded`` are those of modules and libraries."""
    read = files_read()
    return SideFiles(
        read=names_below(side.tree, read),
        read_of_other=names_below(side.other, read),
        run_or_read=names_below(side.tree, (*read, *loaded)),
        read_there=frozenset() if side.is_base or not side.ignored else _read_there(side.results),
    )


@cache
def _read_there(results: Path) -> frozenset[str]:
    return reads_of(results, is_base=True)["other"]


def leave_reads(side: Side) -> None:
    """Write the file that ``reads_of`` reads, for this process of a side."""
    files = files_read()
    own = names_below(side.tree, files)
    other = names_below(side.other, tuple(file for file in files if file not in own.values()))
    folder = side.results / _FOLDER / ("base" if side.is_base else "here")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_bytes(json.encode({"own": list(own), "other": list(other)}))


def reads_of(results: Path, *, is_base: bool) -> Mapping[str, frozenset[str]]:
    """Return the files that a side's processes read, "own" ones and the "other" side's, by path below the root."""
    by_side: dict[str, set[str]] = {"own": set(), "other": set()}
    for file in (results / _FOLDER / ("base" if is_base else "here")).glob("*.json"):
        for whose, names in json.decode(file.read_bytes(), type=dict[str, list[str]]).items():
            by_side[whose].update(names)
    return {whose: frozenset(names) for whose, names in by_side.items()}

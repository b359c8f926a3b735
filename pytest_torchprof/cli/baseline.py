"""``torchprof baseline list|show|diff|prune [PATH...]``: look at baseline files without running a test."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline import read
from pytest_torchprof.baseline.path import FOLDER, split_name
from pytest_torchprof.cli.arguments import UsageError, parse
from pytest_torchprof.cli.diff import differences
from pytest_torchprof.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.baseline import BaselineFile, Entry

USAGE: Final = """usage: torchprof baseline list [PATH...]
       torchprof baseline show [PATH...]
       torchprof baseline diff A B
       torchprof baseline prune [PATH...] [--rootdir DIR] [--yes]

A PATH is a baseline file or a folder (default: the current one): the files in the __torchprof__ folders below it, or,
where there is none, a folder that was given as --torchprof-baseline-dir. A and B are two files, or two folders.

prune lists the entries of tests that their test file no longer has, --yes removes them; where a test file cannot be
collected as a whole, nothing of it is touched. --rootdir is pytest's, for the paths in a --torchprof-baseline-dir.

exit status: 0 done (diff: the kernels are the same), 1 diff: they differ, 2 cannot read, or bad usage
"""
SAME, DIFFER, UNUSABLE = 0, 1, 2


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    if not words:
        sys.stderr.write(USAGE)
        return UNUSABLE
    if words[0] not in _COMMANDS:
        raise UsageError(f"unknown command {words[0]!r}: expected {', '.join(_COMMANDS)}")
    return _COMMANDS[words[0]](words[1:])


def _list(words: list[str]) -> int:
    for file in _files(_folders(parse(words).files)):
        _say(str(file.path))
        for key, entry in sorted(file.entries.items()):
            _say(f"    {key:<50} {_kernels(entry)}, {_software(entry)}")
    return SAME


def _show(words: list[str]) -> int:
    for file in _files(_folders(parse(words).files)):
        _say(str(file.path))
        for key, entry in sorted(file.entries.items()):
            _say(f"\n  {key}    {_kernels(entry)}, {_software(entry)}")
            for row, count in zip(entry.kernels, entry.counts(), strict=True):
                _say(f"    {count:>5} x {row.short:<60} {row.op or ''}".rstrip())
            numbers = {**entry.numbers, **entry.varying}
            said = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
            for line in textwrap.wrap(said, 96):
                _say(f"    {line}")
    return SAME


def _diff(words: list[str]) -> int:
    files = parse(words).files
    if len(files) != 2:
        raise UsageError("diff takes two baseline files or two folders")
    before, after = (_entries(Path(file)) for file in files)
    found = differences(before, after)
    told = {key: one for key, one in found.items() if one.summary != "same" or one.lines}
    for key, difference in told.items():
        _say(": ".join(part for part in key if part))
        for line in (difference.summary, *difference.lines):
            _say(f"  {line}")
    _say(f"{len(found) - len(told)} of {counted(len(found), 'entry')} the same")
    return DIFFER if any(difference.kernels_differ for difference in found.values()) else SAME


def _entries(path: Path) -> dict[tuple[str, str], Entry]:
    """Return all entries of a file, or of a folder's files by their place in it."""
    files = {str(file.path.relative_to(path)): file for file in _files([path])} if path.is_dir() else {"": read(path)}
    return {(name, key): entry for name, file in files.items() for key, entry in file.entries.items()}


def _prune(words: list[str]) -> int:
    from pytest_torchprof.cli.prune import prune  # noqa: PLC0415  (starts pytest in another process: only here)

    arguments = parse(words, flags=("--yes",), options={"--rootdir": "a folder"})
    root = Path(arguments.last("--rootdir") or Path.cwd())
    files = [(base, file) for base in _folders(arguments.files) for file in _files([base])]
    return prune(files, rootdir=root, really=bool(arguments.flags), say=_say)


def _folders(files: list[str]) -> list[Path]:
    return [Path(file) for file in files] or [Path()]


def _files(paths: list[Path]) -> Iterator[BaselineFile]:
    for path in paths:
        if not path.is_dir():
            yield read(path)
            continue
        found = sorted(_below(path))
        if not found:
            raise UsageError(f"{path}: no baseline below it; record some with pytest --torchprof-baseline=update")
        yield from map(read, found)


def _below(folder: Path) -> list[Path]:
    """Return a folder's baseline files: those in ``__torchprof__`` folders, else all that are named like one."""
    named: list[Path] = []
    for where, folders, names in os.walk(folder):
        # Environments and caches hold other people's files.
        folders[:] = [
            name for name in folders if not name.startswith(".") and not (Path(where, name, "pyvenv.cfg").exists())
        ]
        named += [Path(where, name) for name in names if split_name(Path(name)) and not name.startswith(".")]
    beside = [path for path in named if path.absolute().parent.name == FOLDER]
    return beside or named


def _kernels(entry: Entry) -> str:
    kernels = entry.numbers.get("kernels", 0)
    return counted(int(kernels), "kernel")


def _software(entry: Entry) -> str:
    names = {"torch": "torch", "cuda": "CUDA", "rocm": "ROCm"}
    known = [f"{name} {entry.environment[key]}" for key, name in names.items() if key in entry.environment]
    return ", ".join(known) or "software not recorded"


def _say(line: str) -> None:
    sys.stdout.write("\n".join(printable(part) for part in line.split("\n")) + "\n")


_COMMANDS: Final = {"list": _list, "show": _show, "diff": _diff, "prune": _prune}

"""``torchprof diff A B``: two recordings, or two baseline files, of the same code."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_torchprof.cli import UsageError, parse
from pytest_torchprof.errors import NotMeasured, UnreadableRecording
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare import Change, ProfileDiff

USAGE: Final = """usage: torchprof diff A B [--json]

Compares two measurements of the same code: what stayed, what was renamed and how, what took whose place. A and B are
recordings (trace files), or baseline files, whose entries of the same test are compared as a run compares with them.

exit status: 0 the kernels per step are the same (names without Triton's trailing index, and counts), 1 they differ,
2 cannot read, or bad usage, 3 one of them is not measured; times alone never make a difference
"""
SAME, DIFFER, UNKNOWN = 0, 1, 3
# A baseline file says so at its very start; a trace's first key is another.
_PEEK: Final = 4096
_MERGING: Final = b"<<<<<<<"

_Key = TypeVar("_Key", str, tuple[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDiff:
    """What two entries of one test have to say about each other, in the words of a run that compares with them."""

    summary: str
    """In a few words; "same" where nothing decides anything."""
    lines: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    kernels_differ: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        changes = [asdict(change) for change in self.changes]
        return {"kernels_differ": self.kernels_differ, "summary": self.summary, "changes": changes}


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, flags=("--json",))
    if len(arguments.files) != 2:
        raise UsageError(f"expected two files to compare, got {len(arguments.files)}")
    first, second = (Path(file) for file in arguments.files)
    kinds = [_is_baseline(path) for path in (first, second)]
    if kinds[0] != kinds[1]:
        raise UsageError("one is a baseline file and the other a recording; compare two of a kind")
    try:
        differ, data, lines = (_of_baselines if kinds[0] else _of_recordings)(first, second)
    except NotMeasured as problem:
        sys.stderr.write(f"torchprof diff: {printable(str(problem))}\n")
        return UNKNOWN
    if arguments.flags:
        lines = [json.dumps({"schema": 1, "files": arguments.files, "kernels_differ": differ, **data}, indent=2)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return DIFFER if differ else SAME


def differences(before: Mapping[_Key, Entry], after: Mapping[_Key, Entry]) -> dict[_Key, EntryDiff]:
    """Return how the entries of each test that either side has differ, in order."""
    return {key: _entry_diff(before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())}


def _entry_diff(old: Entry | None, new: Entry | None) -> EntryDiff:
    from pytest_torchprof.compare import contrast  # noqa: PLC0415 - comparing needs msgspec, --help does not

    if old is None or new is None:
        return EntryDiff(summary=f"only in {'the first' if new is None else 'the second'}", kernels_differ=True)
    found = contrast(old, new, sides=("the first was", "the second"))
    return EntryDiff(
        summary=found.summary,
        lines=found.lines,
        changes=found.changes,
        # Another order of the same kernels is no other kernels.
        kernels_differ=any(change.kind not in ("number", "reordered") for change in found.changes),
    )


def _of_baselines(first: Path, second: Path) -> tuple[bool, dict[str, Any], list[str]]:
    from pytest_torchprof.baseline import read  # noqa: PLC0415 - likewise

    tests = differences(read(first).entries, read(second).entries)
    lines: list[str] = []
    for key, found in tests.items():
        lines += [printable(f"{key}: {found.summary}"), *(f"  {printable(line)}" for line in found.lines)]
    data = {"tests": {key: found.to_dict() for key, found in tests.items()}}
    return any(found.kernels_differ for found in tests.values()), data, lines or ["no tests in either baseline file"]


def _of_recordings(first: Path, second: Path) -> tuple[bool, dict[str, Any], list[str]]:
    from pytest_torchprof.profile import load_file  # noqa: PLC0415 - likewise

    found: ProfileDiff = load_file(str(first)).diff(load_file(str(second)))
    return bool(found), found.to_dict(), _on_screen(found.lines)


def _on_screen(lines: list[str]) -> list[str]:
    """Return the lines as they fit, each with its own indentation."""
    from pytest_torchprof.text import wrapped  # noqa: PLC0415 - likewise

    return [
        part
        for line in map(printable, lines)
        for part in wrapped(line.lstrip(), "      ", first=line[: len(line) - len(line.lstrip())])
    ]


def _is_baseline(path: Path) -> bool:
    """Tell a baseline file, a damaged one too, from a recording by its first bytes: both are JSON objects."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: expected a recording or a baseline file")
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except (OSError, ValueError) as error:
        raise UnreadableRecording(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"torchprof"')):
        return False
    begins = head.lstrip()
    return begins.startswith(_MERGING) or (begins[:1] == b"{" and (b'"schema"' in head or b'"entries"' in head))

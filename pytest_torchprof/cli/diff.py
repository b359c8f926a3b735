"""``torchprof diff A B``: compare two recordings, or two baseline files, kernel by kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.diff import Item, ProfileDiff, compare_items, diff
from pytest_torchprof.errors import TorchprofError, UnreadableRecording
from pytest_torchprof.names import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry

USAGE: Final = """usage: torchprof diff A B [--json]

Compares two measurements of the same code: what stayed, what was renamed and how, what took whose place. A and B are
recordings (trace files), or baseline files whose entries of the same test are compared.

exit status: 0 the kernels per step are the same (names without Triton's trailing index, and counts), 1 they differ,
2 cannot read, or bad usage; times alone never make a difference
"""
SAME, DIFFER, UNUSABLE = 0, 1, 2
# A baseline file says so at its very start; a trace's first key is another.
_PEEK: Final = 4096


class _UsageError(TorchprofError):
    """Words on the command line that do not belong there."""


def run(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    if not argv or argv[0] in {"-h", "--help"}:
        (sys.stdout if argv else sys.stderr).write(USAGE)
        return SAME if argv else UNUSABLE
    try:
        return _run(argv)
    except TorchprofError as problem:
        sys.stderr.write(f"torchprof diff: {problem}\n")
        return UNUSABLE


def _run(argv: list[str]) -> int:
    files = [word for word in argv if not word.startswith("-") or word == "-"]
    unknown = [word for word in argv if word.startswith("-") and word not in ("-", "--json")]
    if unknown:
        raise _UsageError(f"unknown option {unknown[0]!r}; see torchprof diff --help")
    if len(files) != 2:
        raise _UsageError(f"expected two files to compare, got {len(files)}; see torchprof diff --help")
    first, second = (Path(file) for file in files)
    kinds = [_is_baseline(path) for path in (first, second)]
    if kinds[0] != kinds[1]:
        raise _UsageError("one is a baseline file and the other a recording; compare two of a kind")
    found = _baselines(first, second) if kinds[0] else {"": _recordings(first, second)}
    if "--json" in argv:
        sys.stdout.write(json.dumps(_data(files, found), indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _text(found)))
    return DIFFER if any(found.values()) else SAME


def _is_baseline(path: Path) -> bool:
    """Tell a baseline file from a recording by its first bytes: both are JSON objects."""
    if path.is_dir():
        raise _UsageError(f"{path} is a folder: expected a recording or a baseline file")
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except OSError as error:
        raise UnreadableRecording(f"{path}: cannot be read: {error.strerror or error}") from None
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"entries"' in head and b'"traceEvents"' not in head


def _recordings(first: Path, second: Path) -> ProfileDiff:
    from pytest_torchprof.profile import load  # noqa: PLC0415 - reading needs msgspec, --help does not

    before, after = load(first), load(second)
    if isinstance(before, list) or isinstance(after, list):  # a folder, refused before
        raise _UsageError("expected recordings, not folders")
    return diff(before, after)


def _baselines(first: Path, second: Path) -> dict[str, ProfileDiff]:
    from pytest_torchprof.baseline import read  # noqa: PLC0415 - likewise

    before, after = read(first).entries, read(second).entries
    return {key: _entries(before.get(key), after.get(key)) for key in sorted({*before, *after})}


def _entries(before: Entry | None, after: Entry | None) -> ProfileDiff:
    old: Mapping[str, float] = {**before.numbers, **before.varying} if before else {}
    new: Mapping[str, float] = {**after.numbers, **after.varying} if after else {}
    shared = [name for name in old if name in new]
    numbers = {name: (old[name], new[name]) for name in shared if old[name] != new[name]}
    return compare_items(_rows(before), _rows(after), numbers)


def _rows(entry: Entry | None) -> list[Item]:
    """Return the kernels of the entry's longest step, the earliest on a tie."""
    if entry is None:
        return []
    step = max(entry.launched(), key=len, default=())
    return [
        Item(
            name=row.name,
            short=row.short,
            family=row.family,
            dtype=row.dtype,
            layout=row.layout,
            triton=decode(row.name).triton,
            op=row.op,
        )
        for row in step
    ]


def _text(found: Mapping[str, ProfileDiff]) -> list[str]:
    lines: list[str] = []
    for key, difference in found.items():
        lines += [f"{key}:"] if key else []
        lines += [f"  {line}" for line in difference.lines] if key else difference.lines
    return lines or ["no tests in either baseline file"]


def _data(files: list[str], found: Mapping[str, ProfileDiff]) -> dict[str, object]:
    data: dict[str, object] = {"schema": 1, "files": files, "kernels_differ": any(found.values())}
    if list(found) == [""]:
        return {**data, **found[""].to_dict()}
    return {**data, "tests": {key: difference.to_dict() for key, difference in found.items()}}

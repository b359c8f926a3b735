"""``torchprof diff A B``: compare two recordings, or two baseline files, kernel by kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.compare import ProfileDiff, diff
from pytest_torchprof.errors import NotMeasured, TorchprofError, UnreadableRecording
from pytest_torchprof.text.escape import printable

if TYPE_CHECKING:
    from pytest_torchprof.cli.entries import Difference

USAGE: Final = """usage: torchprof diff A B [--json]

Compares two measurements of the same code: what stayed, what was renamed and how, what took whose place. A and B are
recordings (trace files), or baseline files, whose entries of the same test are compared as a run compares with them.

exit status: 0 the kernels per step are the same (names without Triton's trailing index, and counts), 1 they differ,
2 cannot read, or bad usage, 3 one of them is not measured; times alone never make a difference
"""
SAME, DIFFER, UNUSABLE, UNKNOWN = 0, 1, 2, 3
# A baseline file says so at its very start; a trace's first key is another.
_PEEK: Final = 4096
_MERGING: Final = b"<<<<<<<"


class _UsageError(TorchprofError):
    """Words on the command line that do not belong there."""


def run(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    if not argv or argv[0] in {"-h", "--help"}:
        (sys.stdout if argv else sys.stderr).write(USAGE)
        return SAME if argv else UNUSABLE
    try:
        return _run(argv)
    except NotMeasured as problem:
        sys.stderr.write(f"torchprof diff: {printable(str(problem))}\n")
        return UNKNOWN
    except TorchprofError as problem:
        sys.stderr.write(f"torchprof diff: {printable(str(problem))}\n")
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
    if kinds[0]:
        tests = _baselines(first, second)
        differ = any(difference.kernels_differ for difference in tests.values())
        data: dict[str, object] = {"tests": {key: difference.to_dict() for key, difference in tests.items()}}
        lines = [line for key, difference in tests.items() for line in difference.told(key)]
        lines = lines or ["no tests in either baseline file"]
    else:
        found = _recordings(first, second)
        differ, data, lines = bool(found), found.to_dict(), _on_screen(found.lines)
    if "--json" in argv:
        lines = [json.dumps({"schema": 1, "files": files, "kernels_differ": differ, **data}, indent=2)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return DIFFER if differ else SAME


def _on_screen(lines: list[str]) -> list[str]:
    """Return the lines as they fit, each with its own indentation."""
    from pytest_torchprof.text.layout import wrapped  # noqa: PLC0415 - --help does without

    return [
        part
        for line in map(printable, lines)
        for part in wrapped(line.lstrip(), "      ", first=line[: len(line) - len(line.lstrip())])
    ]


def _is_baseline(path: Path) -> bool:
    """Tell a baseline file, a damaged one too, from a recording by its first bytes: both are JSON objects."""
    if path.is_dir():
        raise _UsageError(f"{path} is a folder: expected a recording or a baseline file")
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except (OSError, ValueError) as error:
        raise UnreadableRecording(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"torchprof"')):
        return False
    begins = head.lstrip()
    return begins.startswith(_MERGING) or (begins[:1] == b"{" and (b'"schema"' in head or b'"entries"' in head))


def _recordings(first: Path, second: Path) -> ProfileDiff:
    from pytest_torchprof.profile import load  # noqa: PLC0415 - reading needs msgspec, --help does not

    before, after = load(first), load(second)
    if isinstance(before, list) or isinstance(after, list):  # a folder, refused before
        raise _UsageError("expected recordings, not folders")
    return diff(before, after)


def _baselines(first: Path, second: Path) -> dict[str, Difference]:
    from pytest_torchprof.baseline import read  # noqa: PLC0415 - likewise
    from pytest_torchprof.cli.entries import differences  # noqa: PLC0415

    return differences(read(first).entries, read(second).entries)

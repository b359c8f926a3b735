"""``torchprof diff A B``: two recordings, or two baseline files, of the same code."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_torchprof.cli import DEVICE_OPTION, RANKS, UsageError, parse, refuse
from pytest_torchprof.codes import Code
from pytest_torchprof.errors import NotMeasured, UnreadableRecording
from pytest_torchprof.recording.text import SPECIAL, is_special
from pytest_torchprof.text import json_text, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.cli import Arguments
    from pytest_torchprof.compare import Comparison, ProfileDiff

USAGE: Final = """usage: torchprof diff A B [-v] [--json] [--device cpu|cuda]
       torchprof diff DIR DIR --ranks [-v] [--json] [--device cpu|cuda]

Compares two measurements of the same code: what stayed, what was renamed and how, what took whose place. A and B are
recordings (trace files), or baseline files, whose entries of the same test are compared as a run compares with them.
--device cpu: the CPU was measured, in recordings that do not say so; its kernels are the operators that compute.
--ranks: each folder holds the recordings of one job's ranks; each rank is compared with the same one of the other job.

exit status: 0 the kernels per step are the same (names without Triton's trailing index, and counts), 1 they differ,
2 cannot read, or bad usage, 3 one of them is not measured; times alone never make a difference
"""
SAME, DIFFER, UNKNOWN = 0, 1, 3
# A baseline file says so at its very start; a trace's first key is another.
_PEEK: Final = 4096
_MERGING: Final = b"<<<<<<<"

_Key = TypeVar("_Key", str, tuple[str, str])


def run(words: list[str]) -> int:
    """Run the command; return its exit status."""
    arguments = parse(words, flags=("--json", "-v", RANKS), options=DEVICE_OPTION)
    if len(arguments.files) != 2:
        raise UsageError(f"expected two files to compare, got {len(arguments.files)}")
    if RANKS in arguments.flags:
        return _diff_ranks(arguments)
    first, second = (Path(file) for file in arguments.files)
    kinds = [_is_baseline(path) for path in (first, second)]
    if kinds[0] != kinds[1]:
        raise UsageError("one is a baseline file and the other a recording; compare two of a kind")
    device, every = arguments.last("--device"), "-v" in arguments.flags
    if kinds[0] and device:
        raise UsageError("--device is for recordings; a baseline says what was measured")
    try:
        differ, data, lines = (
            _of_baselines(first, second) if kinds[0] else _of_recordings(first, second, device, every=every)
        )
    except NotMeasured as problem:
        refuse("diff", str(problem))
        return UNKNOWN
    if "--json" in arguments.flags:
        sys.stdout.write(json_text({"schema": 1, "files": arguments.files, "kernels_differ": differ, **data}))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return DIFFER if differ else SAME


def _diff_ranks(arguments: Arguments) -> int:
    """Compare two jobs rank by rank; two recordings are there at a time."""
    from pytest_torchprof.cli.ranks import job_in  # noqa: PLC0415 - likewise
    from pytest_torchprof.report import ranks_report  # noqa: PLC0415 - likewise

    device, every = arguments.last("--device"), "-v" in arguments.flags
    jobs = [job_in(folder, device) for folder in arguments.files]
    first, second = ({one.rank: one.path for one in job} for job in jobs)
    if first.keys() != second.keys():
        only = ", ".join(map(str, sorted(first.keys() ^ second.keys())))
        raise UsageError(f"rank {only} is in one of the folders only; compare jobs of the same ranks")
    data: dict[str, Any] = {}
    lines: list[str] = []
    differ = False
    for rank, before in sorted(first.items()):
        try:
            changed, found, told = _of_recordings(Path(before), Path(second[rank]), device, every=every, indent=2)
        except NotMeasured as problem:
            refuse("diff", f"rank {rank}: {problem}")
            return UNKNOWN
        differ |= changed
        data[str(rank)] = {"kernels_differ": changed, **found}
        lines += [f"rank {rank}:", *(f"  {line}" for line in told)]
    together, told = ranks_report.differences(*jobs)
    lines += ["all ranks:", *(f"  {line}" for line in told)]
    if "--json" in arguments.flags:
        found = {"schema": 1, "files": arguments.files, "kernels_differ": differ, "ranks": data, "all_ranks": together}
        sys.stdout.write(json_text(found))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return DIFFER if differ else SAME


def differences(before: Mapping[_Key, Entry], after: Mapping[_Key, Entry]) -> dict[_Key, Comparison]:
    """Return how the entries of each test that either side has differ, in order."""
    from pytest_torchprof.compare import compare  # noqa: PLC0415 - comparing needs msgspec, --help does not

    keys = sorted(before.keys() | after.keys())
    return {key: compare(before.get(key), after.get(key), sides=("the first was", "the second")) for key in keys}


def summary_of(found: Comparison) -> str:
    """Return in a few words how two entries differ; "same" where nothing decides anything."""
    return {"new": "only in the second", "gone": "only in the first"}.get(found.verdict) or found.summary


def _of_baselines(first: Path, second: Path) -> tuple[bool, dict[str, Any], list[str]]:
    from pytest_torchprof.baseline import read  # noqa: PLC0415 - likewise

    tests: dict[str, dict[str, Any]] = {}
    lines: list[str] = []
    for key, found in differences(read(first).entries, read(second).entries).items():
        changes = [asdict(change) for change in found.changes]
        tests[key] = {"kernels_differ": found.kernels_differ, "summary": summary_of(found), "changes": changes}
        lines += [printable(f"{key}: {summary_of(found)}"), *(f"  {printable(line)}" for line in found.lines)]
    differ = any(test["kernels_differ"] for test in tests.values())
    return differ, {"tests": tests}, lines or ["no tests in either baseline file"]


def _of_recordings(
    first: Path, second: Path, device: str | None, *, every: bool, indent: int = 0
) -> tuple[bool, dict[str, Any], list[str]]:
    from pytest_torchprof.profiles import load_file  # noqa: PLC0415 - likewise
    from pytest_torchprof.text import terminal_width  # noqa: PLC0415 - likewise

    before, after = (load_file(str(file), device=device) for file in (first, second))
    found: ProfileDiff = before.diff(after)
    return bool(found), found.to_dict(), found.told(width=terminal_width() - indent, every=every)


def _is_baseline(path: Path) -> bool:
    """Tell a baseline file, a damaged one too, from a recording by its first bytes: both are JSON objects."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: expected a recording or a baseline file")
    if is_special(path):
        raise UnreadableRecording(f"{path}: cannot be read: {SPECIAL}", Code.RECORDING_UNREADABLE)
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except (OSError, ValueError) as error:
        code = Code.RECORDING_MISSING if isinstance(error, FileNotFoundError) else Code.RECORDING_UNREADABLE
        said = f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UnreadableRecording(said, code) from None
    if any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"torchprof"')):
        return False
    begins = head.lstrip()
    return begins.startswith(_MERGING) or (begins[:1] == b"{" and (b'"schema"' in head or b'"entries"' in head))

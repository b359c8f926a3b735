"""``torchprof diff A B``: two recordings, or two baseline files, of the same code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pytest_torchprof.cli import UsageError, add_device, add_ranks, refuse
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.errors import NotMeasured, UnreadableRecording
from pytest_torchprof.recording.text import is_special
from pytest_torchprof.text import first_of, printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.cli import Parser
    from pytest_torchprof.cli.diff_json import Diff
    from pytest_torchprof.compare import Comparison

SAME, DIFFER, UNKNOWN = 0, 1, 3
# A baseline file is recognised by its beginning; a trace has another first key.
_PEEK: Final = 4096
_MERGING: Final = b"<<<<<<<"

_Key = TypeVar("_Key", str, tuple[str, str])


class _Recordings(NamedTuple):
    """Two recordings compared."""

    comparison: Comparison

    @property
    def differ(self) -> bool:
        """Whether kernels differ."""
        return self.comparison.kernels_differ

    def document(self, files: tuple[str, str]) -> Diff:
        """Return it as it is printed as JSON."""
        from pytest_torchprof.cli.diff_json import recordings_diff  # noqa: PLC0415 - for programs alone

        return recordings_diff(files, self.comparison)


class _Tests(NamedTuple):
    """The comparisons of tests that have entries in baselines."""

    comparisons: Mapping[str, Comparison]

    @property
    def differ(self) -> bool:
        """Whether kernels differ."""
        return any(each.kernels_differ for each in self.comparisons.values())

    def document(self, files: tuple[str, str]) -> Diff:
        """Return it as it is printed as JSON."""
        from pytest_torchprof.cli.diff_json import TestsDiff  # noqa: PLC0415 - as above
        from pytest_torchprof.compare.comparison_json import comparison_json  # noqa: PLC0415 - as above

        tests = {
            key: comparison_json(comparison, summary=summary_of(comparison))
            for key, comparison in self.comparisons.items()
        }
        return TestsDiff(files=files, kernels_differ=self.differ, tests=tests)


class _Folders(NamedTuple):
    """The comparisons of the recordings of the same tests in two folders."""

    comparisons: Mapping[str, Comparison]
    """Of those that are measured on both sides, the costliest difference first."""
    unmeasured: Mapping[str, NotMeasured]
    only_in_first: Sequence[str]
    """The tests that the other folder does not have."""
    only_in_second: Sequence[str]

    @property
    def differ(self) -> bool:
        """Whether kernels differ, or tests are on one side only."""
        kernels_differ = any(each.kernels_differ for each in self.comparisons.values())
        return kernels_differ or bool(self.only_in_first or self.only_in_second)

    def document(self, files: tuple[str, str]) -> Diff:
        """Return it as it is printed as JSON."""
        from pytest_torchprof.cli.diff_json import Alone, FoldersDiff, of_each  # noqa: PLC0415 - as above

        return FoldersDiff(
            files=files,
            kernels_differ=self.differ,
            recordings=of_each(self.comparisons),
            not_measured={name: str(problem) for name, problem in self.unmeasured.items()},
            alone=Alone(first=tuple(self.only_in_first), second=tuple(self.only_in_second)),
        )


class _Compared(NamedTuple):
    difference: _Recordings | _Tests | _Folders
    lines: list[str]
    unknown: bool = False
    """Whether a part of it is not measured."""


_DESCRIPTION: Final = """\
Compares two measurements of the same code: which numbers changed and by what ratio, where the GPU time is
before and after, what came and went, and what became of single kernels. A and B are recordings (trace files);
folders of recordings, of which those of the same test are compared; baseline files, whose entries of the same
test are compared as a run compares with them; or a baseline file and a recording of one of its tests (with
times by family alone)."""
_EPILOG: Final = """\
example:
  torchprof diff before.json.gz after.json.gz

exit status: 0 the kernels per step are the same (names without Triton's trailing index, types, and counts), 1
they differ, 2 cannot read, or bad usage, 3 one of them is not measured; times alone never make a difference"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("first", metavar="A", help="what was before")
    parser.add_argument("second", metavar="B", help="what is now")
    parser.add_argument("-v", dest="every", action="store_true", help="all kernels, not only those that changed most")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_device(parser)
    add_ranks(parser, "each rank is compared with the same one of the other job")


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    if arguments.ranks:
        return _diff_ranks(arguments)
    try:
        compared = _compare(arguments)
    except NotMeasured as problem:
        refuse("diff", problem)
        return UNKNOWN
    if arguments.json:
        from pytest_torchprof.cli.diff_json import diff_text  # noqa: PLC0415 - for programs alone

        sys.stdout.write(diff_text(compared.difference.document((arguments.first, arguments.second))))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in compared.lines))
    return UNKNOWN if compared.unknown else DIFFER if compared.difference.differ else SAME


def _compare(arguments: Namespace) -> _Compared:
    first, second = Path(arguments.first), Path(arguments.second)
    device, every = arguments.device, arguments.every
    if first.is_dir() != second.is_dir():
        from pytest_torchprof.reasons.files_asked import FolderAndFile  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(FolderAndFile(str(first if first.is_dir() else second)))
    if first.is_dir():
        return _compared_folders(first, second, device, every=every)
    kinds = [_is_baseline(path) for path in (first, second)]
    if all(kinds):
        if device:
            from pytest_torchprof.reasons.command_line import DeviceNotAsked, SaysDevice  # noqa: PLC0415 - only a mistake needs it

            raise UsageError.because(DeviceNotAsked(SaysDevice.BASELINE))
        return _compared_baselines(first, second, every=every)
    if any(kinds):
        return _compared_with_baseline(first, second, device, baseline_first=kinds[0], every=every)
    comparison, lines = _compared_recordings(first, second, device, every=every)
    return _Compared(_Recordings(comparison), lines)


def _diff_ranks(arguments: Namespace) -> int:
    """Compare two jobs rank by rank; two recordings are in memory at a time."""
    from pytest_torchprof.cli.ranks import job_in  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.report import ranks_report  # noqa: PLC0415 - imported where it is used

    device, every = arguments.device, arguments.every
    jobs = [job_in(folder, device) for folder in (arguments.first, arguments.second)]
    first, second = ({part.rank: part.path for part in job} for job in jobs)
    if first.keys() != second.keys():
        from pytest_torchprof.reasons.files_asked import RanksOnOneSide  # noqa: PLC0415 - only a mistake needs it

        raise UsageError.because(RanksOnOneSide(tuple(sorted(first.keys() ^ second.keys()))))
    comparisons: dict[str, Comparison] = {}
    lines: list[str] = []
    for rank, before in sorted(first.items()):
        try:
            comparison, of_rank = _compared_recordings(Path(before), Path(second[rank]), device, every=every, indent=2)
        except NotMeasured as problem:
            from pytest_torchprof.reasons.composed import OfRank  # noqa: PLC0415 - only what is not measured needs it

            refuse("diff", OfRank(rank, problem.reason))
            return UNKNOWN
        comparisons[str(rank)] = comparison
        lines += [f"rank {rank}:", *(f"  {line}" for line in of_rank)]
    differ = any(comparison.kernels_differ for comparison in comparisons.values())
    together, of_all = ranks_report.differences(*jobs)
    lines += ["all ranks:", *(f"  {line}" for line in of_all)]
    if arguments.json:
        from pytest_torchprof.cli.diff_json import RanksDiff, diff_text, of_each  # noqa: PLC0415 - for programs alone

        files = (arguments.first, arguments.second)
        document = RanksDiff(files=files, kernels_differ=differ, ranks=of_each(comparisons), all_ranks=together)
        sys.stdout.write(diff_text(document))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return DIFFER if differ else SAME


def differences(before: Mapping[_Key, Entry], after: Mapping[_Key, Entry]) -> dict[_Key, Comparison]:
    """Return, in order, the differences between the entries of each test that either side has."""
    from pytest_torchprof.compare import compare  # noqa: PLC0415 - comparing needs msgspec, --help does not
    from pytest_torchprof.compare.change import TWO_FILES  # noqa: PLC0415 - as above

    keys = sorted(before.keys() | after.keys())
    return {key: compare(before.get(key), after.get(key), sides=TWO_FILES) for key in keys}


def summary_of(comparison: Comparison) -> str:
    """Return a short text on how two entries differ; "same" if nothing that decides differs."""
    return {"new": "only in the second", "gone": "only in the first"}.get(comparison.verdict) or comparison.summary


def _compared_baselines(first: Path, second: Path, *, every: bool) -> _Compared:
    from pytest_torchprof.baseline import read  # noqa: PLC0415 - imported where it is used

    return _by_test(differences(read(first).entries, read(second).entries), every=every)


def _by_test(comparisons: Mapping[str, Comparison], *, every: bool) -> _Compared:
    lines: list[str] = []
    for key, comparison in comparisons.items():
        lines += [
            printable(f"{key}: {summary_of(comparison)}"),
            *(f"  {printable(line)}" for line in comparison.screen_lines(every=every)),
        ]
    return _Compared(_Tests(comparisons), lines or ["no tests in either baseline file"])


def _compared_with_baseline(
    first: Path, second: Path, device: str | None, *, baseline_first: bool, every: bool
) -> _Compared:
    """Compare a recording with its test's entry: by kernels, numbers, and times by family."""
    from pytest_torchprof.baseline import entry_of, key_of, read  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.profiles import load_file  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.reasons.composed import OfRecording  # noqa: PLC0415 - imported where it is used

    file, recording = (first, second) if baseline_first else (second, first)
    entries, profile = read(file).entries, load_file(str(recording), device=device)
    if reason := profile.doubt or profile.kernels_unknown:
        raise NotMeasured(OfRecording(str(recording), reason))
    nodeid, label = profile.trace.of_test
    keys = [*entries] if nodeid is None else [key_of(nodeid, label)]
    if len(keys) != 1 or keys[0] not in entries:
        from pytest_torchprof.reasons.files_asked import NoEntryOfRecording  # noqa: PLC0415 - only a mistake needs it

        test = None if nodeid is None else keys[0]
        raise UsageError.because(NoEntryOfRecording(str(recording), test, str(file), tuple(sorted(entries))))
    (key,) = keys
    kept = {key: entries[key]}
    measured = {key: entry_of(profile, source_hash=entries[key].source)}
    return _by_test(differences(kept, measured) if baseline_first else differences(measured, kept), every=every)


def _compared_folders(first: Path, second: Path, device: str | None, *, every: bool) -> _Compared:
    """Compare the recordings of the same tests; two of them are in memory at a time."""
    before, after = (_tests_in(folder, device) for folder in (first, second))
    compared: dict[str, tuple[Comparison, list[str]]] = {}
    unmeasured: dict[str, NotMeasured] = {}
    for name in sorted(before.keys() & after.keys()):
        try:
            compared[name] = _compared_recordings(before[name], after[name], device, every=every, indent=2)
        except NotMeasured as problem:
            unmeasured[name] = problem
    # The costliest difference comes first.
    names = sorted(compared, key=lambda name: -abs(_difference_us(compared[name][0])))
    lines = [line for name in names for line in (printable(f"{name}:"), *(f"  {line}" for line in compared[name][1]))]
    lines += [printable(f"{name}: {unmeasured_text(problem)}") for name, problem in unmeasured.items()]
    alone = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    sides = zip(("first", "second"), alone, strict=True)
    lines += [printable(f"only in the {side}: {first_of(tests)}") for side, tests in sides if tests]
    folders = _Folders({name: compared[name][0] for name in names}, unmeasured, *alone)
    return _Compared(folders, lines, unknown=bool(unmeasured))


def _difference_us(comparison: Comparison) -> float:
    return 0.0 if comparison.cost is None else comparison.cost.difference_us


def _tests_in(folder: Path, device: str | None) -> dict[str, Path]:
    """Return the recordings of a folder by test and label, those without a test by their path below it."""
    from pytest_torchprof.profiles import load_each  # noqa: PLC0415 - imported where it is used

    paths: dict[str, Path] = {}
    for profile in load_each(folder, device=device):
        path = Path(str(profile.trace.path))
        nodeid, label = profile.trace.of_test
        name = path.relative_to(folder).as_posix() if nodeid is None else f"{nodeid}{f' ({label})' if label else ''}"
        if name in paths:
            from pytest_torchprof.reasons.files_asked import RecordedTwice  # noqa: PLC0415 - only a mistake needs it

            raise UsageError.because(RecordedTwice(str(paths[name]), str(path), name))
        paths[name] = path
    return paths


def _compared_recordings(
    first: Path, second: Path, device: str | None, *, every: bool, indent: int = 0
) -> tuple[Comparison, list[str]]:
    """Return how two recordings compare, and the lines about it; ``indent`` is how far the lines will be moved."""
    from pytest_torchprof.profiles import load_file  # noqa: PLC0415 - imported where it is used
    from pytest_torchprof.text.tables import terminal_width  # noqa: PLC0415 - imported where it is used

    before, after = (load_file(str(file), device=device) for file in (first, second))
    comparison: Comparison = before.diff(after)
    return comparison, [*comparison.screen_lines(width=terminal_width() - indent, every=every)]


def _is_baseline(path: Path) -> bool:
    """Distinguish a baseline file, even a damaged one, from a recording by its first bytes: both are JSON objects."""
    if is_special(path):
        from pytest_torchprof.reasons.files_asked import NoRegularFile  # noqa: PLC0415 - only a mistake needs it

        raise UnreadableRecording.because(NoRegularFile(str(path)))
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except (OSError, ValueError) as error:
        from pytest_torchprof.reasons.files_asked import FileNotRead  # noqa: PLC0415 - only a failure needs it

        why = getattr(error, "strerror", None) or str(error)
        raise UnreadableRecording.because(FileNotRead(str(path), why, isinstance(error, FileNotFoundError))) from None
    if any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"torchprof"')):
        return False
    begins = head.lstrip()
    return begins.startswith(_MERGING) or (begins[:1] == b"{" and (b'"schema"' in head or b'"entries"' in head))

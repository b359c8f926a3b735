"""``torchprof baseline list|show|diff|prune|rename|resolve``: look at baseline files without running a test."""

from __future__ import annotations

import json
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline import key_of, split_key, test_file_of, update
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.cli import UNUSABLE, sentence
from pytest_torchprof.cli.baseline_files import add_paths, add_rootdir, read_files, write_line
from pytest_torchprof.cli.baseline_merge import resolve
from pytest_torchprof.cli.baseline_rename import add_rename_arguments, rename
from pytest_torchprof.cli.diff import differences, summary_of
from pytest_torchprof.system.processes import run as run_process
from pytest_torchprof.text import counted, printable
from pytest_torchprof.text.tables import lined_up, screen_columns
from pytest_torchprof.text.wrapping import WIDTH

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from pytest_torchprof.baseline import BaselineFile, Entry
    from pytest_torchprof.cli import Parser


SAME, DIFFER = 0, 1

# Collects a file and notes its tests: all of them, before -m, -k or a plugin deselects any, and whether collecting was
# complete (a module that skips itself has tests that cannot be seen here).
_COLLECT: Final = """
import json, sys
import pytest

class Collected:
    def __init__(self):
        self.tests, self.whole = [], True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        self.tests += [item.nodeid for item in items]
        return (yield)

    def pytest_collectreport(self, report):
        self.whole = self.whole and report.passed

collected = Collected()
status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", sys.argv[1]], plugins=[collected])
whole = collected.whole and status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
with open(sys.argv[2], "w") as file:
    json.dump({"whole": whole, "tests": collected.tests}, file)
"""

_RESOLVE_EPILOG: Final = """\
Each entry is taken from the side that changed it. What both sides changed is listed; it is ours until the test is
measured again. (In a rebase, "ours" is what is rebased onto.) Where only times were changed by both, one side's are
taken. Entries that git has merged line by line by itself, now or in the last commit, are listed too, and stay as they
are."""
_EPILOG: Final = """\
exit status: 0 done (diff: the kernels are the same), 1 diff: they differ, resolve: tests have to be measured
again, 2 cannot read, or bad usage"""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments of each of its commands."""
    parser.description = "Looks at the files of stored baselines without running a test, and changes them."
    parser.epilog = _EPILOG
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)

    def add(name: str, act: Callable[[Namespace], int], purpose: str, epilog: str | None = None) -> Parser:
        own = commands.add_parser(name, help=purpose, description=sentence(purpose), epilog=epilog)
        own.set_defaults(act=act)
        return own

    add_paths(add("list", _list, "list the entries"))
    add_paths(add("show", _show, "show the kernels and numbers of each entry"))
    diff = add("diff", _diff, "compare the entries of two files, or of two folders")
    diff.add_argument("first", type=Path, metavar="A", help="a baseline file or a folder of them")
    diff.add_argument("second", type=Path, metavar="B", help="another one")
    prune = add(
        "prune",
        _prune,
        "list the entries of tests that their test file no longer has",
        "Where a test file cannot be collected, its entries are not touched.",
    )
    add_paths(prune)
    prune.add_argument("--yes", action="store_true", help="remove them")
    add_rootdir(prune)
    add_rename_arguments(
        add(
            "rename",
            rename,
            "give the entries of a test its new name, in the files of all devices or in none",
            "example:\n  torchprof baseline rename test_mlp.py::test_block test_mlp.py::test_mlp_block",
        )
    )
    add_paths(
        add(
            "resolve",
            resolve,
            "mend files in which a merge left its markers",
            _RESOLVE_EPILOG,
        )
    )


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    status: int = arguments.act(arguments)
    return status


def _list(arguments: Namespace) -> int:
    for file in read_files(arguments.path):
        write_line(str(file.path))
        rows = [
            (printable(key), f"{_count_kernels(entry)}, {_describe_software(entry)}")
            for key, entry in sorted(file.entries.items())
        ]
        for line in lined_up(rows, ("left", "left")):
            write_line(f"    {line}")
    return SAME


def _show(arguments: Namespace) -> int:
    for file in read_files(arguments.path):
        write_line(str(file.path))
        for key, entry in sorted(file.entries.items()):
            write_line(f"\n  {key}    {_count_kernels(entry)}, {_describe_software(entry)}")
            rows = [
                (f"{count} x", printable(row.short), printable(row.op or ""))
                for row, count in zip(entry.kernels, entry.counts(), strict=True)
            ]
            for line in lined_up(rows, ("right", "left", "left")):
                write_line(f"    {line}")
            numbers = {**entry.numbers, **entry.varying}
            listed = ", ".join(
                f"{name} {'not recorded' if value is None else f'{value:g}'}" for name, value in numbers.items()
            )
            for line in textwrap.wrap(listed, min(screen_columns() or WIDTH, WIDTH) - 4):
                write_line(f"    {line}")
    return SAME


def _diff(arguments: Namespace) -> int:
    before, after = _read_entries(arguments.first), _read_entries(arguments.second)
    comparisons = differences(before, after)
    differing = {
        key: comparison for key, comparison in comparisons.items() if comparison.verdict != "same" or comparison.lines
    }
    for key, comparison in differing.items():
        write_line(": ".join(part for part in key if part))
        for line in (summary_of(comparison), *comparison.lines):
            write_line(f"  {line}")
    alike = sum(not comparison.kernels_differ for comparison in differing.values())
    entries = counted(len(comparisons), "entry")
    if alike and alike == len(comparisons):
        write_line(f"{alike} of {entries} with the same kernels, and what is said above differs")
    else:
        others = f"; {alike} with the same kernels, and what is said above differs" if alike else ""
        write_line(f"{len(comparisons) - len(differing)} of {entries} the same{others}")
    return SAME if alike == len(differing) else DIFFER


def _read_entries(path: Path) -> dict[tuple[str, str], Entry]:
    """Return all entries of a file, or of the files of a folder by their path below it."""
    files = read_files([path])
    named = {str(file.path.relative_to(path)) if path.is_dir() else "": file for file in files}
    return {(name, key): entry for name, file in named.items() for key, entry in file.entries.items()}


def _prune(arguments: Namespace) -> int:
    """List the entries of tests that no longer exist, and remove them with ``--yes``."""
    files = [(base, file) for base in arguments.path for file in read_files([base])]
    collected: dict[Path, frozenset[str] | None] = {}
    count, status = 0, SAME
    for base, file in files:
        keys, why = _find_gone(base, file, arguments.rootdir.absolute(), collected)
        if keys is None:
            write_line(f"{file.path}: left as it is: {why}")
            status = UNUSABLE
        elif keys:
            write_line("\n    ".join([f"{file.path}: {why}", *keys]))
            count += len(keys)
            if arguments.yes:
                update(file.path, dict.fromkeys(keys))
    entries = f"{counted(count, 'entry')} of tests that no longer exist"
    write_line(f"{entries}{' removed' if arguments.yes and count else '; --yes removes them' if count else ''}")
    return status


def _find_gone(
    base: Path, file: BaselineFile, rootdir: Path, collected: dict[Path, frozenset[str] | None]
) -> tuple[list[str] | None, str]:
    """Return the keys whose tests are gone, with a heading for them; or None, and why they are not known."""
    test_file = test_file_of(file.path.absolute(), (base if base.is_dir() else base.parent).absolute(), rootdir)
    if test_file is None and file.path.absolute().parent.name == FOLDER:
        return sorted(file.entries), "its test file does not exist"
    if test_file is None:
        return None, f"no test file for it below {rootdir}: name pytest's rootdir with --rootdir"
    if test_file not in collected:
        collected[test_file] = _collect_tests(test_file)
    tests = collected[test_file]
    if tests is None:
        return None, f"collecting {test_file} failed or skipped tests: see pytest --collect-only {test_file}"
    return [key for key in sorted(file.entries) if split_key(key)[0] not in tests], f"{test_file.name} does not have"


def _collect_tests(test_file: Path) -> frozenset[str] | None:
    """Return the test ids of a file, without the file part; None if collecting was not complete."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "collected.json")
        command = [sys.executable, "-c", _COLLECT, str(test_file), str(answer)]
        run_process(command)
        if not answer.exists():
            return None
        answered = json.loads(answer.read_text())
    return frozenset(split_key(key_of(test, None))[0] for test in answered["tests"]) if answered["whole"] else None


def _count_kernels(entry: Entry) -> str:
    return counted(entry.numbers.get("kernels") or 0, "kernel")


def _describe_software(entry: Entry) -> str:
    names = {"torch": "torch", "cuda": "CUDA", "rocm": "ROCm"}
    known = [f"{name} {entry.environment[key]}" for key, name in names.items() if key in entry.environment]
    return ", ".join(known) or "software not recorded"

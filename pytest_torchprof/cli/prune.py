"""Which entries of baselines belong to tests that no longer exist: asks pytest, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline import key_of, split_key, test_file_of, update
from pytest_torchprof.baseline.path import FOLDER
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_torchprof.baseline import BaselineFile

DONE, UNUSABLE = 0, 2

# Collects one file and writes down its tests: all of them, before -m, -k or a plugin deselects any, and whether
# collecting went through as a whole (a module that skips itself has tests that cannot be seen here).
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
status = pytest.main(["--collect-only", "-q", sys.argv[1]], plugins=[collected])
whole = collected.whole and status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
with open(sys.argv[2], "w") as file:
    json.dump({"whole": whole, "tests": collected.tests}, file)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """Keys of one baseline file whose tests are gone, or why that cannot be told."""

    keys: tuple[str, ...] = ()
    why: str = ""
    unknown: str = ""


def prune(
    files: Iterable[tuple[Path, BaselineFile]], *, rootdir: Path, really: bool, say: Callable[[str], None]
) -> int:
    """List the entries of tests that no longer exist, ``really`` removes them; return the exit status."""
    collected: dict[Path, frozenset[str] | None] = {}
    count, status = 0, DONE
    for base, file in files:
        gone = _gone(base, file, rootdir, collected)
        if gone.unknown:
            say(f"{file.path}: left as it is: {gone.unknown}")
            status = UNUSABLE
        if gone.keys:
            say(f"{file.path}: {gone.why}")
            for key in gone.keys:
                say(f"    {key}")
            count += len(gone.keys)
            if really:
                update(file.path, dict.fromkeys(gone.keys))
    entries = f"{counted(count, 'entry')} of tests that no longer exist"
    say(f"{entries}{' removed' if really and count else '; --yes removes them' if count else ''}")
    return status


def _gone(base: Path, file: BaselineFile, rootdir: Path, collected: dict[Path, frozenset[str] | None]) -> _Gone:
    test_file = test_file_of(file.path.absolute(), _folder(base).absolute(), rootdir.absolute())
    if test_file is None and file.path.absolute().parent.name == FOLDER:
        return _Gone(keys=tuple(sorted(file.entries)), why="its test file does not exist")
    if test_file is None:
        return _Gone(unknown=f"no test file for it below {rootdir}: name pytest's rootdir with --rootdir")
    if test_file not in collected:
        collected[test_file] = _collect(test_file)
    tests = collected[test_file]
    if tests is None:
        return _Gone(unknown=f"collecting {test_file} failed or skipped tests: see pytest --collect-only {test_file}")
    keys = tuple(key for key in sorted(file.entries) if split_key(key)[0] not in tests)
    return _Gone(keys=keys, why=f"{test_file.name} does not have")


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _collect(test_file: Path) -> frozenset[str] | None:
    """Return the test ids of a file, without the file part; None where collecting did not go through."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "collected.json")
        command = [sys.executable, "-c", _COLLECT, str(test_file), str(answer)]
        subprocess.run(command, check=False, capture_output=True)  # noqa: S603  (our own script, no shell)
        if not answer.exists():
            return None
        found = json.loads(answer.read_text())
    return frozenset(split_key(key_of(test, None))[0] for test in found["tests"]) if found["whole"] else None

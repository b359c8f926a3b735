"""Baseline entries of tests that their test file no longer has, as far as this run can tell."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest


def whole_files(session: pytest.Session, collected: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the test ids of each test file that was collected as a whole, before anything was deselected."""
    # --last-failed leaves tests out while it collects, and where collecting failed nobody knows what there was.
    if session.testsfailed or session.config.getoption("lf", False):
        return {}
    files: defaultdict[Path, list[str]] = defaultdict(list)
    for item in collected:
        files[item.path].append(item.nodeid)
    parts = [
        Path(session.config.invocation_params.dir, arg.partition("::")[0]) for arg in session.config.args if "::" in arg
    ]
    return {path: ids for path, ids in files.items() if path not in parts}


def gone(compared: Mapping[str, Path], collected: Mapping[Path, Iterable[str]]) -> dict[str, list[str]]:
    """Return the keys of each baseline file, of those that tests were compared with, whose tests are gone."""
    from pytest_torchprof import baseline  # noqa: PLC0415  (only runs that compare pay for it)

    found = {}
    for file, test_file in sorted(compared.items()):
        if test_file not in collected:
            continue
        tests = {baseline.split_key(baseline.key_of(nodeid, None))[0] for nodeid in collected[test_file]}
        try:
            keys = baseline.read_or_empty(Path(file)).entries
        except TorchprofError:  # its tests have said so
            continue
        if left := sorted(key for key in keys if baseline.split_key(key)[0] not in tests):
            found[file] = left
    return found

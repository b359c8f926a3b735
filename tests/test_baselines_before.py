"""Baseline files that earlier commits wrote: they are read, kept where nothing changed, and compare as they did."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from pytest_torchprof.baseline import read, update
from pytest_torchprof.compare import compare

pytestmark = pytest.mark.any_torch

BEFORE = Path(__file__).with_name("baselines_before")
FILES = sorted(BEFORE.glob("schema_2/*.json"))
VERDICTS = [json.loads(line) for line in (BEFORE / "verdicts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_old_file_is_read_and_written_again_as_it_was(file, tmp_path):
    entries = read(file).entries
    update(tmp_path / "again.json", entries)
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()
    assert read(tmp_path / "again.json").entries == entries


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_old_file_stays_as_it_is_where_nothing_new_was_measured(file, tmp_path):
    copy = shutil.copy(file, tmp_path)
    update(Path(copy), read(file).entries)
    assert Path(copy).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_entries_of_old_files_compare_as_they_did(file):
    entries = read(file).entries
    pairs = [then for then in VERDICTS if then["file"] == file.name]
    assert len(pairs) == 4 * len(entries) ** 2
    for then in pairs:
        now = compare(entries[then["old"]], entries[then["new"]], names=then["names"], tolerance=then["tolerance"])
        assert {
            "verdict": now.verdict,
            "stale": now.stale,
            "environment": now.environment is not None,
            "fails": sorted({change.what for change in now.changes if change.fails and change.kind == "number"}),
            "kernels": Counter(f"{kind_then(one)} {one.direction}" for one in now.changes if one.kind != "number"),
        } == {
            **{name: then[name] for name in ("verdict", "stale", "fails", "kernels")},
            "environment": then["environment"] is not None,
        }


def kind_then(change):
    """Return the kind under which the verdicts count a change: a renamed kernel was a changed one."""
    return "changed" if change.kind == "renamed" else change.kind

"""Baselines: committed files of the kernels that each test launched when it was recorded."""

from __future__ import annotations

from pytest_torchprof.baseline.conflict import ChangedByBoth, sides
from pytest_torchprof.baseline.entry import (
    Entry,
    KernelRecord,
    RankEntry,
    Times,
    entry_of,
    key_of,
    source_hash,
    split_key,
    structure_hash,
    times_of,
)
from pytest_torchprof.baseline.file import (
    BaselineFile,
    MergedTexts,
    overlaps_merged,
    read,
    read_or_empty,
    read_text,
    resolve,
    update,
)
from pytest_torchprof.baseline.form import EntryFields, entry_from, fields_of, has_conflict
from pytest_torchprof.baseline.path import (
    baseline_path,
    device_slug,
    files_of,
    files_of_other_roots,
    find_files,
    lost_test_file,
    split_name,
    test_file_of,
)
from pytest_torchprof.baseline.rename import Move, rename, renamed_test

__all__ = [
    "BaselineFile",
    "ChangedByBoth",
    "Entry",
    "EntryFields",
    "KernelRecord",
    "MergedTexts",
    "Move",
    "RankEntry",
    "Times",
    "baseline_path",
    "device_slug",
    "entry_from",
    "entry_of",
    "fields_of",
    "files_of",
    "files_of_other_roots",
    "find_files",
    "has_conflict",
    "key_of",
    "lost_test_file",
    "overlaps_merged",
    "read",
    "read_or_empty",
    "read_text",
    "rename",
    "renamed_test",
    "resolve",
    "sides",
    "source_hash",
    "split_key",
    "split_name",
    "structure_hash",
    "test_file_of",
    "times_of",
    "update",
]

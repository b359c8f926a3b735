"""Baselines: what a test launched when it was recorded, kept in committed files, and the honest comparison with it."""

from __future__ import annotations

from pytest_torchprof.baseline.compare import Change, Comparison, compare, contrast
from pytest_torchprof.baseline.file import BaselineFile, from_plain, plain, read, read_or_empty, update
from pytest_torchprof.baseline.model import Entry, Row, entry_of, key_of, source_hash, split_key
from pytest_torchprof.baseline.numbers import GATED
from pytest_torchprof.baseline.place import device_slug, files_of, place, split_name, test_file_of
from pytest_torchprof.baseline.timing import Times, settled, times_of, unsure

__all__ = [
    "GATED",
    "BaselineFile",
    "Change",
    "Comparison",
    "Entry",
    "Row",
    "Times",
    "compare",
    "contrast",
    "device_slug",
    "entry_of",
    "files_of",
    "from_plain",
    "key_of",
    "place",
    "plain",
    "read",
    "read_or_empty",
    "settled",
    "source_hash",
    "split_key",
    "split_name",
    "test_file_of",
    "times_of",
    "unsure",
    "update",
]

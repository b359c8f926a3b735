"""The fuzz target holds for what fuzzing begins with, and for all that it has found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzz.target import BORDERS, LARGEST, enlarged, seeds, try_one

HERE = Path(__file__).parent
# The largest are what tests/test_reader_bounds.py is about.
LARGE = (b"\2\x19", b"\2\x0c")
SEEDS = [seed for seed in seeds(HERE.parent) if not seed.startswith(LARGE)]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed[:1].hex()}-{len(seed)}")
def test_what_it_begins_with_is_read_or_refused(seed):
    try_one(seed)


@pytest.mark.parametrize("path", sorted((HERE / "found").iterdir()), ids=lambda path: path.name)
def test_what_it_has_found_is_read_or_refused(path):
    try_one(path.read_bytes())


def test_it_begins_at_every_border():
    assert {seed[0] for seed in SEEDS} == set(range(len(BORDERS)))


def test_a_few_bytes_stand_for_as_many_as_a_file_may_have():
    assert enlarged(b"\x02a\0bc\0d") == b"a" + b"bc" * 4 + b"d"
    assert len(enlarged(b"\x19a\0b" + b"c" * 98 + b"\0d")) == pytest.approx(LARGEST, rel=1e-5)


def test_it_fails_for_a_command_that_does_not_hold_to_its_promises(monkeypatch):
    monkeypatch.setattr("fuzz.target.main", lambda _: 2)
    with pytest.raises(AssertionError, match="refused without a word"):
        try_one(SEEDS[0])
    monkeypatch.setattr("fuzz.target.main", lambda _: sys.stdout.write("::error::x") * 0)
    with pytest.raises(AssertionError, match="would be acted on"):
        try_one(SEEDS[0])

"""What two sequences have in common, found edit by edit or bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchprof.baseline import alignment
from pytest_torchprof.baseline.alignment import stretches

pytestmark = pytest.mark.any_torch

SEQUENCES = st.lists(st.integers(0, 4), max_size=30)


def common(before, after):
    """Return the length of what is in common, after a look at whether the stretches are what they are said to be."""
    i = j = length = 0
    for (old, new), equal in stretches(before, after):
        assert (old.start, new.start) == (i, j)
        assert not equal or before[old.start : old.stop] == after[new.start : new.stop]
        i, j, length = old.stop, new.stop, length + equal * len(old)
    assert (i, j) == (len(before), len(after))
    return length


def longest(before, after):
    row = [0] * (len(after) + 1)
    for one in before:
        diagonal = 0
        for j, other in enumerate(after, 1):
            diagonal, row[j] = row[j], diagonal + 1 if one == other else max(row[j], row[j - 1])
    return row[-1]


@pytest.fixture(params=["edit by edit", "bit by bit"])
def _either_way(request, monkeypatch):
    if request.param == "bit by bit":
        monkeypatch.setattr(alignment, "_MOST_EDITS", 0)


@pytest.mark.usefixtures("_either_way")
def test_as_much_is_in_common_as_can_be():
    @given(SEQUENCES, SEQUENCES)
    def as_long_as_the_longest(before, after):
        assert common(before, after) == longest(before, after)

    as_long_as_the_longest()


def test_sequences_far_apart_are_aligned_all_the_same():
    layers = 500
    eager, compiled = [1, 2, 3, 4] * layers, [1, 5, 4] * layers
    places = [(len(old), len(new)) for (old, new), equal in stretches(eager, compiled) if not equal]
    assert places == [(2, 1)] * layers


def test_of_sequences_too_long_to_align_nothing_is_in_common(monkeypatch):
    monkeypatch.setattr(alignment, "_MOST_EDITS", 0)
    monkeypatch.setattr(alignment, "_MOST_BITS", 8)
    assert common([1, 2, 3], [2, 3, 1]) == 0

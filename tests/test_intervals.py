"""Arithmetic with ranges of time comes to what it would come to moment by moment, however many ranges there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchprof.trace import intervals

pytestmark = pytest.mark.any_torch


def in_a_row(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges, each so far behind the one before and so long."""
    spans, reached = [], 0
    for apart, length in lengths:
        spans.append((reached + apart, reached + apart + length))
        reached += apart + length
    return spans


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


# Beside one or two ranges, and beside about as many: these go different ways.
steps = st.tuples(st.integers(0, 3), st.integers(0, 4))
few, many = st.lists(steps, max_size=2).map(in_a_row), st.lists(steps, max_size=50).map(in_a_row)
either = few | many


@given(either, either)
def test_an_intersection_holds_what_both_hold(these, those):
    shared = intervals.within(these, those)
    assert shared == sorted(shared)
    assert moments(shared) == moments(these) & moments(those)
    assert intervals.length(shared) == len(moments(shared))


def test_what_has_no_length_is_shared_inside_the_other_and_not_on_its_border():
    instants = [(5, 5), (10, 10), (25, 25), (30, 30)]
    assert intervals.within(instants, [(0, 10), (20, 30), (30, 40)]) == [(5, 5), (25, 25)]


@given(either, either)
def test_a_difference_holds_what_only_the_first_holds(these, those):
    left = intervals.without(these, those)
    assert left == sorted(left)
    assert all(start < end for start, end in left)
    assert moments(left) == moments(these) - moments(those)
    assert intervals.length(left) == len(moments(left))


@given(either, st.integers(-5, 400))
def test_the_coverage_before_an_instant_counts_the_moments_before_it(spans, instant):
    assert intervals.Coverage(spans).ns_before(instant) == sum(moment < instant for moment in moments(spans))


@given(either, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=30))
def test_a_length_is_told_without_ranges_that_overlap_in_any_order(these, others):
    overlapping = [(start, start + length) for start, length in others]
    starts, ends = [start for start, _ in overlapping], [end for _, end in overlapping]
    assert intervals.length_without(these, starts, ends) == len(moments(these) - moments(overlapping))

"""Arithmetic with ranges of time comes to what it would come to moment by moment, however many ranges there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.intervals import Spans

pytestmark = pytest.mark.any_torch


def in_a_row(lengths: list[tuple[int, int]]) -> Spans:
    """Return ranges, each so far behind the one before and so long."""
    starts, ends, reached = [], [], 0
    for apart, length in lengths:
        starts.append(reached + apart)
        reached += apart + length
        ends.append(reached)
    return Spans(starts, ends)


def moments(spans: Spans | list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


# Beside one or two ranges, and beside about as many: these go different ways.
steps = st.tuples(st.integers(0, 3), st.integers(0, 4))
few, many = st.lists(steps, max_size=2).map(in_a_row), st.lists(steps, max_size=50).map(in_a_row)
either = few | many
overlapping = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=30).map(
    lambda ranges: [(start, start + length) for start, length in ranges]
)


@given(overlapping)
def test_a_union_holds_what_any_holds_in_ranges_that_do_not_touch(ranges):
    spans = intervals.merged(ranges)
    assert moments(spans) == moments(ranges)
    assert all(end < start for end, start in zip(spans.ends, spans.starts[1:], strict=False))
    # A range without a length is one as well, where no other holds it.
    assert all(any(since <= start and end <= until for since, until in spans) for start, end in ranges)


@given(either, either)
def test_a_union_of_several_is_that_of_all_their_ranges(these, those):
    assert intervals.union_of([these, those]) == intervals.merged([*these, *those])


@given(either, either)
def test_an_intersection_holds_what_both_hold(these, those):
    shared = intervals.within(these, those)
    assert list(shared) == sorted(shared)
    assert moments(shared) == moments(these) & moments(those)
    assert intervals.length(shared) == len(moments(shared)) == sum(intervals.lengths(shared))
    assert intervals.length_within(these, those) == len(moments(shared))


def test_what_has_no_length_is_shared_inside_the_other_and_not_on_its_border():
    instants = Spans([5, 10, 25, 30], [5, 10, 25, 30])
    assert list(intervals.within(instants, Spans([0, 20, 30], [10, 30, 40]))) == [(5, 5), (25, 25)]


@given(either, either)
def test_a_difference_holds_what_only_the_first_holds(these, those):
    left = intervals.without(these, those)
    assert list(left) == sorted(left)
    assert all(start < end for start, end in left)
    assert moments(left) == moments(these) - moments(those)
    assert intervals.length(left) == len(moments(left))


@given(either, st.lists(st.integers(-5, 400), max_size=5))
def test_the_coverage_before_instants_counts_the_moments_before_each(spans, instants):
    counted = [sum(moment < instant for moment in moments(spans)) for instant in instants]
    assert intervals.Coverage(spans).ns_before(instants) == counted


@given(either, st.integers(-5, 400), st.integers(0, 20))
def test_the_range_around_a_time_holds_all_of_it(spans, since, length):
    # An instant on the border of two, of which one has no length, lies in both.
    holding = [(start, end) for start, end in spans if start <= since and since + length <= end]
    assert spans.around(since, since + length) in (holding or [None])


@given(st.lists(st.integers(0, 60)).map(sorted), st.lists(st.integers(0, 60)).map(sorted))
def test_what_has_passed_at_each_of_many_instants_is_what_lies_before_them_or_with_them(column, instants):
    assert intervals.passed(column, instants) == [sum(each <= instant for each in column) for instant in instants]

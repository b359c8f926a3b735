"""A baseline's launch order: repeated blocks written once, and a change of one kernel is a line or two of difference."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchprof.baseline import Entry, KernelRecord, read, update

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.any_torch

# A training step of 20 layers, 35 kernels each; within a layer several kernels come more than once.
LAYER = [f"kernel_{number % 18}" for number in range(0, 35 * 7, 7)]
HEAD, TAIL = ["embedding", "copy", "add"], ["norm", "gemm", "loss"]
STEP = [*HEAD, *LAYER * 20, *TAIL]


def entry(*steps: Sequence[str]) -> Entry:
    kernels = {name: KernelRecord(name=name, family="pointwise", op="aten::mul") for step in steps for name in step}
    return Entry(
        source="0123456789abcdef",
        environment={"torch": "2.13.0"},
        steps=tuple(tuple(kernels[name] for name in step) for step in steps),
        numbers={"kernels": max(map(len, steps))},
        varying={},
    )


def changed_lines(file: Path, before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return what a reviewer sees of an update, after a look at whether it says what was measured."""
    update(file, {"test_step": entry(before)})
    old = file.read_text().splitlines()
    update(file, {"test_step": entry(after)})
    assert read(file).entries["test_step"] == entry(after)
    lines = difflib.unified_diff(old, file.read_text().splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]


def without(step: list[str], place: int) -> list[str]:
    return step[:place] + step[place + 1 :]


def with_one(step: list[str], place: int, name: str) -> list[str]:
    return [*step[:place], name, *step[place:]]


@pytest.mark.parametrize("place", [0, 2, 3, 4, 37, 38, 300, 371, 702, 703, 705])
@pytest.mark.parametrize(
    ("change", "most"),
    [
        (lambda step, place: with_one(step, place, "mul"), 1),
        (lambda step, place: with_one(step, place, "kernel_3"), 1),
        (without, 2),
        (lambda step, place: with_one(without(step, place), place, "renamed"), 3),
        (lambda step, place: with_one(without(step, place), (place + 2) % (len(step) - 1), step[place]), 3),
        (lambda step, place: with_one(without(step, place), (place + 350) % len(step), step[place]), 3),
    ],
    ids=["a new kernel more", "a known kernel more", "less", "renamed", "moved a little", "moved far"],
)
def test_one_kernel_of_seven_hundred_is_at_most_three_lines(tmp_path, change, most, place):
    lines = changed_lines(tmp_path / "b.json", STEP, change(STEP, place))
    assert 1 <= len(lines) <= most, lines


@pytest.mark.parametrize(
    ("after", "most"),
    [
        ([*HEAD, *(["mul", *LAYER]) * 20, *TAIL], 1),
        ([*HEAD, *([*LAYER[:9], "mul", *LAYER[9:]]) * 20, *TAIL], 1),
        ([*HEAD, *([*LAYER[:9], *LAYER[10:]]) * 20, *TAIL], 1),
        ([*HEAD, *([*LAYER[:9], "other", *LAYER[10:]]) * 20, *TAIL], 2),
        ([*HEAD, *LAYER * 21, *TAIL], 2),
        ([*HEAD, *LAYER * 19, *TAIL], 2),
    ],
    ids=["more at its begin", "more", "less", "another", "a layer more", "a layer less"],
)
def test_a_change_of_every_layer_is_said_once(tmp_path, after, most):
    lines = changed_lines(tmp_path / "b.json", STEP, after)
    assert len(lines) <= most, lines


def test_a_repeated_layer_is_written_once(tmp_path):
    update(tmp_path / "b.json", {"test_step": entry(STEP)})
    text = (tmp_path / "b.json").read_text()
    assert text.count('"name"') == len(HEAD) + len(LAYER) + len(TAIL)
    assert text.count('"repeat": 20') == 1


def test_a_line_says_in_which_rounds_it_is_launched(tmp_path):
    deviating = [*LAYER, "mul"]
    step = [*LAYER * 6, *deviating, *LAYER * 2, *deviating, *LAYER * 10]
    update(tmp_path / "b.json", {"test_step": entry(LAYER * 20)})
    update(tmp_path / "b.json", {"test_step": entry(step)})
    assert (
        '{"only_in": "7, 10", "family": "pointwise", "op": "aten::mul", "name": "mul"}'
        in (tmp_path / "b.json").read_text()
    )
    assert read(tmp_path / "b.json").entries["test_step"] == entry(step)


def test_each_of_several_distinct_steps_keeps_its_lines(tmp_path):
    file, optimizer = tmp_path / "b.json", ["adam"] * 9
    update(file, {"test_step": entry(STEP, [*STEP, *optimizer])})
    before = file.read_text().splitlines()
    update(file, {"test_step": entry([*STEP, "mul", *optimizer], STEP)})
    assert read(file).entries["test_step"] == entry([*STEP, "mul", *optimizer], STEP)
    came = [line for line in file.read_text().splitlines() if line not in before]
    assert len(came) == 1


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=40)


@given(orders=st.lists(NAMES, min_size=2, max_size=4))
def test_any_order_written_over_any_other_is_read_back(orders, tmp_path_factory):
    file = tmp_path_factory.mktemp("any") / "b.json"
    for order in orders:
        update(file, {"test_step": entry(order)})
        assert read(file).entries == {"test_step": entry(order)}

"""What a large recording costs: the work grows as it does, and not with its square.

Work is counted in lines of the package that run, which no load on the machine changes.
"""

from __future__ import annotations

import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builder import TraceBuilder
from facts import why_unreadable

import pytest_torchprof
from pytest_torchprof import load
from pytest_torchprof.analysis.range_rows import by_annotation
from pytest_torchprof.reasons.errors import LimitsMissed
from pytest_torchprof.reasons.unreadable import RangesOverlap
from pytest_torchprof.report import analysis_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

pytestmark = pytest.mark.any_torch

_PACKAGE = str(Path(pytest_torchprof.__file__).parent)


class Lines:
    """How many lines of the package ran."""

    count = 0


@contextmanager
def counted_lines() -> Iterator[Lines]:
    found, before = Lines(), sys.gettrace()

    def reached(_frame: FrameType, event: str, _argument: Any) -> Any:
        found.count += event == "line"
        return reached

    sys.settrace(lambda frame, *_: reached if frame.f_code.co_filename.startswith(_PACKAGE) else None)
    try:
        yield found
    finally:
        sys.settrace(before)


def many(steps: int, kernels: int, *, depth: int = 0) -> TraceBuilder:
    """Return a recording of so many steps with so many kernels each, all inside so many Python frames."""
    builder, at = TraceBuilder(), 0
    for step in range(steps):
        began = at
        for number in range(kernels):
            builder.launched(f"kernel_{number % 5}", at + 5, dur=5)
            at += 20
        builder.step(step, began, at - began)
        builder.annotation("forward", began + 1, at - began - 2)
    for level in range(depth):
        builder.event("python_function", f"net.py({level}): forward", -200 + level, at + 400 - 2 * level)
    return builder


def miss(profile: Any) -> None:
    with pytest.raises(LimitsMissed):
        profile.expect(max_kernels=1)


LOOKS = {
    "worst": lambda profile: profile.worst,
    "median": lambda profile: profile.median,
    "range": lambda profile: profile.range("forward"),
    "findings": lambda profile: profile.findings,
    "efficiency": lambda profile: profile.efficiency,
    "table": lambda profile: profile.table(),
    "table by op": lambda profile: profile.table(by="op"),
    "table by range": lambda profile: profile.table(by="range"),
    "analysis": analysis_text.text,
    "missed limit": miss,
    "diff": lambda profile: profile.diff(profile),
}


def work(look: Any, builder: TraceBuilder, path: Path) -> int:
    profile = load(builder.write(path))
    with counted_lines() as lines:
        look(profile)
    return lines.count


@pytest.mark.parametrize("name", LOOKS)
def test_twice_the_steps_are_twice_the_work(tmp_path, name):
    few, twice = (work(LOOKS[name], many(steps, 2), tmp_path / "t.json") for steps in (100, 200))
    assert twice < 2.5 * few


@pytest.mark.parametrize("name", LOOKS)
def test_twice_the_kernels_are_twice_the_work(tmp_path, name):
    few, twice = (work(LOOKS[name], many(2, kernels), tmp_path / "t.json") for kernels in (100, 200))
    assert twice < 2.5 * few


def test_a_missed_limit_looks_at_each_python_frame_once(tmp_path):
    shallow, deep = (work(miss, many(1, 500, depth=depth), tmp_path / "t.json") for depth in (1, 50))
    assert deep < 1.5 * shallow


def staggered(count: int, *, reach: int, names: int = 1) -> TraceBuilder:
    """Return a recording of ranges that each begin within the one before: each holds so many kernels more."""
    builder = TraceBuilder()
    for number in range(count):
        builder.annotation(f"decode {number % names}", number * 20, reach * 20 + 15)
        builder.launched(f"kernel_{number % 5}", number * 20 + 5, dur=5)
    builder.step(0, -10, (count + reach) * 20 + 100)
    return builder


def peak_bytes(look: Any, profile: Any) -> int:
    tracemalloc.start()
    try:
        look(profile)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "inside",
    [{"max_syncs": 0}, {"forbid_kernels": "none of them"}, {"forbid_ops": "aten::lstm"}, {"max_gpu_time": "1 s"}],
)
def test_ranges_that_all_overlap_take_memory_as_the_file_does(tmp_path, inside):
    def look(profile: Any) -> None:
        profile.expect(ranges={"decode 0": inside})

    few, many = (
        peak_bytes(look, load(staggered(count, reach=count).write(tmp_path / "t.json"))) for count in (30, 120)
    )
    assert many < 6 * few


def test_ranges_that_overlap_share_their_work(tmp_path):
    for count in (50, 100):
        ranges = load(staggered(count, reach=10).write(tmp_path / "t.json")).ranges("decode 0")
        expected = [min(11, count - number) for number in range(count)]
        assert [one.kernels.count for one in ranges] == expected
        assert [len(list(one.kernels)) for one in ranges] == expected
        assert [one.launches for one in ranges] == expected


@pytest.mark.parametrize("names", [1, 3])
def test_twice_the_ranges_that_overlap_their_neighbours_are_twice_the_work_in_a_table(tmp_path, names):
    few, twice = (
        work(LOOKS["table by range"], staggered(count, reach=1, names=names), tmp_path / "t.json")
        for count in (300, 600)
    )
    assert twice < 2.5 * few


def test_a_range_that_has_ended_has_no_part_in_what_runs_in_one_that_began_inside_it(tmp_path):
    profile = load(staggered(30, reach=1, names=3).write(tmp_path / "t.json"))
    rows = by_annotation(profile.trace, [step.part for step in profile.steps])
    assert {row.name: row.kernels for row in rows if row.name.startswith("decode")} == {
        "decode 0": 20,
        "decode 1": 20,
        "decode 2": 19,
    }


def test_ranges_that_overlap_as_no_programs_do_are_refused(tmp_path):
    profile = load(staggered(4000, reach=4000).write(tmp_path / "t.json"))
    cause = why_unreadable(lambda: profile.expect(ranges={"decode 0": {"max_kernels": 5000}}))
    assert (type(cause), cause.range, cause.held > cause.most) == (RangesOverlap, "decode 0", True)

"""What a large recording costs: the work grows as it does, and not with its square.

Work is counted in lines of the package that run, which no load on the machine changes.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builder import TraceBuilder

import pytest_torchprof
from pytest_torchprof import load
from pytest_torchprof.errors import LimitsMissed
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
